"""Folders of the Illinois Graph Benchmark, with arrays that have a header and arrays that have none."""

import numpy as np
import pytest

from tests.data_prep.conftest import SYMMETRIC, neighbours


@pytest.fixture
def folder(tmp_path, small):
    processed = tmp_path / "tiny" / "processed"
    (processed / "paper").mkdir(parents=True)
    (processed / "paper__cites__paper").mkdir()
    np.save(processed / "paper__cites__paper/edge_index.npy", small.edges.T)
    features = np.arange(6 * 1024, dtype=np.float32).reshape(6, 1024)
    np.save(processed / "paper/node_feat.npy", features)
    np.save(processed / "paper/node_label_19.npy", np.array([0, 1, 2, 3, 0, 1], np.float32))
    np.save(processed / "paper/node_label_2K.npy", np.array([0, 1, 2, 4, 0, 1], np.float32))
    return tmp_path / "tiny"


def test_as_the_loader_splits(imported, folder):
    graph = imported(folder)
    assert neighbours(graph) == SYMMETRIC
    assert graph.features.shape == (6, 1024)
    assert graph.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert graph.split.tolist() == [1, 1, 1, 2, 3, 3]  # 60 %, 20 %, the rest
    assert imported(folder, "--label-column", "2K").labels.tolist() == [0, 1, 2, 4, 0, 1]


def test_arrays_without_a_header(imported, folder):
    whole = imported(folder)
    for name in ("node_feat.npy", "node_label_19.npy"):
        file = folder / "processed/paper" / name
        file.write_bytes(np.load(file).tobytes())
    assert imported(folder, "--max-mem", "512M").uuid == whole.uuid


def test_refused_in_one_sentence(refused, folder):
    assert "--label-column 20: IGB has labels of 19 and of 2K classes" in refused(folder, "--label-column", "20")
    (folder / "processed/paper/node_feat.npy").write_bytes(b"12345")
    assert "its 5 bytes are not rows of 1024 float32" in refused(folder)
