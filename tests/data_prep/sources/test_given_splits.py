"""Validation and test edges that sources give: out of the topology, with their negatives."""

import gzip

import numpy as np
import pytest
import torch

from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify, verify_graph

TRAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
VAL = [(3, 0), (4, 1), (2, 2)]
TEST = [(2, 5), (1, 0)]
"""One edge of validation is a loop, one of test the reverse of a training edge."""
NEGATIVES = [(0, 2), (1, 5), (3, 5)]


def ogb(folder, **valid):
    for name, rows in (("edge", TRAIN), ("num-node-list", [(6,)]), ("num-edge-list", [(6,)])):
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / "raw" / f"{name}.csv.gz", "wt") as file:
            file.write("".join(",".join(map(str, row)) + "\n" for row in rows))
    (folder / "split" / "time").mkdir(parents=True)
    torch.save({"edge": np.array(TRAIN)}, folder / "split/time/train.pt")
    torch.save(valid or {"edge": np.array(VAL), "edge_neg": np.array(NEGATIVES)}, folder / "split/time/valid.pt")
    torch.save({"edge": torch.tensor(TEST), "edge_neg": torch.tensor(NEGATIVES)}, folder / "split/time/test.pt")
    return folder


def npz(folder):
    np.savez(
        folder / "g.npz", edges=np.array(TRAIN), num_nodes=6, val_edges=np.array(VAL), test_edges=np.array(TEST),
        val_negatives=np.array(NEGATIVES), test_negatives=np.array(NEGATIVES),
    )  # fmt: skip
    return folder / "g.npz"


def pyg(folder):
    both = torch.tensor([*TEST, *NEGATIVES]).T
    tensors = {"edge_index": torch.tensor(TRAIN).T, "num_nodes": 6, "val_pos_edge_index": torch.tensor(VAL).T}
    tensors |= {"test_edge_label_index": both, "test_edge_label": torch.tensor([1, 1, 0, 0, 0])}
    negatives = torch.tensor(NEGATIVES).T
    torch.save({**tensors, "val_neg_edge_index": negatives, "test_neg_edge_index": negatives}, folder / "g.pt")
    return folder / "g.pt"


def edges_of(graph):
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return set(zip(graph.indices.tolist(), destination.tolist(), strict=True))


@pytest.mark.parametrize("source", [ogb, npz, pyg])
@pytest.mark.parametrize("directed", [True, False])
def test_given_edges_are_held_back(tmp_path, imported, prep, source, directed):
    graph = imported(source(tmp_path / "s" if source is ogb else tmp_path), *["--directed"] * directed)
    left = {(u, v) for u, v in TRAIN if {u, v} != {0, 1}}
    assert edges_of(graph) == left | (set() if directed else {pair[::-1] for pair in left})
    splits = verify_graph(tmp_path / "out.h5").edge_splits
    assert splits.val.tolist() == [[3, 0], [4, 1]]
    assert splits.test.tolist() == [[1, 0], [2, 5]]
    assert splits.val_negatives.tolist() == splits.test_negatives.tolist() == [list(pair) for pair in NEGATIVES]
    assert "source: " in graph.attributes["edge_split_origin"]
    assert "val edges left out (loops" in graph.table

    # In a dataset under other numbers.
    assert prep("partition", tmp_path / "out.h5", tmp_path / "d", "--parts", 2, "--method", "random").code == 0
    verify(dataset := open_dataset(tmp_path / "d"))
    original = load_topology(dataset).original_id
    assert original[dataset.edge_splits.val_negatives].tolist() == [list(pair) for pair in NEGATIVES]
    assert sorted(original[dataset.edge_splits.test].tolist()) == [[1, 0], [2, 5]]


def test_flags_come_before_what_the_source_gives(tmp_path, imported):
    source = npz(tmp_path)
    assert imported(source, "--split-edges", "none").edge_splits is None
    graph = imported(source, "--split-edges", "0.5,0.25,0.25")
    assert graph.edge_splits.val_negatives is None
    assert "the source's own split of edges is not used" in graph.table


def test_negatives_of_each_source_are_told(tmp_path, imported):
    ends = {"source_node": np.array([3, 4]), "target_node": np.array([0, 1]), "target_node_neg": np.zeros((2, 5), int)}
    graph = imported(ogb(tmp_path / "s", **ends))
    assert graph.edge_splits.val.tolist() == [[3, 0], [4, 1]]
    assert graph.edge_splits.val_negatives is None
    assert "target_node_neg, negatives of each edge, are not used" in graph.table


def test_masks_hold_labels_back_where_edges_have_some(tmp_path, imported):
    masks = {"val_edge_mask": np.arange(6) == 2, "test_edge_mask": np.arange(6) > 3}
    np.savez(tmp_path / "g.npz", edges=np.array(TRAIN), edge_labels=np.arange(6) % 3, **masks)
    graph = imported(tmp_path / "g.npz", "--directed")
    assert edges_of(graph) == set(TRAIN)
    assert (graph.edge_splits.val.tolist(), graph.edge_splits.val_labels.tolist()) == ([[2, 3]], [2])
    assert sorted(graph.edge_splits.test.tolist()) == [[4, 5], [5, 0]]
    assert sorted(graph.edge_data.labels.tolist()) == [-1, -1, -1, 0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"val_edges": [(0, 9)]}, "is out of range: the graph has vertices 0 ... 5"),
        ({"val_edges": [(3, 0)], "test_edges": [(0, 3)]}, "is in both validation and test"),
        ({"val_edges": [0, 1, 2]}, "must hold pairs of vertices"),
        ({"val_edges": TRAIN}, "no training edge is left"),
        ({"val_edges": [(3, 0)], "test_edge_mask": [1] * 6}, "keep one"),
        ({"val_edge_mask": [1, 0]}, "for 6 edges"),
    ],
)
def test_bad_splits_are_named(tmp_path, refused, arrays, message):
    np.savez(tmp_path / "g.npz", edges=np.array(TRAIN), num_nodes=6, **{k: np.array(v) for k, v in arrays.items()})
    assert message in refused(tmp_path / "g.npz")
