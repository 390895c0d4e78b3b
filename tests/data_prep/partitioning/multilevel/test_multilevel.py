"""The steps of multilevel partitioning, each against a plain reference, at any number of threads and size of chunk."""

import numpy as np
import pytest

from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.band import improve_band
from data_prep.partitioning.multilevel.blocks import workers
from data_prep.partitioning.multilevel.clustering import cluster
from data_prep.partitioning.multilevel.contraction import contract
from data_prep.partitioning.multilevel.draining import drain, place_isolated
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.initial_partition import estimated_cut, fill_by_degree
from data_prep.partitioning.multilevel.pair_table import PairTable
from data_prep.partitioning.multilevel.refinement import cut_weight, refine
from data_prep.partitioning.multilevel.undirected_stream import undirected_stream
from data_prep.partitioning.multilevel.weighted_graph import VertexWeights, WeightedGraph
from data_prep.partitioning.request import PartitionRequest, part_capacity
from data_prep.partitioning.undirected import Undirected
from leapmpi.dataset.graph_file import open_graph, write_graph
from tests.support.graphs import communities, from_edges, random_graph

pytestmark = pytest.mark.compiles

NONE = np.empty(0, np.int32)
GRAPH = communities(2000, groups=40)
TRAINING = (GRAPH.split == 1).astype(np.int32)


def stream_of(graph, chunk=1 << 16, training=NONE):
    return AdjacencyStream(graph.indptr, graph.indices, chunk, VertexWeights(NONE, training))


def in_memory(graph):
    return WeightedGraph(graph.indptr, graph.indices.view(np.uint32), NONE, VertexWeights(NONE, NONE))


def rows(stream):
    lists = []
    for chunk in stream.chunks():
        assert chunk.first == len(lists)
        bounds = zip(chunk.indptr, chunk.indptr[1:], strict=False)
        lists += [chunk.neighbours[begin:end].tolist() for begin, end in bounds]
    return lists


@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
def test_chunks_hold_every_row_in_memory_and_from_a_file(chunk, tmp_path):
    graph = random_graph()
    write_graph(tmp_path / "graph.h5", graph)
    expected = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(60)]
    for source in (graph, open_graph(tmp_path / "graph.h5")):
        assert rows(stream_of(source, chunk)) == expected
        np.testing.assert_array_equal(stream_of(source, chunk).degrees(), np.diff(graph.indptr))


def test_directed_edges_stream_both_ways():
    graph = random_graph()
    undirected = Undirected(graph)
    neighbours = np.empty(undirected.edges, np.int64)
    undirected.fill(neighbours)
    expected = [neighbours[undirected.indptr[v] : undirected.indptr[v + 1]].tolist() for v in range(60)]
    assert rows(undirected_stream(graph, 40, VertexWeights(NONE, NONE))) == expected


def test_symmetric_graphs_stream_from_where_they_are(monkeypatch):
    monkeypatch.setattr("data_prep.partitioning.multilevel.undirected_stream._both_ways", None)
    assert len(rows(undirected_stream(GRAPH, 1000, VertexWeights(NONE, NONE)))) == 2000


def test_clusters_keep_their_limits_whatever_the_threads():
    found = []
    for threads in (1, 2, 3):
        with workers(threads) as team:
            team._WORTHWHILE = 1
            stream = stream_of(GRAPH, training=TRAINING)
            label, count = cluster(stream, (60, 7), 1, team)
            found.append(label)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert count < 200
    assert np.bincount(label).min() > 0
    assert len(np.bincount(label)) == count
    assert np.bincount(label).max() <= 60
    assert np.bincount(label, TRAINING).max() <= 7


def test_leaves_of_a_full_hub_join_each_other():
    star = from_edges(300, [(0, v) for v in range(1, 300)])
    with workers(1) as team:
        label, count = cluster(stream_of(star), (10, 10), 0, team)
    assert count < 80
    assert np.bincount(label).max() <= 10


@pytest.mark.parametrize("threads", [1, 2])
def test_a_contracted_graph_has_the_summed_edges(threads):
    label = np.random.default_rng(0).integers(0, 30, 2000).astype(np.int32)
    expected = np.zeros((30, 30), np.int64)
    heads = np.repeat(np.arange(2000), np.diff(GRAPH.indptr))
    np.add.at(expected, (label[heads], label[GRAPH.indices]), 1)
    np.fill_diagonal(expected, 0)
    with workers(threads) as team:
        team._WORTHWHILE = 1
        small = contract(stream_of(GRAPH, 500, TRAINING), label, 30, 1000, 0, team)
    dense = np.zeros((30, 30), np.int64)
    dense[np.repeat(np.arange(30), np.diff(small.indptr)), small.neighbours] = small.weights
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(small.vertex_weights.size, np.bincount(label))
    np.testing.assert_array_equal(small.vertex_weights.training, np.bincount(label, TRAINING))


def test_a_sample_of_too_many_pairs_depends_on_no_number_of_threads():
    label = np.random.default_rng(0).integers(0, 1000, 2000).astype(np.int32)
    found = []
    for threads in (1, 2, 3):
        with workers(threads) as team:
            team._WORTHWHILE = 1
            found.append(contract(stream_of(GRAPH), label, 1000, 300, 0, team))
    assert 0 < len(found[0].neighbours) <= 600
    for other in found[1:]:
        np.testing.assert_array_equal(other.neighbours, found[0].neighbours)
        np.testing.assert_array_equal(other.weights, found[0].weights)


def test_a_bounded_table_of_pairs_samples_by_weight():
    weights = np.where(np.arange(4000) < 40, 1000, 1).astype(np.int32)
    table = PairTable(most=600, expected=100, seed=3)
    table.add(np.arange(4000), weights)
    keys, sums = table.pairs()
    assert len(keys) <= 600
    assert set(range(40)) <= set(keys.tolist())
    scale = 2**table.halvings
    assert scale >= 8
    np.testing.assert_allclose(sums[np.isin(keys, np.arange(40))] * scale, 1000, atol=scale)


def random_parts(n, parts):
    return (np.random.default_rng(0).permutation(n) % parts).astype(np.int32)


def noisy_parts(parts):
    """Equal runs of the ring of communities, a quarter of their vertices dealt out anew."""
    assignment = (np.arange(2000) * parts // 2000).astype(np.int32)
    moved = np.random.default_rng(0).choice(2000, 500, replace=False)
    assignment[np.sort(moved)] = assignment[moved]
    return assignment


def crossing(graph, assignment):
    heads = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return int((assignment[heads] != assignment[graph.indices]).sum())


def test_refinement_cuts_less_keeps_caps_whatever_the_threads():
    caps = part_capacity(TRAINING, PartitionRequest((5,), tolerance=1.02))
    found = []
    for threads in (1, 2):
        with workers(threads) as team:
            team._WORTHWHILE = 1
            assignment = noisy_parts(5)
            refine(stream_of(GRAPH, 3000, TRAINING), assignment, caps, 6, 0, team)
            found.append(assignment)
    np.testing.assert_array_equal(*found)
    assert crossing(GRAPH, found[0]) < 0.7 * crossing(GRAPH, noisy_parts(5))
    assert cut_weight(stream_of(GRAPH), found[0]) == crossing(GRAPH, found[0])
    sizes, trainings = loads(found[0], VertexWeights(NONE, TRAINING), 5)
    assert sizes.max() <= caps.size
    assert trainings.max() <= max(caps.training, np.bincount(noisy_parts(5), TRAINING).max())


def test_full_parts_exchange_vertices():
    pairs = [(u, v) for side in (0, 4) for u in range(side, side + 4) for v in range(side, u)]
    assignment = np.array([0, 0, 0, 1, 0, 1, 1, 1], np.int32)
    with workers(1) as team:
        refine(stream_of(from_edges(8, pairs)), assignment, Caps(2, 4, 0), 4, 0, team)
    assert assignment.tolist() == [0] * 4 + [1] * 4


def test_fiduccia_mattheyses_finds_the_cut_of_a_ladder_and_mends_what_is_too_full():
    ladder = from_edges(80, [(v, v + 2) for v in range(78)] + [(v, v + 1) for v in range(0, 80, 2)])
    assignment = random_parts(80, 2)
    assignment[:50] = 0
    improve(in_memory(ladder), assignment, Caps(2, 42, 0))
    assert np.bincount(assignment).max() <= 42
    assert crossing(ladder, assignment) < 0.25 * crossing(ladder, random_parts(80, 2))


def test_fixed_vertices_stay():
    assignment = random_parts(2000, 2)
    before = assignment.copy()
    improve(in_memory(GRAPH), assignment, Caps(2, 1050, 0), fixed=1500)
    np.testing.assert_array_equal(assignment[500:], before[500:])
    assert crossing(GRAPH, assignment) < crossing(GRAPH, before)


def test_the_band_improves_a_crooked_boundary():
    side = 40
    ids = np.arange(side * side).reshape(side, side)
    ways = ((ids[:, 1:], ids[:, :-1]), (ids[1:], ids[:-1]))
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in ways])
    mesh = from_edges(side * side, pairs.tolist())
    noise = np.random.default_rng(0).integers(-1, 2, side)
    assignment = (np.arange(side)[None, :] >= side // 2 + noise[:, None]).astype(np.int32).ravel()
    before = crossing(mesh, assignment)
    stream = stream_of(mesh, 500)
    improve_band(stream, assignment, Caps(2, 820, 0), most_entries=4000)
    assert crossing(mesh, assignment) < 0.8 * before
    assert np.bincount(assignment).max() <= 820


@pytest.mark.parametrize("parts", [3, 7])
def test_draining_keeps_both_caps(parts):
    training = (np.arange(2000) < 300).astype(np.int32)
    caps = part_capacity(training, PartitionRequest((parts,), tolerance=1.0))
    assignment = np.where(np.arange(2000) < 1500, 0, parts - 1).astype(np.int32)
    drain(stream_of(GRAPH, 1000, training), assignment, caps)
    assert np.bincount(assignment).max() <= caps.size
    assert np.bincount(assignment, training).max() <= caps.training


def test_isolated_vertices_fill_the_emptiest_parts():
    assignment = np.array([0, 0, 0, 1, -1, -1, -1, -1], np.int32)
    training = np.array([1, 0, 0, 0, 1, 1, 0, 0], np.int32)
    place_isolated(assignment, training, Caps(3, 3, 1))
    assert sorted(np.bincount(assignment, minlength=3)) == [2, 3, 3]
    assert np.bincount(assignment, training, 3).tolist() == [1, 1, 1]


def test_filling_by_degree_keeps_hubs_together():
    degrees = np.array([0, 50, 40, 3, 2, 1, 60, 0], np.int32)
    assignment = fill_by_degree(degrees, NONE, Caps(2, 4, 0))
    assert assignment.tolist() == [-1, 0, 0, 0, 1, 1, 0, -1]
    assert estimated_cut(degrees, Caps(2, 4, 0)) == pytest.approx(1 - (153 / 156) ** 2 - (3 / 156) ** 2)
