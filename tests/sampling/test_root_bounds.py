"""Draws that each root bounds by its own time: none is later, and a root's sample is the same in any batch."""

from dataclasses import replace

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.root_bounds import intervals
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers.temporal import Options, Temporal
from leapmpi.system.counter_rng import TRAIN, DrawKey

KEY = DrawKey(TRAIN, 3, 1, 2)


def timed_topology(vertices=60, degree=12, latest=40, seed=0):
    """A random graph with times of edges and of vertices, of few different values."""
    random = np.random.default_rng(seed)
    lists = [np.sort(random.choice(vertices, random.integers(0, degree), replace=False)) for _ in range(vertices)]
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Topology(
        indptr,
        np.concatenate(lists).astype(np.int32),
        original_id=np.arange(vertices),
        edge_time=random.integers(0, latest, indptr[-1]),
        vertex_time=random.integers(0, latest, vertices),
    )


def sampler_of(topology, fanouts, **options):
    return Temporal(Setup(topology, fanouts, np.arange(topology.vertices), 0), Options(bound="root", **options))


def edges_by_bound(blocks):
    """By hop the drawn edges: bound, source, destination."""
    found = []
    for block in blocks:
        destination = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
        assert (block.bound[block.indices] == block.bound[destination]).all()
        found.append(set(zip(block.bound[destination], block.neighbours, block.src[destination], strict=True)))
    return found


def time_of(topology):
    """The time of each edge by its ends."""
    destination = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    return dict(zip(zip(topology.indices, destination, strict=True), topology.edge_time, strict=True))


@pytest.mark.parametrize("options", [{}, {"draw": "latest"}, {"window": 9}, {"same_time": "yes"}], ids=str)
def test_whole_lists_are_those_of_the_rule(options):
    topology = timed_topology()
    roots = np.random.default_rng(1).permutation(60)[:25]
    times, window = time_of(topology), options.get("window", np.inf)
    later = options.get("same_time") == "yes"
    expected = [set(), set()]
    reached = {(int(topology.vertex_time[v]), int(v)) for v in roots}
    for hop in range(2):
        for bound, v in sorted(reached):
            for u in topology.indices[topology.indptr[v] : topology.indptr[v + 1]].tolist():
                if bound - window <= times[u, v] < bound + later:
                    expected[hop].add((bound, u, v))
        reached |= {(bound, u) for bound, u, _ in expected[hop]}
    assert edges_by_bound(sampler_of(topology, (-1, -1), **options).sample(KEY, roots)) == expected


def test_a_root_draws_the_same_in_any_batch():
    topology = timed_topology()
    roots = np.arange(40)
    sampler = sampler_of(topology, (3, 2))
    together = edges_by_bound(sampler.sample(KEY, roots, np.arange(60)))
    # What a single root draws is drawn for it in the batch, at its bound.
    alone = [edges_by_bound(sampler.sample(KEY, np.array([root]))) for root in roots]
    assert [set.union(*(each[hop] for each in alone)) for hop in range(2)] == together


@pytest.mark.parametrize("options", [{}, {"draw": "latest"}, {"window": 9}, {"draw": "latest", "window": 4}], ids=str)
def test_lists_in_the_order_of_times_draw_the_same(options):
    topology = timed_topology(vertices=90, degree=60, latest=20)
    times = topology.edge_time.copy()
    for v in range(0, 90, 2):
        times[topology.indptr[v] : topology.indptr[v + 1]].sort()
    topology = replace(topology, edge_time=times)
    searched, read = (sampler_of(topology, (20, 3), **options) for _ in range(2))
    assert searched._ascending[1][topology.indptr[:-1:2][np.diff(topology.indptr)[::2] > 0]].all()
    read._ascending = (None, np.empty(0, bool))
    for found, expected in zip(*(each.sample(KEY, np.arange(90)) for each in (searched, read)), strict=True):
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.neighbours, expected.neighbours)


def test_owners_draw_again_what_the_sample_drew():
    sampler = sampler_of(timed_topology(), (3, 2))
    block = sampler.sample(KEY, np.arange(40))[1]
    again = sampler.bounded_neighbours(KEY, 1, block.dst, block.bound[: block.n_dst])
    np.testing.assert_array_equal(again.indptr, block.indptr)
    np.testing.assert_array_equal(again.neighbours, block.neighbours)


def test_the_key_of_a_draw_holds_the_bound():
    topology = timed_topology(latest=1)
    # All edges are older than both times, so that only the key can differ.
    sampler = sampler_of(replace(topology, vertex_time=np.where(np.arange(60) < 30, 100, 200)), (2,))
    dst = np.tile(np.arange(60), 2)
    again = sampler.bounded_neighbours(KEY, 0, dst, np.repeat([100, 200], 60))
    half = again.indptr[60]
    assert (np.diff(again.indptr)[:60] == np.diff(again.indptr)[60:]).all()
    assert (again.neighbours[:half] != again.neighbours[half:]).any()


def test_no_draw_is_later_than_its_root():
    """Ten million draws."""
    vertices, degree = 20_000, 40
    random = np.random.default_rng(0)
    indices = np.sort(random.integers(0, vertices, (vertices, degree)), axis=1)
    indices += np.arange(degree)  # no vertex stands twice in a list
    topology = Topology(
        np.arange(vertices + 1) * degree,
        np.minimum(indices, vertices - 1).reshape(-1).astype(np.int32),
        original_id=np.arange(vertices),
        edge_time=random.integers(0, 10**9, vertices * degree),
        vertex_time=random.integers(0, 10**9, vertices),
    )
    sampler, draws = sampler_of(topology, (20, 10)), 0
    # Each edge has its own time, by which a drawn one is found again.
    times = {}
    for epoch in range(5):
        for block in sampler.sample(DrawKey(TRAIN, 3, epoch, 0), np.arange(vertices)):
            destination = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
            v, u, bound = block.src[destination], block.neighbours, block.bound[destination]
            if not times:
                of_edge = np.repeat(np.arange(vertices), degree) * vertices + topology.indices
                order = np.lexsort((topology.edge_time, of_edge))
                first = np.unique(of_edge[order], return_index=True)
                times = {"edge": first[0], "time": topology.edge_time[order][first[1]]}
            earliest = times["time"][np.searchsorted(times["edge"], v * vertices + u)]
            assert (earliest < bound).all()
            draws += block.edges
    assert draws > 10**7


def test_intervals_at_the_ends_of_integers():
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    low, high = intervals(np.array([least, least + 1, 5, most]), 10.0, strict=True)
    assert low[0] > high[0]
    assert low[1:].tolist() == [least, -5, most - 10]
    assert high[1:].tolist() == [least, 4, most - 1]
    low, high = intervals(np.array([1.0, np.inf]), 0.0, strict=True)
    assert low.tolist() == [-np.inf, -np.inf]
    assert high[0] < 1.0
