"""Import of small graphs written in every format, and what cleaning makes of them."""

import gzip
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from leapmpi.dataset.graph_file import open_graph
from tests.data_prep.conftest import SYMMETRIC, neighbours


def imported(prep, tmp_path, source, *arguments):
    """The graph that importing `source` gives, and what the command printed."""
    target = tmp_path / "out.h5"
    outcome = prep("import", source, target, *arguments)
    assert outcome.code == 0, outcome.error
    return open_graph(target), outcome.out


def assert_small(graph, small, *, splits=True):
    """Compare all of `graph` with the small graph of conftest."""
    assert neighbours(graph) == SYMMETRIC
    assert graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.features, small.features)
    np.testing.assert_array_equal(graph.labels, small.labels)
    assert graph.classes == 3
    assert graph.original_id.tolist() == list(range(6))
    if splits:
        assert graph.split.tolist() == [1, 1, 2, 0, 3, 3]


def test_generic_edge_index(prep, tmp_path, small):
    np.savez(tmp_path / "g.npz", **small.arrays())
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz")
    assert_small(graph, small)
    rows = {line[:22].strip(): line[22:37].strip() for line in out.splitlines()}
    assert rows["edges read"] == "8"
    assert rows["self-loops dropped"] == "1"
    assert rows["duplicates dropped"] == "1"
    assert rows["reverse edges added"] == "4"
    assert rows["edges written"] == "10"
    assert rows["components"] == "2"
    assert rows["bytes"].replace(",", "") == str((tmp_path / "out.h5").stat().st_size)
    assert not graph.attributes["directed"]
    assert graph.attributes["source"] == str(tmp_path / "g.npz")
    assert graph.attributes["command"].startswith("leapmpi-prep import ")


def test_generic_edges_and_masks(prep, tmp_path, small):
    masks = {f"{name}_mask": np.isin(np.arange(6), getattr(small, name)) for name in ("train", "val", "test")}
    np.savez_compressed(
        tmp_path / "g.npz", edges=small.edges.T.astype(np.int32), x=small.features, y=small.labels, **masks
    )
    assert_small(imported(prep, tmp_path, tmp_path / "g.npz")[0], small)


def test_generic_csr_rows_are_destinations(prep, tmp_path, small):
    # The arrays of an in-neighbour list: vertex 1 hears from 0, vertex 2 from 1.
    np.savez(tmp_path / "g.npz", indptr=[0, 0, 1, 2], indices=[0, 1])
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--directed")
    assert neighbours(graph) == [[], [0], [1]]


def test_generic_sparse_features(prep, tmp_path, small):
    arrays = small.arrays()
    matrix = sp.csr_matrix(arrays.pop("features"))
    parts = {f"features_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "g.npz", **arrays, **parts)
    assert_small(imported(prep, tmp_path, tmp_path / "g.npz")[0], small)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_scipy_adjacency_with_features_and_labels_aside(prep, tmp_path, small, kind):
    source, destination = np.unique(small.edges, axis=1)
    matrix = sp.coo_matrix((np.ones(len(source)), (source, destination)), (6, 6)).asformat(kind)
    sp.save_npz(tmp_path / "g.npz", matrix)
    sp.save_npz(tmp_path / "f.npz", sp.csr_matrix(small.features))
    np.save(tmp_path / "y.npy", small.labels)
    more = ("--features", tmp_path / "f.npz", "--labels", tmp_path / "y.npy")
    assert_small(imported(prep, tmp_path, tmp_path / "g.npz", *more)[0], small, splits=False)
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--directed", "--overwrite")
    assert neighbours(graph) == [[1, 4], [0], [1], [2], [3], []]


def csr_parts(matrix, prefix):
    return {f"{prefix}{name}": getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}


@pytest.mark.parametrize(("adjacency", "features"), [("adj_", "attr_"), ("adj_matrix.", "attr_matrix.")])
def test_gnn_benchmark(prep, tmp_path, small, adjacency, features):
    matrix = sp.csr_matrix((np.ones(8), tuple(small.edges)), (6, 6))
    parts = csr_parts(matrix, adjacency) | csr_parts(sp.csr_matrix(small.features), features)
    np.savez(tmp_path / "g.npz", labels=small.labels.astype(np.int8), **parts)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz")
    assert "(gnn-benchmark)" in out
    assert_small(graph, small, splits=False)
    assert graph.split is None


def test_graphdata(prep, tmp_path, small):
    matrix = sp.csr_matrix((np.ones(8), tuple(small.edges)), (6, 6))
    np.savez(tmp_path / "g.npz", adj_matrix=matrix, node_attr=sp.csc_matrix(small.features), node_label=small.labels)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz")
    assert "(graphdata)" in out
    assert_small(graph, small, splits=False)


def test_heterophilous_split_index(prep, tmp_path, small):
    masks = {f"{name}_masks": np.zeros((2, 6), bool) for name in ("train", "val", "test")}
    for index, members in enumerate((([0], [1], [2]), ([0, 1], [2], [4, 5]))):
        for name, ids in zip(("train", "val", "test"), members, strict=True):
            masks[f"{name}_masks"][index, ids] = True
    arrays = {"edges": small.edges.T, "node_features": small.features, "node_labels": small.labels}
    np.savez(tmp_path / "g.npz", **arrays, **masks)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz", "--split-index", 1)
    assert_small(graph, small)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz", "--overwrite")
    assert graph.split.tolist() == [1, 2, 3, 0, 0, 0]
    assert "split 0 of 2 was taken" in out


def write_planetoid(folder, protocol=2, lists=None):
    """Six vertices: rows 0-2 in allx, test vertices 5 and 3, and vertex 4 without any row."""
    folder.mkdir()
    features = sp.csr_matrix(np.arange(1.0, 11).reshape(5, 2))
    one_hot = np.eye(2)[[0, 1, 0, 1, 0]]
    parts = {
        "x": features[:1],
        "y": one_hot[:1],
        "allx": features[:3],
        "ally": one_hot[:3],
        "tx": features[3:],
        "ty": one_hot[3:],
        "graph": lists or {0: [1, 2], 1: [0, 5], 2: [0], 3: [3], 4: [], 5: [1, 1]},
    }
    for name, part in parts.items():
        (folder / f"ind.tiny.{name}").write_bytes(pickle.dumps(part, protocol))
    (folder / "ind.tiny.test.index").write_text("5\n3\n")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_planetoid(prep, tmp_path, protocol):
    write_planetoid(tmp_path / "tiny", protocol)
    graph, out = imported(prep, tmp_path, tmp_path / "tiny")
    assert neighbours(graph) == [[1, 2], [0, 5], [0], [], [], [1]]
    assert graph.features.tolist() == [[1, 2], [3, 4], [5, 6], [9, 10], [0, 0], [7, 8]]
    assert graph.labels.tolist() == [0, 1, 0, 0, -1, 1]
    assert graph.split.tolist() == [1, 2, 2, 3, 0, 3]
    assert "1 vertex without a feature row" in out


def test_one_planetoid_graph_of_several(prep, tmp_path, refused):
    write_planetoid(tmp_path / "tiny")
    other = tmp_path / "tiny" / "ind.other.graph"
    other.write_bytes(b"")
    assert f"name one of its files ind.NAME.graph instead: {other}" in refused(tmp_path / "tiny")
    graph, _ = imported(prep, tmp_path, tmp_path / "tiny" / "ind.tiny.graph")
    assert graph.vertices == 6


def test_planetoid_without_ally(prep, tmp_path):
    write_planetoid(tmp_path / "tiny")
    (tmp_path / "tiny" / "ind.tiny.ally").unlink()
    graph, out = imported(prep, tmp_path, tmp_path / "tiny")
    assert graph.labels.tolist() == [0, -1, -1, 0, -1, 1]
    assert graph.split.tolist() == [1, 0, 0, 3, 0, 3]
    assert "no validation" in out


@pytest.mark.parametrize(
    ("name", "delimiter", "head"),
    [
        ("g.csv", ",", "source,target\n"),
        ("g.tsv", "\t", ""),
        ("g.txt", " ", "# a comment\n\n"),
        ("g.csv.gz", ";", "% matrix market style\n"),
        ("g.txt.gz", "   ", ""),
    ],
)
def test_edge_list(prep, tmp_path, small, name, delimiter, head):
    text = head + "".join(f"{a}{delimiter}{b}\n" for a, b in small.edges.T)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    np.savetxt(tmp_path / "f.csv", small.features, delimiter=",")
    np.savetxt(tmp_path / "y.csv", small.labels, fmt="%d")
    more = ("--features", tmp_path / "f.csv", "--labels", tmp_path / "y.csv")
    graph, out = imported(prep, tmp_path, tmp_path / name, *more)
    assert_small(graph, small, splits=False)
    assert ("taken as a header" in out) == head.startswith("source")


def test_bare_edge_list(prep, tmp_path):
    (tmp_path / "g.txt").write_text("0 1 0.5\n1 2 0.25\n")
    graph, out = imported(prep, tmp_path, tmp_path / "g.txt")
    assert neighbours(graph) == [[1], [0, 2], [1]]
    assert graph.features is None
    assert graph.labels is None
    assert graph.split is None
    assert "only the first two of 3 columns" in out
    graph, _ = imported(prep, tmp_path, tmp_path / "g.txt", "--vertices", 5, "--overwrite")
    assert graph.vertices == 5


def write_gz(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def write_ogb(folder, small, raw, labels):
    raw = folder / "raw" if raw else folder
    write_gz(raw / "edge.csv.gz", "".join(f"{a},{b}\n" for a, b in small.edges.T))
    write_gz(raw / "num-node-list.csv.gz", "6\n")
    write_gz(raw / "num-edge-list.csv.gz", "8\n")
    write_gz(raw / "node-feat.csv.gz", "".join(",".join(map(str, row)) + "\n" for row in small.features))
    write_gz(raw / "node-label.csv.gz", labels)
    for name, ids in (("train", small.train), ("valid", small.val), ("test", small.test)):
        write_gz(folder / "split" / "time" / f"{name}.csv.gz", "".join(f"{id_}\n" for id_ in ids))


@pytest.mark.parametrize("raw", [True, False])
def test_ogb(prep, tmp_path, small, raw):
    write_ogb(tmp_path / "g", small, raw, "".join(f"{label}\n" for label in small.labels))
    graph, _ = imported(prep, tmp_path, tmp_path / "g")
    assert_small(graph, small)
    assert graph.attributes["split_origin"] == "split/time"
    if raw:
        assert_small(imported(prep, tmp_path, tmp_path / "g" / "raw", "--overwrite")[0], small)


def test_ogb_without_its_last_edges(prep, tmp_path, small):
    write_ogb(tmp_path / "g", small, True, "".join(f"{label}\n" for label in small.labels))
    write_gz(tmp_path / "g/raw/num-edge-list.csv.gz", "9\n")
    outcome = prep("import", tmp_path / "g", tmp_path / "out.h5")
    assert outcome.code == 3
    assert "edge.csv.gz holds 8 edges, but num-edge-list says 9; is it truncated?" in outcome.error
    assert not (tmp_path / "out.h5").exists()


def test_ogb_multilabel_with_gaps(prep, tmp_path, small):
    write_ogb(tmp_path / "g", small, True, "1,1\n0,nan\n0,1\n,\n1,0\n0,0\n")
    graph, out = imported(prep, tmp_path, tmp_path / "g")
    nan = np.nan
    np.testing.assert_array_equal(graph.labels, np.float32([[1, 1], [0, nan], [0, 1], [nan, nan], [1, 0], [0, 0]]))
    assert graph.multilabel
    assert "multi-label, 1 vertex unlabelled" in out


def test_ogb_binary(prep, tmp_path, small):
    raw = tmp_path / "g" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "data.npz", edge_index=small.edges, node_feat=small.features, num_nodes_list=[6])
    labels = np.where(small.labels < 0, np.nan, small.labels)[:, None].astype(np.float32)
    np.savez(raw / "node-label.npz", node_label=labels)
    assert_small(imported(prep, tmp_path, tmp_path / "g")[0], small, splits=False)


def test_folder_with_one_graph_file(prep, tmp_path, small):
    (tmp_path / "g").mkdir()
    np.savez(tmp_path / "g" / "g.npz", **small.arrays())
    (tmp_path / "g" / "README").write_text("about")
    assert_small(imported(prep, tmp_path, tmp_path / "g")[0], small)
    assert_small(imported(prep, tmp_path, tmp_path / "g", "--format", "npz", "--overwrite")[0], small)


def test_directed_keeps_one_way(prep, tmp_path, small):
    np.savez(tmp_path / "g.npz", **small.arrays())
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--directed")
    assert neighbours(graph) == [[1, 4], [0], [1], [2], [3], []]
    assert graph.attributes["directed"]


def test_largest_component(prep, tmp_path, small):
    arrays = small.arrays()
    arrays["edge_index"] = np.array([[1, 2, 3, 5], [2, 3, 5, 1]])  # 0 and 4 are isolated
    np.savez(tmp_path / "g.npz", **arrays)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz", "--largest-component")
    assert graph.original_id.tolist() == [1, 2, 3, 5]
    assert neighbours(graph) == [[1, 3], [0, 2], [1, 3], [0, 2]]
    np.testing.assert_array_equal(graph.features, small.features[[1, 2, 3, 5]])
    assert graph.labels.tolist() == [1, 2, -1, 1]
    assert graph.split.tolist() == [1, 2, 0, 3]
    assert "left out: 1 train, 1 test vertices" in out


def test_row_normalised_float16(prep, tmp_path, small):
    small.features[1] = 0
    small.features[2] = [-1, 2, 1]
    np.savez(tmp_path / "g.npz", **small.arrays())
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--normalize-features", "row")
    total = np.abs(small.features).sum(axis=1, keepdims=True)
    expected = small.features / np.where(total == 0, 1, total)
    np.testing.assert_allclose(graph.features, expected, rtol=1e-6)
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--feature-dtype", "float16", "--overwrite")
    assert graph.features.dtype == np.float16
    np.testing.assert_array_equal(graph.features, small.features)


def test_one_hot_labels_become_classes(prep, tmp_path, small):
    arrays = small.arrays() | {"labels": np.eye(4, dtype=int)[[0, 1, 2, 3, 0, 1]]}
    np.savez(tmp_path / "g.npz", **arrays)
    graph, out = imported(prep, tmp_path, tmp_path / "g.npz")
    assert graph.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert "read as classes" in out


def test_more_classes_than_the_labels_show(prep, tmp_path, small):
    np.savez(tmp_path / "g.npz", **small.arrays())
    assert imported(prep, tmp_path, tmp_path / "g.npz", "--classes", 7)[0].classes == 7


def test_arrays_of_other_names(prep, refused, tmp_path, small):
    arrays = {"edge_index": small.edges, "embedding": small.features, "y": small.labels, "year": small.labels % 2}
    np.savez(tmp_path / "g.npz", **arrays)
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "g.pt")
    for name in ("g.npz", "g.pt"):
        graph, out = imported(prep, tmp_path, tmp_path / name, "--overwrite")
        assert f"{name}: not used: embedding, year" in out
        assert graph.features is None
        flags = ("--features", "embedding", "--labels", "year", "--overwrite")
        graph, out = imported(prep, tmp_path, tmp_path / name, *flags)
        np.testing.assert_array_equal(graph.features, small.features)
        np.testing.assert_array_equal(graph.labels, small.labels % 2)
        assert f"{name}: not used: y" in out
        said = refused(tmp_path / name, "--labels", "years")
        assert "--labels years does not exist, neither as a file nor in" in said
        assert "which holds edge_index, embedding, y, year" in said


@pytest.mark.parametrize("flags", [(), ("--task", "regression")])
def test_numbers_are_targets_of_a_regression(prep, tmp_path, small, flags):
    targets = np.stack([small.labels * 1.5 - 7, np.arange(6) * 1e6], axis=1)
    targets[small.labels < 0] = np.nan
    for values in (targets, targets[:, 0]):
        np.savez(tmp_path / "g.npz", **{**small.arrays(), "labels": values})
        graph, out = imported(prep, tmp_path, tmp_path / "g.npz", *flags, "--overwrite")
        assert (graph.label_kind, graph.multilabel, graph.classes) == (
            "regression",
            False,
            values.reshape(6, -1).shape[1],
        )
        np.testing.assert_array_equal(graph.labels, values.reshape(6, -1).astype(np.float32))
        assert ("were read as targets of a regression" in out) == (not flags)
    assert prep("partition", tmp_path / "out.h5", tmp_path / "data", "--parts", 2, "--method", "hash").code == 0
    assert prep("check", tmp_path / "data").code == 0
    assert "label_kind         regression" in prep("info", tmp_path / "data").out


def test_numbers_in_a_table_are_targets(prep, tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n10,11\n11,12\n")
    for texts, flags, expected in (
        (("0.5", "-1", ""), (), [0.5, -1, np.nan]),
        (("3", "-1", "nan"), ("--task", "regression"), [3, -1, np.nan]),
    ):
        rows = [f"{vertex},{text}" for vertex, text in zip((10, 11, 12), texts, strict=True)]
        (tmp_path / "nodes.csv").write_text("\n".join(["id,label", *rows]))
        graph, _ = imported(prep, tmp_path, tmp_path, *flags, "--overwrite", "--splits", "source")
        np.testing.assert_array_equal(graph.labels[:, 0], expected)


def test_one_hot_columns_may_stay_labels(prep, tmp_path, small):
    columns = np.eye(3)[np.maximum(small.labels, 0)]
    np.savez(tmp_path / "g.npz", **{**small.arrays(), "labels": columns})
    assert imported(prep, tmp_path, tmp_path / "g.npz")[0].label_kind == "multi-class"
    graph, _ = imported(prep, tmp_path, tmp_path / "g.npz", "--task", "multi-label", "--overwrite")
    assert (graph.label_kind, graph.labels.shape) == ("multi-label", (6, 3))
