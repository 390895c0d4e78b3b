"""Import of graphs that networkx wrote, in each of its formats."""

import gzip
import json
import pickle

import numpy as np
import pytest

from tests.data_prep.conftest import neighbours
from tests.support.graphs import read_names

networkx = pytest.importorskip("networkx")

NAMES = ["ann", "bob", "eve", "dan"]


@pytest.fixture
def graph():
    """Four people in two groups, a path of weighted edges and one isolated vertex."""
    made = networkx.Graph()
    for name, group, age in zip(NAMES, ("a", "b", "a", "b"), (30, 41, 25, 60), strict=True):
        made.add_node(name, group=group, age=age, height=age / 100)
    made.add_edge("ann", "bob", weight=2.0)
    made.add_edge("bob", "eve", weight=0.5)
    return made


def write_node_link(graph, path):
    path.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))


def write_pickle(graph, path):
    graph.adj, graph.nodes, graph.edges, graph.degree  # views that are kept, and pickled  # noqa: B018
    path.write_bytes(pickle.dumps(graph))


WRITERS = {
    "g.graphml": networkx.write_graphml,
    "g.gexf": networkx.write_gexf,
    "g.gml": networkx.write_gml,
    "g.json": write_node_link,
    "g.gpickle": write_pickle,
    "g.pkl": write_pickle,
}


@pytest.mark.parametrize("name", WRITERS)
def test_attributes_become_features_labels_and_weights(imported, graph, tmp_path, name):
    WRITERS[name](graph, tmp_path / name)
    found = imported(tmp_path / name, "--label-column", "group")
    assert neighbours(found) == [[1], [0, 2], [1], []]
    assert read_names(tmp_path / "out.h5", found) == NAMES
    np.testing.assert_allclose(found.features, [[30, 0.3], [41, 0.41], [25, 0.25], [60, 0.6]])
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert json.loads(found.attributes["class_names"]) == ["a", "b"]
    assert found.edge_data.weight.tolist() == [2, 2, 0.5, 0.5]


@pytest.mark.parametrize("kind", [networkx.DiGraph, networkx.MultiDiGraph])
@pytest.mark.parametrize("name", WRITERS)
def test_directed_edges_stay_one_way(imported, graph, tmp_path, kind, name):
    made = kind(graph.subgraph(NAMES[:3]).edges)
    made.remove_edges_from([("bob", "ann"), ("eve", "bob")])
    WRITERS[name](made, tmp_path / name)
    found = imported(tmp_path / name, "--directed")
    names = read_names(tmp_path / "out.h5", found)
    edges = {(names[u], names[v]) for v, row in enumerate(neighbours(found)) for u in row}
    assert edges == {("ann", "bob"), ("bob", "eve")}


@pytest.mark.parametrize("name", ["g.adjlist", "g.multiline_adjlist", "g.edgelist", "g.adjlist.gz"])
def test_lists_of_neighbours(imported, tmp_path, name):
    made = networkx.path_graph(12)
    getattr(networkx, f"write_{name.split('.')[1]}")(made, tmp_path / name)
    found = imported(tmp_path / name)
    assert neighbours(found) == [sorted(made[vertex]) for vertex in range(12)]
    assert not (tmp_path / "out.names.txt").exists()


def test_whole_numbers_are_in_ascending_order(imported, tmp_path):
    made = networkx.Graph([(10, 2), (2, 7)])
    networkx.set_node_attributes(made, {10: 1.0, 2: 2.0, 7: 3.0}, "x")
    networkx.write_graphml(made, tmp_path / "g.graphml")
    found = imported(tmp_path / "g.graphml")
    assert read_names(tmp_path / "out.h5", found) == ["2", "7", "10"]
    assert found.features[:, 0].tolist() == [2, 3, 1]


def test_lists_of_numbers_are_features_and_masks_are_splits(imported, tmp_path):
    made = networkx.path_graph(3)
    for vertex in made:
        made.nodes[vertex].update(x=[vertex, 0.5], y=vertex % 2, train_mask=vertex == 0, test_mask=vertex == 2)
    write_node_link(made, tmp_path / "g.json")
    found = imported(tmp_path / "g.json")
    assert found.features.tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert found.split.tolist() == [1, 0, 3]
    assert found.labels.tolist() == [0, 1, 0]


def test_features_of_a_file(imported, graph, tmp_path):
    networkx.write_gml(graph, tmp_path / "g.gml")
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    found = imported(tmp_path / "g.gml", "--features", tmp_path / "x.npy")
    assert found.features.tolist() == np.eye(4).tolist()


def test_labels_that_repeat_in_gml_are_classes(imported, tmp_path):
    nodes = "".join(f'node [ id {vertex} label "{"xy"[vertex % 2]}" ]\n' for vertex in range(4))
    (tmp_path / "g.gml").write_text(f"graph [\n{nodes}edge [ source 0 target 3 ]\n]\n")
    found = imported(tmp_path / "g.gml")
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert neighbours(found) == [[3], [], [], [0]]


def test_a_pickle_runs_nothing(refused, tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    made = networkx.Graph([(0, 1)])
    made.nodes[0]["x"] = Evil()
    (tmp_path / "g.gpickle").write_bytes(pickle.dumps(made))
    said = refused(tmp_path / "g.gpickle")
    assert "g.gpickle: its pickle names builtins.print; only graphs of networkx" in said
    (tmp_path / "g.gpickle").write_bytes(pickle.dumps({"a": 1}))
    assert "holds a pickled dict, not a graph of networkx" in refused(tmp_path / "g.gpickle")


@pytest.mark.parametrize("name", [*WRITERS, "g.edgelist"])
def test_damage_is_one_sentence(refused, tmp_path, name):
    (tmp_path / name).write_text("<graph nodes directed links networkx.classes")
    assert name in refused(tmp_path / name)


def test_a_graph_without_edges(refused, tmp_path):
    networkx.write_graphml(networkx.empty_graph(3), tmp_path / "g.graphml")
    assert "g.graphml holds no edges" in refused(tmp_path / "g.graphml")


def test_without_networkx(refused, graph, tmp_path, monkeypatch):
    networkx.write_gexf(graph, tmp_path / "g.gexf")
    with gzip.open(tmp_path / "h.gpickle.gz", "wb") as file:
        pickle.dump(graph, file)
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    assert "g.gexf is read by networkx, which is not installed; pip install 'leapmpi[networkx]'" in refused(
        tmp_path / "g.gexf"
    )
