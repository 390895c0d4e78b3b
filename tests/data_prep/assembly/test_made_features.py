"""Features made for vertices without any, and how the graph file names them."""

import numpy as np
import pytest

from leapmpi.dataset.graph_file import open_graph


@pytest.fixture
def imported_edges(imported, tmp_path):
    def run(*arguments):
        (tmp_path / "g.csv").write_text("".join(f"{v},{(v * v + 1) % 500}\n0,{v}\n" for v in range(500)))
        graph = imported(tmp_path / "g.csv", *arguments)
        return graph, graph.table

    return run


def test_random(imported_edges):
    graph, out = imported_edges("--features", "random:16", "--seed", 3)
    again, _ = imported_edges("--features", "random:16", "--seed", 3)
    other, _ = imported_edges("--features", "random:16", "--seed", 4)
    np.testing.assert_array_equal(graph.features, again.features)
    assert (graph.features != other.features).all()
    assert abs(graph.features.mean()) < 0.05
    assert abs(graph.features.std() - 1) < 0.05
    assert (graph.attributes["feature_origin"], graph.attributes["feature_seed"]) == ("random:16", 3)
    assert "16  float32, normalised: none, from random:16" in out


def test_degree(imported_edges):
    graph, _ = imported_edges("--features", "degree")
    np.testing.assert_array_equal(graph.features[:, 0], np.diff(graph.indptr))
    assert graph.attributes["feature_origin"] == "degree"


def test_identity_hash(imported_edges):
    graph, _ = imported_edges("--features", "identity-hash:64", "--feature-dtype", "float16")
    assert graph.features.dtype == np.float16
    features = graph.features.dense()
    assert (np.abs(features).sum(axis=1) == 1).all()
    assert set(np.unique(features)) == {-1, 0, 1}
    # 500 vertices in 64 columns: no column is empty, none has a great part of them.
    used = np.abs(features.astype(int)).sum(axis=0)
    assert used.min() >= 1
    assert used.max() <= 24
    assert abs(features.astype(int).sum()) < 100


def test_vertices_keep_their_features_in_the_largest_component(prep, tmp_path):
    (tmp_path / "g.csv").write_text("0,1\n2,3\n3,4\n")
    for name, arguments in (("all", ()), ("part", ("--largest-component",))):
        prep("import", tmp_path / "g.csv", tmp_path / f"{name}.h5", "--features", "random:4", *arguments)
    every, part = (open_graph(tmp_path / f"{name}.h5") for name in ("all", "part"))
    np.testing.assert_array_equal(part.features, every.features[2:])


def test_origin_of_other_features(imported_edges, tmp_path, prep, small):
    assert imported_edges()[0].attributes["feature_origin"] == "none"
    np.savez(tmp_path / "g.npz", **small.arrays())
    prep("import", tmp_path / "g.npz", tmp_path / "s.h5")
    assert open_graph(tmp_path / "s.h5").attributes["feature_origin"] == "source"


def test_refused(refused, tmp_path, small):
    np.savez(tmp_path / "g.npz", **small.arrays())
    assert "brings features; leave the flag out" in refused(tmp_path / "g.npz", "--features", "degree")
    for rule in ("random", "random:", "random:0", "random:-1", "random:x", "identity-hash:1.5", "random:9999999"):
        assert "expected a number of columns from 1 to 1,000,000" in refused(tmp_path / "g.npz", "--features", rule)
    assert "degree is one column" in refused(tmp_path / "g.npz", "--features", "degree:3")
    assert "randm:4 does not exist" in refused(tmp_path / "g.npz", "--features", "randm:4")
