"""What every partition method promises, on plain and on odd graphs."""

import importlib.util
import math

import numpy as np
import pytest

from data_prep.partitioning.methods.bgl import grow_blocks, members_by_block, merge_small
from data_prep.partitioning.partition_graph import METHODS, partition_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.errors import ConfigError, DataError
from tests.support.graphs import communities, from_edges, from_lists, random_graph
from tests.support.pairs import pairwise

N = 24
GRAPHS = {
    "isolated": from_lists([[]] * N),
    "star": from_edges(N, [(0, v) for v in range(1, N)]),
    "path": from_edges(N, [(v, v + 1) for v in range(N - 1)]),
    "two components": from_edges(N, [(v, v + 1) for v in range(N - 1) if v != N // 2 - 1]),
    "clique": from_edges(N, [(u, v) for u in range(N) for v in range(u)]),
    "one-way path": from_lists([[]] + [[v] for v in range(N - 1)]),
    "training": from_edges(N, [(v, v + 1) for v in range(N - 1)], split=(np.arange(N) < 6).astype(np.int8)),
}


STREAMING = ["ldg", "fennel", "reldg"]
NEEDS_KAMINPAR = pytest.mark.skipif(importlib.util.find_spec("kaminpar") is None, reason="kaminpar is not installed")
KAMINPAR = pytest.param("kaminpar", marks=NEEDS_KAMINPAR)
BALANCED = ["metis", "grem", KAMINPAR, "bgl", "pagraph", *STREAMING]
EVERY_PAIR = pairwise({
    "method": ("random", "contiguous", "metis", "grem", "kaminpar", "bgl", "pagraph", *STREAMING),
    "graph": tuple(GRAPHS),
    "parts": (1, 2, 3, 4, N - 1, N),
})  # fmt: skip
"""Every method on every graph, and both with every number of parts."""


@pytest.mark.parametrize("case", EVERY_PAIR, ids=lambda case: "-".join(map(str, case.values())))
def test_no_part_is_empty_and_sizes_are_balanced(case):
    method, name, parts = case.values()
    if method == "kaminpar" and not importlib.util.find_spec(method):
        pytest.skip("kaminpar is not installed")
    result = partition_graph(GRAPHS[name], PartitionRequest((parts,), method, seed=0))
    assert result.assignment.dtype == np.int32
    assert result.vertices.sum() == N
    assert result.vertices.min() >= 1
    assert result.vertices.max() <= max(-(-N // parts), 1.05 * N / parts)
    if method != "contiguous":
        assert result.training.max() <= max(-(-result.training.sum() // parts), 1.05 * result.training.sum() / parts)


@pytest.mark.parametrize("method", BALANCED)
@pytest.mark.parametrize("tolerance", [1.0, 1.01, 1.3])
def test_caps_are_kept_where_training_vertices_cluster(method, tolerance):
    graph = communities(403)
    graph.split = (np.arange(403) < 101).astype(np.int8)
    result = partition_graph(graph, PartitionRequest((5,), method, seed=1, tolerance=tolerance))
    assert result.vertices.max() <= max(81, tolerance * 403 / 5)
    assert result.training.max() <= max(21, tolerance * 101 / 5)


@pytest.mark.parametrize("method", BALANCED)
def test_neighbours_are_kept_together(method):
    graph = communities(800, groups=16)
    found = partition_graph(graph, PartitionRequest((4,), method, seed=0)).figures()["edge_cut"]
    assert found < 0.6 * partition_graph(graph, PartitionRequest((4,), "random", seed=0)).figures()["edge_cut"]


@pytest.mark.parametrize("method", STREAMING)
def test_chunks_do_not_change_what_is_streamed(method):
    whole = partition_graph(communities(), PartitionRequest((4,), method, seed=0, chunk=1.0)).assignment
    np.testing.assert_array_equal(
        whole, partition_graph(communities(), PartitionRequest((4,), method, seed=0, chunk=0.01)).assignment
    )


@pytest.mark.parametrize("method", STREAMING)
def test_a_mapped_graph_is_cut_as_one_in_memory(method, tmp_path):
    write_graph(tmp_path / "graph.h5", communities())
    mapped = partition_graph(
        open_graph(tmp_path / "graph.h5"), PartitionRequest((4,), method, seed=0, chunk=0.1)
    ).assignment
    np.testing.assert_array_equal(
        mapped, partition_graph(communities(), PartitionRequest((4,), method, seed=0)).assignment
    )


@pytest.mark.parametrize(("method", "alpha"), [("ldg", None), ("fennel", math.sqrt(4) / 2 / 60**1.5)])
def test_streaming_follows_the_published_score(method, alpha):
    """Against the formulas, vertex after vertex; where several parts are equally good, any of them may be taken."""
    random = np.random.default_rng(0)
    dense = np.triu(random.random((60, 60)) < 0.25, 1)
    dense |= dense.T
    heads, tails = np.nonzero(dense)
    graph = from_edges(60, zip(heads, tails, strict=True))
    alpha = alpha and alpha * graph.edges
    stream = Stream(graph, PartitionRequest((4,), tolerance=1.2))
    stream.sweep(-1.0 if alpha is None else alpha)
    for v in range(60):
        before = stream.part_of[:v]
        sizes = np.bincount(before, minlength=4)
        links = np.bincount(before[dense[v, :v]], minlength=4)
        score = links * (1 - sizes / 18) if alpha is None else links - alpha * 1.5 * np.sqrt(sizes)
        score[sizes >= 18] = -np.inf
        assert score[stream.part_of[v]] == pytest.approx(score.max())
        best = np.isclose(score, score.max())
        assert sizes[stream.part_of[v]] == sizes[best].min()


def test_restreaming_cuts_fewer_edges():
    graph = communities(800, groups=16)
    first, more = (
        partition_graph(graph, PartitionRequest((4,), method, seed=0)).figures()["edge_cut"]
        for method in ("ldg", "reldg")
    )
    assert more < 0.8 * first


def test_blocks_are_connected_bounded_and_merged():
    graph = communities()
    starts = np.random.default_rng(0).permutation(400)
    block_of = grow_blocks(graph.indptr, graph.indices, starts, 20, 20)
    sizes = np.bincount(block_of)
    assert sizes.max() <= 20
    head = np.repeat(np.arange(400), np.diff(graph.indptr))
    inside = block_of[head] == block_of[graph.indices]
    for block in range(len(sizes)):
        members = np.flatnonzero(block_of == block)
        reached = {members[0]}
        while True:
            more = set(graph.indices[inside & np.isin(head, list(reached))]) - reached
            if not more:
                break
            reached |= more
        assert len(reached) == len(members)
    members, bounds = members_by_block(block_of, len(sizes))
    order = np.argsort(sizes, kind="stable")
    into = merge_small(graph.indptr, graph.indices, block_of, members, bounds, order, 10, 40)
    merged = np.bincount(into, weights=sizes)
    assert merged.max() <= 40
    assert np.count_nonzero((merged > 0) & (merged < 10)) <= 1


def test_pagraph_keeps_training_vertices_that_share_neighbours_together():
    """Two hubs, each with leaves of its own that train: all leaves of a hub go to one part."""
    pairs = [(hub, leaf) for hub in (0, 1) for leaf in range(2 + hub, 22, 2)]
    split = np.r_[0, 0, np.ones(20)].astype(np.int8)
    part = partition_graph(
        from_edges(22, pairs, split=split), PartitionRequest((2,), "pagraph", seed=0, tolerance=1.0)
    ).assignment
    assert len(set(part[2::2])) == len(set(part[3::2])) == 1
    assert part[0] == part[2] != part[1] == part[3]


@pytest.mark.parametrize("name", GRAPHS)
def test_hash_uses_all_parts_or_is_refused(name):
    for parts in (1, 2, 3):
        assert partition_graph(GRAPHS[name], PartitionRequest((parts,), "hash", seed=0)).vertices.min() >= 1
    with pytest.raises(DataError, match=r"leaves part .* without vertices"):
        partition_graph(GRAPHS[name], PartitionRequest((N,), "hash", seed=0))


@pytest.mark.parametrize("method", ["hash", "random", "contiguous", *BALANCED])
def test_same_seed_same_cut(method):
    graph = communities()
    first = partition_graph(graph, PartitionRequest((5,), method, seed=3)).assignment
    np.testing.assert_array_equal(first, partition_graph(graph, PartitionRequest((5,), method, seed=3)).assignment)
    if method not in ("metis", "contiguous"):
        assert (first != partition_graph(graph, PartitionRequest((5,), method, seed=4)).assignment).any()


def test_hash_depends_on_the_original_id_only():
    graph = random_graph()
    every = from_lists([[]] * 180)
    whole = partition_graph(every, PartitionRequest((3,), "hash", seed=2)).assignment
    np.testing.assert_array_equal(
        partition_graph(graph, PartitionRequest((3,), "hash", seed=2)).assignment, whole[graph.original_id]
    )


def test_random_balances_training_vertices_to_one():
    result = partition_graph(communities(403), PartitionRequest((7,), "random", seed=0))
    assert np.ptp(result.vertices) <= 1
    assert np.ptp(result.training) <= 1


def test_figures_are_counted_from_the_edges():
    graph = random_graph()
    for method in set(METHODS.names()) - {"kaminpar", "given", "meta"}:
        result = partition_graph(graph, PartitionRequest((4,), method, seed=0))
        head = np.repeat(np.arange(60), np.diff(graph.indptr))
        crossing = result.assignment[head] != result.assignment[graph.indices]
        assert result.figures()["edge_cut"] == crossing.sum()
        assert result.figures()["edge_cut_share"] == crossing.mean()
        np.testing.assert_array_equal(result.edges, np.bincount(result.assignment[head], minlength=4))
        np.testing.assert_array_equal(result.edges_cut, np.bincount(result.assignment[head[crossing]], minlength=4))
        training = np.bincount(result.assignment[graph.split == 1], minlength=4)
        np.testing.assert_array_equal(result.training, training)


@pytest.mark.parametrize(
    ("parts", "method", "seed", "message"),
    [
        (61, "metis", 0, "--parts is 61, but the graph has only 60 vertices"),
        (0, "metis", 0, "--parts is 0"),
        (2, "metsi", 0, "did you mean 'metis'"),
        (2, "random", -1, "--seed is -1"),
    ],
)
def test_impossible_requests(parts, method, seed, message):
    with pytest.raises(ConfigError, match=message):
        partition_graph(random_graph(), PartitionRequest((parts,), method, seed))


@pytest.mark.skipif(importlib.util.find_spec("kaminpar") is not None, reason="kaminpar is installed")
def test_kaminpar_says_what_it_needs():
    with pytest.raises(ConfigError, match="pip install kaminpar"):
        partition_graph(random_graph(), PartitionRequest((2,), "kaminpar", seed=0))
