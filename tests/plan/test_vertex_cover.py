"""Covers of remote edges by rows and shares: every edge is served, by as few of them as any cover has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from leapmpi.plan.vertex_cover import cover


def edge_lists(edges, pairs):
    """indptr and sources of `edges`, a set of (pair, source)."""
    ordered = sorted(edges)
    counts = np.bincount([pair for pair, _ in ordered], minlength=pairs)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), np.array([s for _, s in ordered], np.int64)


def all_served(indptr, sources, pair_in, source_in):
    of_edge = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return bool((pair_in[of_edge] | source_in[sources]).all())


def least(indptr, sources, pairs, count):
    """The size of a maximum matching, which is that of a minimum cover (Koenig)."""
    matrix = csr_array((np.ones(len(sources)), sources, indptr), shape=(pairs, count))
    return int((maximum_bipartite_matching(matrix, perm_type="column") >= 0).sum())


graphs = st.integers(1, 12).flatmap(
    lambda pairs: st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.just(pairs),
            st.just(count),
            st.sets(st.tuples(st.integers(0, pairs - 1), st.integers(0, count - 1)), max_size=40),
        )
    )
)


@given(graphs)
def test_an_exact_cover_is_as_small_as_a_maximum_matching(graph):
    pairs, count, edges = graph
    indptr, sources = edge_lists(edges, pairs)
    pair_in, source_in = cover(indptr, sources, count)
    assert all_served(indptr, sources, pair_in, source_in)
    assert pair_in.sum() + source_in.sum() == least(indptr, sources, pairs, count)


@given(graphs, st.lists(st.booleans(), min_size=12, max_size=12), st.booleans())
def test_forced_pairs_are_served_by_shares_and_edges_that_are_left_by_the_fewest(graph, forced, exact):
    pairs, count, edges = graph
    indptr, sources = edge_lists(edges, pairs)
    forced = np.array(forced[:pairs])
    pair_in, source_in = cover(indptr, sources, count, forced, None if exact else np.zeros(pairs, np.int64))
    assert all_served(indptr, sources, pair_in, source_in)
    assert pair_in[forced].all()
    left = edge_lists({(pair, source) for pair, source in edges if not forced[pair]}, pairs)
    bound = forced.sum() + least(*left, pairs, count)
    assert pair_in.sum() + source_in.sum() >= bound
    if exact:
        assert pair_in.sum() + source_in.sum() == bound
    else:
        rows, shares = len(np.unique(left[1])), (np.diff(left[0]) > 0).sum()
        assert pair_in.sum() + source_in.sum() <= forced.sum() + min(rows, shares)


@pytest.mark.parametrize("exact", [False, True])
def test_a_source_that_a_pair_names_twice_is_one_edge_to_be_served(exact):
    indptr, sources = np.array([0, 2, 4]), np.array([0, 0, 0, 1])
    pair_in, source_in = cover(indptr, sources, 2, owners=None if exact else np.zeros(2, np.int64))
    assert all_served(indptr, sources, pair_in, source_in)
    assert pair_in.sum() + source_in.sum() <= 2


def test_each_owner_takes_the_smaller_side_of_its_core():
    # Owner 0: two destinations read the same three sources; owner 1: three destinations read the same two.
    edges = {(pair, source) for pair in (0, 1) for source in (0, 1, 2)}
    edges |= {(pair, source) for pair in (2, 3, 4) for source in (3, 4)}
    indptr, sources = edge_lists(edges, 5)
    pair_in, source_in = cover(indptr, sources, 5, owners=np.array([0, 0, 1, 1, 1]))
    assert pair_in.tolist() == [True, True, False, False, False]
    assert source_in.tolist() == [False, False, False, True, True]


def test_large_sparse_graphs_are_covered_as_well_as_a_matching_allows():
    random = np.random.default_rng(0)
    edges = {(int(pair), int(source)) for pair, source in random.integers(0, [3000, 2500], (6000, 2))}
    indptr, sources = edge_lists(edges, 3000)
    pair_in, source_in = cover(indptr, sources, 2500)
    assert all_served(indptr, sources, pair_in, source_in)
    assert pair_in.sum() + source_in.sum() == least(indptr, sources, 3000, 2500)
