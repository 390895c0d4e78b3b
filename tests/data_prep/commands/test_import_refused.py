"""Bad input to import: one sentence that names what and where, exit code not 0, nothing left behind."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.data_prep.commands.test_import import write_planetoid


@pytest.fixture
def spoiled(tmp_path, small, refused):
    """Import the small graph with some arrays replaced (None: left out); returns the sentence."""

    def run(*arguments, **changed):
        arrays = {name: array for name, array in (small.arrays() | changed).items() if array is not None}
        np.savez(tmp_path / "g.npz", **arrays)
        return refused(tmp_path / "g.npz", *arguments)

    return run


def with_value(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def test_folders_above_a_missing_source_are_not_searched(tmp_path, refused, monkeypatch):
    """They may be large, such as a home, or change meanwhile."""
    monkeypatch.setattr(Path, "rglob", None)
    assert f"{tmp_path / 'missing'} does not exist; give the file or folder" in refused(tmp_path / "missing")


def test_edge_ids(spoiled, small):
    said = spoiled(edge_index=with_value(small.edges, (1, 3), 6))
    assert "array 'edge_index': edge 3 (counted from 0): its destination 6 is out of range" in said
    assert "0 ... 5" in said
    assert "edge 2 (counted from 0): its source -7 is negative" in spoiled(
        edge_index=with_value(small.edges, (0, 2), -7)
    )
    assert "whole numbers" in spoiled(edge_index=small.edges + 0.5)
    assert "shape [2, edges]" in spoiled(edge_index=small.edges.T)
    assert "unknown format" in spoiled(edge_index=None)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_features_not_finite(spoiled, small, value):
    said = spoiled(features=with_value(small.features, (4, 1), value))
    assert "g.npz: features, row 4, column 1 is" in said
    assert f"column 1 is {value}" in said


def test_features_of_wrong_shape(spoiled, small):
    assert "features have no columns; leave them out" in spoiled(features=small.features[:, :0])
    assert "features have 5 rows, but the graph has 6 vertices" in spoiled("--vertices", 6, features=small.features[:5])
    assert "their shape is (6,)" in spoiled(features=small.features[:, 0])
    assert "must be numbers" in spoiled(features=np.full((6, 3), "a"))


def test_labels(spoiled, small):
    assert "there are 5 labels, but the graph has 6 vertices" in spoiled(labels=small.labels[:5])
    assert "label of vertex 2 is -2, out of range" in spoiled(labels=with_value(small.labels, 2, -2))
    assert "label of vertex 1 is 9999, out of range" in spoiled(labels=with_value(small.labels, 1, 9999))
    assert "label of vertex 2 is 2, out of range: but there are 2 classes" in spoiled("--classes", 2)
    assert "label of vertex 0 is 0.5" in spoiled("--task", "multi-class", labels=small.labels + 0.5)
    assert "label of vertex 2 is -3, out of range" in spoiled(labels=with_value(small.labels * 1.0, 2, -3))
    assert "target 0 of vertex 1 is inf" in spoiled(
        "--task", "regression", labels=with_value(small.labels * 1.0, 1, np.inf)
    )
    assert "a regression has no classes" in spoiled("--task", "regression", "--splits", "per-class:2,1")
    assert "label 1 of vertex 3 is 2" in spoiled(labels=with_value(np.ones((6, 2), int), (3, 1), 2))
    assert "label 1 of vertex 3 is 2" in spoiled("--task", "multi-label", labels=with_value(np.ones((6, 2)), (3, 1), 2))
    assert "no vertex has a label" in spoiled(labels=np.full(6, -1))


def test_whole_numbers_of_64_bits(spoiled, small):
    """What int64 does not hold is refused as it was written, rather than taken for a negative number."""
    large = np.full(6, 1, np.uint64)
    large[2] = 2**63 + 5
    assert f"label of vertex 2 is {2**63 + 5}" in spoiled(labels=large)
    assert "label of vertex 2 is -1e+300" in spoiled(
        "--task", "multi-class", labels=with_value(small.labels * 1.0, 2, -1e300)
    )
    edges = with_value(small.edges.astype(np.uint64), (0, 3), 2**63 + 5)
    assert f"'edge_index' holds {2**63 + 5}" in spoiled(edge_index=edges)
    of_edges = np.ones(small.edges.shape[1], np.uint64)
    of_edges[3] = 2**63 + 5
    assert f"time of edge 3 (counted from 0) is {2**63 + 5}" in spoiled(edge_time=of_edges)
    assert f"features of edge 3 (counted from 0) are {2**63 + 5}" in spoiled(edge_attr=of_edges)


def test_splits(spoiled):
    assert "the val split is empty" in spoiled(val=np.array([], np.int64))
    assert "the train split is empty" in spoiled(train=np.array([], np.int64))
    assert "the train and test splits overlap in 1 vertex, e.g. vertex 1" in spoiled(test=np.array([4, 1]))
    assert "the test split, row 1: id 6 is outside 0 ... 5" in spoiled(test=np.array([4, 6]))
    assert "the val split, row 0: id -1 is outside" in spoiled(val=np.array([-1]))
    assert "names vertex 4 more than once" in spoiled(test=np.array([4, 5, 4]))
    assert "vertex 3 is in the val split but has no label" in spoiled(val=np.array([2, 3]))
    assert "mask has 5 entries" in spoiled(val=None, val_mask=np.ones(5, bool))
    assert "no training split" in spoiled(train=None)


def test_split_rules(spoiled, tmp_path):
    assert "did you mean 'random'" in spoiled("--splits", "rondom:0.6,0.2,0.2")
    assert "no such folder" in spoiled("--splits", tmp_path / "nowhere")
    assert "for random shares give --splits random:0.6,0.2,0.2" in spoiled("--splits", "0.6,0.2,0.2")
    for text in (
        "random",
        "random:",
        "random:0.6,0.2",
        "random:0.6,0.6,0.2",
        "random:a,b,c",
        "random:0,0.5,0.5",
        "random:nan,0,0",
    ):
        assert "random takes three shares TRAIN,VAL,TEST" in spoiled("--splits", text)
    for text in ("per-class", "per-class:20", "per-class:0,5", "per-class:1.5,2"):
        assert "per-class takes" in spoiled("--splits", text)
    assert "class 0 has 2 labelled vertices" in spoiled("--splits", "per-class:2,1")
    assert "the test split is empty" in spoiled("--splits", "random:0.9,0.05,0.05")
    assert "has no labels" in spoiled("--splits", "random:0.6,0.2,0.2", labels=None)
    assert "has no train-idx.npy" in spoiled("--splits", tmp_path)


@pytest.mark.parametrize("name", ["features", "labels", "train", "edge_weight"])
def test_single_values_are_no_rows(spoiled, refused, tmp_path, name):
    assert f"array '{name}' is a single value; expected an array with rows" in spoiled(**{name: 3.0})
    np.save(tmp_path / "single.npy", 3.0)
    np.savez(tmp_path / "e.npz", edge_index=[[0, 1], [1, 0]])
    for flag in ("--features", "--labels", "--vertex-times"):
        assert "single.npy is a single value" in refused(tmp_path / "e.npz", flag, tmp_path / "single.npy")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_nodes", -4, "states -4 vertices"),
        ("num_nodes", np.nan, "'num_nodes' must be a whole number, but it is nan"),
        ("num_nodes", 1e300, "'num_nodes' must be a whole number, but it is 1e+300"),
        ("num_nodes", 6.5, "'num_nodes' must be a whole number, but it is 6.5"),
        ("classes", -3, "-3 classes are stated"),
        ("classes", 0, "0 classes are stated"),
        ("classes", 2**62, "classes are stated, but the graph has only 6 vertices"),
        ("classes", np.inf, "'classes' must be a whole number, but it is inf"),
    ],
)
def test_odd_counts(spoiled, name, value, said):
    assert said in spoiled(**{name: value})


def test_largest_component_must_keep_the_splits(spoiled):
    said = spoiled("--largest-component", edge_index=np.array([[2, 3], [3, 4]]))
    assert "no vertex of the train split is in the largest component" in said


def test_compressed_rows(refused, tmp_path):
    for indptr, fault in (([0, 2, 1, 2], "falls from 2 to 1 at row 1"), ([0, 1, 1, 3], "runs from 0 to 3")):
        np.savez(tmp_path / "g.npz", indptr=indptr, indices=[1, 2])
        assert fault in refused(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 2], indices=[1, 5])
    assert "array 'indices': edge 1 (counted from 0): its source 5 is out of range" in refused(tmp_path / "g.npz")


def test_missing_and_unknown_files(refused, tmp_path):
    assert "does not exist" in refused(tmp_path / "nothing.npz")
    (tmp_path / "g.xyz").write_text("3 2\n2\n1 3\n2\n")
    said = refused(tmp_path / "g.xyz")
    assert "has an unknown format" in said
    assert "import --formats" in said
    assert len(said) < len(str(tmp_path)) + 200
    np.savez(tmp_path / "odd.npz", something=np.arange(3))
    assert "odd.npz holds something" in refused(tmp_path / "odd.npz")


def test_suggestions(refused, prep, tmp_path):
    assert "unknown format 'planetiod'; did you mean 'planetoid'?" in refused(tmp_path, "--format", "planetiod")
    assert "unknown flag --direct; did you mean '--directed'?" in refused(tmp_path, "--direct")
    assert "'row'" in refused(tmp_path, "--normalize-features", "rows")
    outcome = prep("imprt")
    assert outcome.code == 2
    assert "did you mean 'import'?" in outcome.error


def test_flags_that_the_format_does_not_take(spoiled):
    assert "--split-index does not apply to the format npz" in spoiled("--split-index", 1)


def test_damaged_npz(refused, tmp_path, small):
    path = tmp_path / "g.npz"
    np.savez_compressed(path, **small.arrays())
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:size])
        assert "truncated" in refused(path)
    # A byte in the middle of the first array, past the archive's own header: the checksum tells.
    at = 30 + sum(whole[26:30:2]) + 40
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    assert "g.npz: array 'edge_index' is truncated or damaged" in refused(path)


def test_damaged_gzip(refused, tmp_path):
    path = tmp_path / "g.csv.gz"
    whole = gzip.compress("".join(f"{v},{v * 7919 % 1000}\n" for v in range(1000)).encode())
    for content in (whole[: len(whole) // 2], b"0,1\n1,2\n", whole[:300] + b"\0\0\0\0" + whole[304:]):
        path.write_bytes(content)
        assert "g.csv.gz is damaged or truncated, or not gzip" in refused(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no edges"),
        ("# nothing\n", "holds no edges"),
        ("a,b\n", "holds no edges"),
        ("0,1\n1,x\n", "data row 1 (counted from 0): 'x' is not a vertex id"),
        ("0,1\n1,2.5\n", "data row 1 (counted from 0): '2.5' is not a vertex id"),
        ("ann,bob\nbob,eve\n", "not mostly whole numbers (line 1: 'ann,bob'); --format table reads ids that are texts"),
        ("0,1\n7\n", "too few fields"),
        ("0\n1\n", "needs two vertex ids per line"),
        ("0,1\n1,-4\n", "edge 1 (counted from 0): its destination -4 is negative"),
        ("0,1\n1,4000000000\n", "the largest id is 4,000,000,000, but the graph has only 2 edges"),
        ("0,1\n1,99999999999999999999\n", "is not a vertex id"),
    ],
)
def test_edge_list_text(refused, tmp_path, text, said):
    (tmp_path / "g.csv").write_text(text)
    assert said in refused(tmp_path / "g.csv")


def test_edge_list_companions(refused, tmp_path):
    (tmp_path / "g.csv").write_text("0,1\n1,2\n")
    (tmp_path / "f.csv").write_text("1,2\n3,x\n5,6\n")
    (tmp_path / "g.bin").write_bytes(b"\xff\xfe")
    np.save(tmp_path / "o.npy", np.array([{}, {}, {}]), allow_pickle=True)
    np.save(tmp_path / "y.npy", np.array([0, 1]))
    edges = tmp_path / "g.csv"
    assert "f.csv, data row 1 (counted from 0): 'x' is not a number" in refused(edges, "--features", tmp_path / "f.csv")
    assert "none.npy does not exist" in refused(edges, "--features", tmp_path / "none.npy")
    assert "unknown kind of file" in refused(edges, "--features", tmp_path / "g.bin")
    assert "holds Python objects" in refused(edges, "--features", tmp_path / "o.npy")
    assert "destination 2 is out of range" in refused(edges, "--labels", tmp_path / "y.npy")
    (tmp_path / "g.csv").write_bytes(b"0,1\n\xff\xfe,2\n")
    assert "not text in UTF-8" in refused(edges)


def test_output_is_kept_unless_overwritten(prep, tmp_path, small):
    np.savez(tmp_path / "g.npz", **small.arrays())
    target = tmp_path / "out.h5"
    target.write_text("precious")
    outcome = prep("import", tmp_path / "g.npz", target)
    assert outcome.code == 3
    assert "exists already" in outcome.error
    assert target.read_text() == "precious"
    # A failed import does not touch what it would have replaced.
    np.savez(tmp_path / "bad.npz", **small.arrays() | {"labels": small.labels[:2]})
    assert prep("import", tmp_path / "bad.npz", target, "--overwrite").code == 3
    assert target.read_text() == "precious"
    assert prep("import", tmp_path / "g.npz", target, "--overwrite").code == 0
    assert target.stat().st_size > 1000
    assert "is a folder" in prep("import", tmp_path / "g.npz", tmp_path).error
    assert "does not exist; make it first" in prep("import", tmp_path / "g.npz", tmp_path / "no" / "g.h5").error


def test_planetoid_with_a_stray_vertex(refused, tmp_path):
    write_planetoid(tmp_path / "tiny")
    (tmp_path / "tiny" / "ind.tiny.test.index").write_text("5\n3000000000\n")
    assert "ind.tiny.test.index names vertex 3,000,000,000, but there are only 13 rows and edges" in refused(
        tmp_path / "tiny"
    )
    write_planetoid(tmp_path / "odd", lists={0: [1, 2**40]})
    assert "ind.tiny.graph names vertex 1,099,511,627,776" in refused(tmp_path / "odd")
