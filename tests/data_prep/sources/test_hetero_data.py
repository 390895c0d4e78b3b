"""HeteroData in all layouts, written by torch_geometric itself where it is installed."""

import numpy as np
import pytest
import torch

from leapmpi.dataset.verify import verify_graph
from tests.data_prep.typed_folders import COUNTS, EDGES, FEATURES, LABELS, SPLITS, check_small


def stores():
    """The small graph as dicts of tensors by type and relation."""
    found = {name: {"num_nodes": count} for name, count in COUNTS.items()}
    for name, features in FEATURES.items():
        found[name]["x"] = torch.from_numpy(features)
    found["paper"]["y"] = torch.from_numpy(LABELS)
    for name, ids in SPLITS.items():
        found["paper"][f"{name}_mask"] = torch.isin(torch.arange(6), torch.tensor(ids))
    found |= {tuple(name.split("__")): {"edge_index": torch.tensor(pairs)} for name, pairs in EDGES.items()}
    return found


def hetero_data():
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    for key, store in stores().items():
        for name, value in store.items():
            data[key][name] = value
    return data


def saved(layout, path):
    if layout == "dict":
        torch.save(stores(), path)
    elif layout == "data":
        torch.save(hetero_data(), path)
    elif layout == "set":
        pytest.importorskip("torch_geometric.data").InMemoryDataset.save([hetero_data()], path)
    else:
        torch.save((hetero_data(), None), path)
    return path


@pytest.mark.parametrize("layout", ["dict", "data", "set", "old set"])
def test_every_layout(imported, tmp_path, layout):
    graph = imported(saved(layout, tmp_path / "g.pt"))
    check_small(graph)
    verify_graph(tmp_path / "out.h5")


def test_a_relation_without_edges_stays_one(imported, tmp_path):
    found = stores() | {("author", "knows", "author"): {"edge_index": torch.empty(2, 0, dtype=torch.int64)}}
    torch.save(found, tmp_path / "g.pt")
    graph = imported(tmp_path / "g.pt")
    assert graph.types.relations[-1].name == "knows"


def test_reverse_relations_are_recognised(imported, tmp_path):
    transforms = pytest.importorskip("torch_geometric.transforms")
    torch.save(transforms.ToUndirected(merge=False)(hetero_data()), tmp_path / "g.pt")
    graph = imported(tmp_path / "g.pt", "--add-reverse")
    assert [each.name for each in graph.types.relations] == [
        "writes",
        "cites",
        "in",
        "rev_writes",
        "rev_cites",
        "rev_in",
    ]
    assert [each.reverse_of for each in graph.types.relations] == [None, None, None, 0, 1, 2]
    check_small(graph)


def test_several_splits(imported, tmp_path):
    found = stores()
    for name in SPLITS:
        mask = found["paper"][f"{name}_mask"]
        found["paper"][f"{name}_mask"] = torch.stack([mask.flip(0), mask], dim=1)
    torch.save(found, tmp_path / "g.pt")
    check_small(imported(tmp_path / "g.pt", "--split-index", 1))


def test_edge_data_and_times(imported, tmp_path):
    found = stores()
    for key, store in found.items():
        if isinstance(key, tuple):
            store["edge_attr"] = torch.arange(2 * store["edge_index"].shape[1]).reshape(-1, 2).float()
    found["paper"]["time"] = torch.arange(6) + 2000
    torch.save(found, tmp_path / "g.pt")
    graph = imported(tmp_path / "g.pt")
    assert graph.edge_data.features.shape == (graph.edges, 2)
    assert sorted(graph.time.tolist())[-6:] == list(range(2000, 2006))
    assert graph.time.min() == np.iinfo(np.int64).min


def test_refused_in_one_sentence(refused, tmp_path):
    path = tmp_path / "g.pt"
    found = stores()
    del found["author", "writes", "paper"]["edge_index"]
    found["author", "writes", "paper"]["adj_t"] = torch.ones(2)
    torch.save(found, path)
    assert "author:writes:paper has no edge_index, but adj_t" in refused(path)
    torch.save(stores() | {("a", "b"): {}}, path)
    assert "is neither a type of vertices nor a relation" in refused(path)
    found = stores()
    found["paper"]["x"] = torch.ones(7, 2)
    torch.save(found, path)
    assert "type paper" in refused(path)
    found = stores()
    found["paper"]["x"] = "no tensor"
    torch.save(found, path)
    assert "x must be a dense tensor" in refused(path)
    found = stores()
    found["author"]["y"] = torch.zeros(5, dtype=torch.long)
    torch.save(found, path)
    assert "choose one by --target author" in refused(path)
    torch.save((stores(), {"paper": {"x": torch.tensor([0, 3, 6])}}), path)
    assert "holds several graphs" in refused(path)
    assert "--split-index 2" in refused(saved("dict", path), "--split-index", 2)


def test_sparse_tensors_of_torch_sparse_are_refused(refused, tmp_path):
    found = stores()
    found["author", "writes", "paper"] = {"adj_t": torch.eye(3).to_sparse()}
    torch.save(found, tmp_path / "g.pt")
    assert "g.pt" in refused(tmp_path / "g.pt")
