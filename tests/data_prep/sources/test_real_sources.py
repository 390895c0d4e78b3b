"""Import of real graphs: the counts that were published or taken from the files by other means."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from leapmpi.dataset.graph_file import open_graph


class Known(NamedTuple):
    """What is known of a graph; edges are undirected, without self-loops."""

    folder: str
    vertices: int
    edges: int
    components: int
    largest: int
    features: int
    classes: int
    unlabelled: int
    sizes: tuple[int, int, int]


GRAPHS = [
    Known("planetoid-cora", 2708, 5278, 78, 2485, 1433, 7, 0, (140, 500, 1000)),
    Known("planetoid-citeseer", 3327, 4552, 438, 2120, 3703, 6, 15, (120, 500, 1000)),
    Known("gnnbench-cora", 2708, 5278, 78, 2485, 1433, 7, 0, (0, 0, 0)),
    Known("graphdata-amazon_photo", 7650, 119081, 136, 7487, 745, 8, 0, (160, 240, 7087)),
    Known("graphdata-coauthor_cs", 18333, 81894, 1, 18333, 6805, 15, 0, (300, 450, 17583)),
    Known("heterophilous-actor", 7600, 26659, 1, 7600, 932, 5, 0, (3648, 2432, 1520)),
    Known("heterophilous-tolokers", 11758, 519000, 1, 11758, 10, 2, 0, (5879, 2939, 2940)),
    Known("paperscape-1991-1996/derived", 49264, 145155, 17704, 30460, 128, 22, 492, (20343, 12847, 15582)),
]


@pytest.mark.parametrize("known", GRAPHS, ids=lambda known: known.folder.split("/")[0])
def test_counts(prep, real_graph, tmp_path, known):
    outcome = prep("import", real_graph(known.folder), tmp_path / "g.h5")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert graph.vertices == known.vertices
    assert graph.edges == 2 * known.edges
    assert graph.features.shape == (known.vertices, known.features)
    assert graph.classes == known.classes
    assert int((graph.labels < 0).sum()) == known.unlabelled
    assert f"  components          {known.components:>15,}  largest {known.largest:,} vertices" in outcome.out
    if any(known.sizes):
        assert tuple(np.bincount(graph.split, minlength=4)[1:]) == known.sizes
    else:
        assert graph.split is None


def test_both_copies_of_cora_agree(prep, real_graph, tmp_path):
    degrees = []
    for name in ("planetoid-cora", "gnnbench-cora"):
        assert prep("import", real_graph(name), tmp_path / f"{name}.h5").code == 0
        graph = open_graph(tmp_path / f"{name}.h5")
        degrees.append(np.sort(np.diff(graph.indptr)).tolist())
        assert len(graph.features.data) == 49216
    assert degrees[0] == degrees[1]


def test_shchur_protocol(prep, real_graph, tmp_path):
    source = real_graph("graphdata-amazon_photo")
    for splits in ("per-class:20,30", source / "split"):
        arguments = ("--splits", splits, "--largest-component", "--overwrite")
        assert prep("import", source, tmp_path / "g.h5", *arguments).code == 0
        graph = open_graph(tmp_path / "g.h5")
        assert graph.vertices == 7487
        assert np.bincount(graph.split).tolist() == [0, 160, 240, 7087]


def test_ten_splits(prep, real_graph, tmp_path):
    codes = []
    for index in range(10):
        arguments = ("--split-index", index, "--overwrite")
        assert prep("import", real_graph("heterophilous-actor"), tmp_path / "g.h5", *arguments).code == 0
        codes.append(np.array(open_graph(tmp_path / "g.h5").split))
    assert len({code.tobytes() for code in codes}) == 10


def test_musae(prep, real_graph, tmp_path):
    source = real_graph("musae-facebook")
    outcome = prep("import", source, tmp_path / "g.h5", "--splits", source / "split", "--feature-dtype", "float16")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert (graph.vertices, graph.edges, graph.classes) == (22470, 2 * 170823, 4)
    assert graph.features.shape == (22470, 4714)
    assert len(graph.features.data) == 314_583
    assert json.loads(graph.attributes["class_names"]) == ["company", "government", "politician", "tvshow"]
    assert np.bincount(graph.split).tolist() == [0, 13482, 4494, 4494]
    # Edge homophily as published beside the data.
    other = np.repeat(graph.labels, np.diff(graph.indptr))
    assert round(float((graph.labels[graph.indices] == other).mean()), 3) == 0.885


def test_nell_with_columns_of_its_own_for_each_relation(prep, real_graph, tmp_path):
    outcome = prep("import", real_graph("planetoid-nell"), tmp_path / "g.h5", "--missing-features", "one-hot")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert graph.features.shape == (65755, 61278)
    lonely = np.diff(graph.features.indptr) == 1
    own = graph.features.indices[graph.features.indptr[:-1][lonely]]
    assert np.array_equal(np.sort(own[own >= 5414]), np.arange(5414, 61278))
    assert (tmp_path / "g.h5").stat().st_size < 10_000_000


def test_blogcatalog(prep, real_graph, tmp_path):
    outcome = prep("import", real_graph("deepwalk-blogcatalog"), tmp_path / "g.h5", "--features", "identity-hash:16")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert (graph.vertices, graph.edges, graph.classes) == (10312, 667966, 39)
    assert int(np.diff(graph.indptr).max()) == 3992
    assert graph.multilabel
    assert round(float(graph.labels.sum() / graph.vertices), 1) == 1.4


STRUCTURES = [
    ("webgraph-cnr-2000", 325557, 2738969, 1, 325557, 18236, 0),
    ("metis-4elt", 15606, 45878, 1, 15606, 10, 0),
    ("metis-rgg15", 32768, 160240, 6, 32759, 24, 2),
]


@pytest.mark.parametrize("known", STRUCTURES, ids=lambda known: known[0])
def test_structures(prep, real_graph, tmp_path, known):
    folder, vertices, edges, components, largest, degree, isolated = known
    outcome = prep("import", real_graph(folder), tmp_path / "g.h5", "--features", "degree")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert (graph.vertices, graph.edges) == (vertices, 2 * edges)
    assert int(graph.features.max()) == int(np.diff(graph.indptr).max()) == degree
    assert f"components          {components:>15,}  largest {largest:,} vertices; {isolated} isolated" in outcome.out


def test_edge_list_with_header(prep, real_graph, tmp_path):
    source = real_graph("musae-facebook")
    outcome = prep("import", source / "edges.csv", tmp_path / "g.h5", "--splits", source / "split")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    assert (graph.vertices, graph.edges) == (22470, 2 * 170823)
    assert "taken as a header" in outcome.out


def test_truncated_copy_is_refused(refused, real_graph, tmp_path):
    whole = (real_graph("graphdata-amazon_photo") / "amazon_photo.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    assert "cut.npz is truncated" in refused(tmp_path / "cut.npz")
