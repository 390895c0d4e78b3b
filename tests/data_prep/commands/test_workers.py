"""--workers: files of the same content, whatever the number of threads."""

import h5py
import numpy as np
import pytest

from data_prep.edges import edge_sort
from leapmpi.system import worker_threads

VERTICES, EDGES = 3000, 20_000


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    monkeypatch.setattr(worker_threads._Processors, "count", 0)


@pytest.fixture(params=["npy", "txt", "snap"])
def source(tmp_path, request):
    rng = np.random.default_rng(5)
    edges = rng.integers(0, VERTICES, (EDGES, 2))
    if request.param == "npy":
        np.save(tmp_path / "edges.npy", edges.T)
        return tmp_path / "edges.npy"
    lines = [f"{s * 7} {d * 7}" for s, d in edges] if request.param == "snap" else [f"{s},{d}" for s, d in edges]
    head = ["# FromNodeId ToNodeId"] if request.param == "snap" else []
    (tmp_path / "edges.txt").write_text("\n".join(head + lines) + "\n")
    return tmp_path / "edges.txt"


def content(path):
    """All bytes of the arrays in an HDF5 file, with the attributes that neither time nor command changes."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()} if hasattr(item, "shape") else {}))
        found["attributes"] = {
            name: str(value)
            for name, value in file.attrs.items()
            if name not in ("created_utc", "command", "graph_command", "digest", "vertex_names")
        }
    return found


@pytest.mark.parametrize("held", [1 << 25, 700])
def test_any_number_of_workers_imports_the_same(prep, tmp_path, source, held, monkeypatch):
    monkeypatch.setattr(edge_sort, "_EDGES_IN_MEMORY", held)
    found = []
    for workers in (1, 5):
        outcome = prep("import", source, tmp_path / f"{workers}.h5", "--workers", workers, "--features", "degree")
        assert outcome.code == 0, outcome.error
        found.append(content(tmp_path / f"{workers}.h5"))
    assert found[0] == found[1]


@pytest.mark.parametrize("source", ["npy"], indirect=True)
def test_any_number_of_workers_partitions_the_same(prep, tmp_path, source):
    assert prep("import", source, tmp_path / "g.h5", "--features", "degree").code == 0
    found = []
    for workers in (1, 5):
        words = [tmp_path / "g.h5", tmp_path / f"{workers}", "--parts", 3, "--method", "grem", "--workers", workers]
        outcome = prep("partition", *words)
        assert outcome.code == 0, outcome.error
        found.append([content(file) for file in sorted((tmp_path / f"{workers}").iterdir())])
    assert found[0] == found[1]


@pytest.mark.parametrize("source", ["npy"], indirect=True)
def test_workers_are_those_of_the_flag_else_the_processors_given(prep, tmp_path, source):
    assert prep("import", source, tmp_path / "a.h5", "--workers", 3).code == 0
    assert worker_threads.processor_count() == 3
    assert prep("import", source, tmp_path / "b.h5").code == 0
    assert worker_threads.processor_count() == worker_threads.given_processors()
    for workers in (0, 1025, 100_000):
        outcome = prep("import", source, tmp_path / "c.h5", "--workers", workers)
        assert outcome.code == 2
        assert f"--workers: '{workers}' is not a whole number from 1 to 1024" in outcome.error
