"""Drawn and given splits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.assembly.splits import codes_of, draw, parse_rule
from leapmpi.dataset.hdf5.names import NO_SPLIT, TEST, TRAIN, VAL
from leapmpi.errors import DataError


def sizes(codes):
    return [int((codes == code).sum()) for code in (TRAIN, VAL, TEST, NO_SPLIT)]


@given(st.integers(0, 100), st.floats(0.1, 0.9), st.floats(0.05, 0.5))
def test_random_shares(seed, train, val):
    if train + val > 1:
        train, val = train / 2, val / 2
    labels = np.where(np.arange(1000) % 10 == 3, -1, 0)
    codes = draw(parse_rule(f"random:{train},{val},0"), labels, 1, seed)
    found = sizes(codes)
    assert abs(found[0] - 900 * train) <= 1
    assert abs(found[1] - 900 * val) <= 1
    assert found[2] == 0
    assert (codes[labels < 0] == NO_SPLIT).all()


def test_seed_decides():
    labels, rule = np.zeros(500, int), parse_rule("random:0.5,0.25,0.25")
    np.testing.assert_array_equal(draw(rule, labels, 1, 7), draw(rule, labels, 1, 7))
    assert (draw(rule, labels, 1, 7) != draw(rule, labels, 1, 8)).any()


def test_per_class():
    labels = np.random.default_rng(0).integers(-1, 4, 800)
    codes = draw(parse_rule("per-class:20,30"), labels, 4, 1)
    for label in range(4):
        assert sizes(codes[labels == label])[:2] == [20, 30]
    assert (codes[labels >= 0] != NO_SPLIT).all()
    assert (codes[labels < 0] == NO_SPLIT).all()


def test_per_class_refuses_multilabel():
    with pytest.raises(DataError, match="multi-label"):
        draw(parse_rule("per-class:2,3"), np.ones((20, 3), np.float32), 3, 0)


def test_multilabel_vertices_without_any_label_are_left_out():
    labels = np.ones((10, 2), np.float32)
    labels[3] = np.nan
    labels[4, 0] = np.nan
    codes = draw(parse_rule("random:0.4,0.3,0.3"), labels, 2, 0)
    assert codes[3] == NO_SPLIT
    assert codes[4] != NO_SPLIT


def test_codes_from_ids_and_masks():
    mask = np.array([True, False, False, False, True])
    codes = codes_of({"train": mask, "test": np.array([3, 1], np.uint8)}, 5, None, "here")
    assert codes.tolist() == [TRAIN, TEST, NO_SPLIT, TEST, TRAIN]


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".csv.gz", ".txt"])
def test_folder_of_ids(prep, tmp_path, small, suffix):
    from leapmpi.dataset.graph_file import open_graph

    np.savez(tmp_path / "g.npz", edge_index=small.edges, labels=small.labels)
    folder = tmp_path / "split"
    folder.mkdir()
    for name, ids in (("train", [4, 0]), ("test", [2])):
        path = folder / f"{name}-idx{suffix}"
        np.save(path, ids) if suffix == ".npy" else np.savetxt(path, ids, fmt="%d")
    outcome = prep("import", tmp_path / "g.npz", tmp_path / "g.h5", "--splits", folder)
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert graph.split.tolist() == [1, 0, 3, 0, 1, 0]
    assert graph.attributes["split_origin"] == str(folder)
    assert "no validation set" in outcome.out


@pytest.mark.parametrize(
    "names", [("train.npy", "valid.npy", "test.npy"), ("train-idx.csv", "val_idx.csv", "test.txt")]
)
def test_a_folder_of_splits_within_the_source_is_found(imported, tmp_path, names):
    folder = tmp_path / "source" / "splits"
    folder.mkdir(parents=True)
    (tmp_path / "source" / "edges.csv").write_text("0,1\n1,2\n2,3\n")
    for name, ids in zip(names, ([0, 1], [2], [3]), strict=True):
        np.save(folder / name, ids) if name.endswith("npy") else (folder / name).write_text(
            "\n".join(map(str, ids)) + "\n"
        )
    graph = imported(tmp_path / "source")
    assert graph.split.tolist() == [1, 1, 2, 3]
    assert "splits are those of the folder splits of the source" in graph.table
    assert "not used" not in graph.table
    # Another choice wins, and so do splits of the source.
    assert imported(tmp_path / "source" / "edges.csv").split is None
