"""Labels of edges and times of vertices, from every source that can bring them."""

import re

import numpy as np
import pytest
import torch

from leapmpi.dataset.verify import verify_graph

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
CLASSES = [2, 0, 1, -1, 0]
TIMES = [7, -3, 0, 2**60]


def by_ends(graph):
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    labels = np.asarray(graph.edge_data.labels).tolist()
    return dict(zip(zip(graph.indices.tolist(), destination.tolist(), strict=True), labels, strict=True))


def write(kind, folder, labels):
    """A source of `kind` with the labels, and the arguments that name them."""
    if kind in ("npz", "other name"):
        name = "edge_labels" if kind == "npz" else "rating"
        np.savez(folder / "g.npz", edges=np.array(PAIRS), **{name: np.array(labels)})
        return folder / "g.npz", [] if kind == "npz" else ["--edge-labels", "rating"]
    if kind == "pyg":
        edges = torch.tensor(PAIRS).T
        torch.save({"edge_index": edges, "edge_label": torch.tensor(labels), "num_nodes": 4}, folder / "g.pt")
        return folder / "g.pt", []
    rows = [f"{u} {v} 5 {label}\n" for (u, v), label in zip(PAIRS, labels, strict=True)]
    if kind == "edge list":
        (folder / "e.txt").write_text("".join(rows))
        return folder / "e.txt", ["--edge-columns", "feature,label"]
    (folder / "edges.csv").write_text("src,dst,weight,kind\n" + "".join(rows).replace(" ", ","))
    (folder / "vertices.csv").write_text("id,born\n" + "".join(f"{v},{TIMES[v]}\n" for v in range(4)))
    return folder, ["--edge-labels", "kind", "--vertex-times", "born"]


@pytest.mark.parametrize("kind", ["npz", "other name", "pyg", "edge list", "tables"])
def test_labels_lie_with_their_edges(tmp_path, imported, kind):
    source, arguments = write(kind, tmp_path, CLASSES)
    graph = imported(source, "--directed", *arguments)
    assert by_ends(graph) == dict(zip(PAIRS, CLASSES, strict=True))
    assert graph.edge_data.classes == 3
    assert graph.edge_data.labels.dtype == np.int32
    if kind == "tables":
        assert graph.time.tolist() == TIMES
        assert graph.edge_data.weight.tolist() == [5] * 5

    # Both ways, the reverse has the label of its edge.
    both = by_ends(imported(source, *arguments))
    assert both == {pair: by_ends(graph)[pair if pair in PAIRS else pair[::-1]] for pair in both}


def test_any_numbers_are_classes_where_asked(tmp_path, imported, refused):
    source, _ = write("npz", tmp_path, [-10, 3, 3, -1, 10])
    assert "the label of an edge is -10" in refused(source)
    graph = imported(source, "--directed", "--edge-label-values", "distinct")
    assert by_ends(graph) == dict(zip(PAIRS, [0, 2, 2, 1, 3], strict=True))
    assert (graph.edge_data.classes, graph.attributes["edge_class_names"]) == (4, "[-10, -1, 3, 10]")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0.5, 1, 1, 1], "the label of edge 1 .counted from 0. is 0.5"),
        ([-1] * 5, "no edge has a label"),
        ([1 << 40] + [0] * 4, "more than 1,048,576 classes"),
        ([0, 1], "have 2 rows, for 5 edges"),
    ],
)
def test_labels_that_are_no_classes_are_named(tmp_path, refused, labels, message):
    source, _ = write("npz", tmp_path, labels)
    assert re.search(message, refused(source))


def test_names_that_are_nowhere_are_named(tmp_path, refused):
    source, _ = write("npz", tmp_path, CLASSES)
    assert "no array 'kind'" in refused(source, "--edge-labels", "kind")
    assert "neither a file nor an array" in refused(source, "--vertex-times", "born")
    tables, _ = write("tables", tmp_path, CLASSES)
    assert "no such column" in refused(tables, "--edge-labels", "sort", "--format", "table")
    assert "neither a file nor a column" in refused(tables, "--vertex-times", "died", "--format", "table")


def test_times_of_vertices_from_a_file(tmp_path, imported, refused):
    source, _ = write("npz", tmp_path, CLASSES)
    np.save(tmp_path / "t.npy", np.array(TIMES))
    graph = imported(source, "--vertex-times", tmp_path / "t.npy")
    assert graph.time.tolist() == TIMES
    assert verify_graph(tmp_path / "out.h5").describe()["has_vertex_time"]
    for times, message in ((np.arange(3), "a whole number for each of 4"), (np.array([0, 1, 2.5, 3]), "vertex 2")):
        np.save(tmp_path / "t.npy", times)
        assert message in refused(source, "--vertex-times", tmp_path / "t.npy")


def test_labels_are_held_back_and_edges_stay(tmp_path, prep, imported):
    rng = np.random.default_rng(3)
    edges = np.unique(np.sort(rng.integers(0, 60, (500, 2)), axis=1), axis=0)
    np.savez(tmp_path / "g.npz", edges=edges, edge_labels=rng.integers(-1, 3, len(edges)))
    whole, graph = (imported(tmp_path / "g.npz", *more) for more in ((), ("--split-edge-labels", "0.6,0.2,0.2")))
    assert np.array_equal(whole.indices, graph.indices)
    before, after, splits = by_ends(whole), by_ends(graph), graph.edge_splits
    held = {}
    for edges, labels in ((splits.val, splits.val_labels), (splits.test, splits.test_labels)):
        assert len(edges) > 30
        held |= dict(zip(map(tuple, edges.tolist()), labels.tolist(), strict=True))
    assert all(before[pair] == label >= 0 for pair, label in held.items())
    gone = {*held, *(pair[::-1] for pair in held)}
    assert after == {pair: -1 if pair in gone else label for pair, label in before.items()}

    # The dataset holds the same, and the check finds a label that training would see.
    assert prep("partition", tmp_path / "out.h5", tmp_path / "d", "--parts", 3).code == 0
    assert prep("check", tmp_path / "d").code == 0
    assert (
        prep("partition", tmp_path / "out.h5", tmp_path / "d2", "--parts", 3, "--split-edges", "0.8,0.1,0.1").code == 3
    )
