"""Edges as roots of a sharded topology: order, negatives and draws that leave edges out are those of a whole one."""

from dataclasses import replace

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.candidates import Candidates
from leapmpi.sampling.negative_sampler import NEGATIVES
from leapmpi.sampling.sharded.answer_format import answer_format
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.shared_candidates import SharedCandidates
from leapmpi.sampling.sharded.shared_edges import SharedEdges, gathered
from leapmpi.sampling.sharded.shared_order import ascending, own_counts, values_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import TrainingEdges
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.sampling.sharded.test_remote_lists import OFFSETS, VERTICES, cut, same
from tests.sampling.test_edges import of_pairs, pairs_of
from tests.support import kinds, twin
from tests.support.thread_ranks import on_ranks

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 7, 1, 2)


@pytest.fixture(scope="module")
def whole() -> Topology:
    """A symmetric topology with hubs, whose original ids have gaps."""
    topology = twin.random_topology(vertices=VERTICES, edges=400, seed=5, hubs=4.0)
    found = of_pairs(pairs_of(topology), 3 * topology.original_id + 1, both_ways=True)
    return replace(found, edge_label=np.random.default_rng(1).integers(-1, 3, found.edges).astype(np.int32))


def shard_of(rank, topology: Topology, offsets: list[int]) -> TopologyShard:
    first, end = offsets[rank.rank : rank.rank + 2]
    shard = cut(topology, first, end, named=True)
    labels = topology.edge_label
    own = labels if labels is None else labels[topology.indptr[first] : topology.indptr[end]]
    return replace(shard, own=replace(shard.own, edge_label=own))


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_smallest_keys_of_all_ranks_are_counted_on_each(ranks):
    rng = np.random.default_rng(ranks)
    # Some keys recur, on one rank and on several; one rank has none.
    keys = [np.sort(rng.integers(0, 40, 50 * (rank != 1)).astype(np.uint64) << np.uint64(58)) for rank in range(ranks)]
    every = np.concatenate(keys)
    order, home = np.argsort(every, kind="stable"), np.repeat(np.arange(ranks), [len(each) for each in keys])
    wanted = np.array([0, 1, 17, len(every) // 2, len(every)])
    found = on_ranks(ranks, lambda rank: own_counts([keys[rank.rank]], wanted, rank))
    for rank in range(ranks):
        assert found[rank].tolist() == [(home[order[:count]] == rank).sum() for count in wanted]


def test_words_are_ordered_as_times_are():
    for values in (
        np.array([-(2**63), -5, 0, 3, 2**63 - 1]),
        np.array([-np.inf, -2.5, -1e-300, 0.0, 1e-300, 7.0, np.inf]),
    ):
        words = ascending(values)
        assert (np.diff(words.astype(object)) > 0).all()
        np.testing.assert_array_equal(values_of(words, values.dtype), values)
    assert len(np.unique(ascending(np.array([-0.0, 0.0])))) == 1


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_batches_by_time_are_those_of_a_whole_topology(kind, ranks, whole):
    # Many edges of one time, so that hashes decide.
    time = np.random.default_rng(4).integers(-3, 4, whole.edges).astype(kind)
    topology = replace(whole, edge_time=time, edge_label=None)
    wanted = TrainingEdges(topology, True).batches(3, 1, 64, time=time)

    def work(rank):
        shard = shard_of(rank, topology, OFFSETS[ranks])
        edges = SharedEdges(shard, True, rank)
        edges.count()
        found = []
        for share in edges.batches(3, 1, 64, time=shard.own.edge_time):
            counts = rank.all_gather_rows(np.array([len(share)]))[:, 0]
            found.append(gathered(share, counts, shard.own, rank))
        return found

    for found in on_ranks(ranks, work):
        for got, ends in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got.ends, ends)
            numbers = [np.flatnonzero((pairs_of(whole) == each).all(axis=1))[0] for each in ends]
            np.testing.assert_array_equal(got.times, time[numbers])


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize(("both_ways", "labels"), [(True, False), (False, True)])
def test_batches_are_those_of_a_whole_topology_with_what_it_says_of_their_edges(both_ways, labels, ranks, whole):
    topology = whole if labels else replace(whole, edge_label=None)
    plain = TrainingEdges(topology, both_ways)
    wanted = plain.batches(3, 1, 64)

    def work(rank):
        edges = SharedEdges(shard_of(rank, topology, OFFSETS[ranks]), both_ways, rank)
        edges.count()
        shares, found = edges.batches(3, 1, 64), []
        for share in shares:
            counts = rank.all_gather_rows(np.array([len(share)]))[:, 0]
            found.append(gathered(share, counts, edges.topology, rank))
        with pytest.raises(IndexError):
            shares[len(shares)]
        return len(edges), found

    for count, found in on_ranks(ranks, work):
        assert (count, len(found)) == (len(plain), len(wanted))
        for got, ends in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got.ends, ends)
            np.testing.assert_array_equal(got.names, whole.original_id[ends])
            if labels:
                numbers = [np.flatnonzero((pairs_of(whole) == each).all(axis=1))[0] for each in ends]
                np.testing.assert_array_equal(got.labels, whole.edge_label[numbers])
            else:
                assert got.labels is None


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("name", NEGATIVES.names())
def test_negatives_are_those_of_a_whole_topology(name, ranks, whole):
    kind, offsets = NEGATIVES.load(name).sampler, np.array(OFFSETS[ranks])
    ends = TrainingEdges(whole, True).batches(3, 0, 60)[0]
    whole_draws = kind(Candidates(whole))
    wanted = whole_draws.draw_shared(KEY, 3) if kind.shared else whole_draws.draw(KEY, ends, 3)

    def work(rank):
        shared = SharedCandidates(shard_of(rank, whole, OFFSETS[ranks]), rank, offsets)
        if kind.shared:
            return kind(shared).draw_shared(KEY, 3)
        return kind(shared).draw(KEY, ends, 3, whole.original_id[ends])

    for found in on_ranks(ranks, work):
        np.testing.assert_array_equal(found, wanted)


def test_negatives_that_read_the_whole_topology_are_refused_in_a_sentence(whole):
    shared = SharedCandidates(cut(whole, 0, VERTICES, named=True), None, np.array([0, VERTICES]))
    with pytest.raises(ConfigError, match="use uniform, degree or in-batch"):
        _ = shared.topology
    assert getattr(shared, "topology", None) is None
    with pytest.raises(ValueError, match="must pass them"):
        shared.names(np.zeros((1, 2), np.int64))


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("kind", ["node-wise", "with-replacement", "labor-0", "weighted"])
def test_draws_leave_edges_out_as_those_of_a_whole_topology_do(kind, ranks, whole):
    offsets, plain = OFFSETS[ranks], kinds.make(kind, whole, (4, 3))
    targets = TrainingEdges(whole, True).batches(3, 0, 60)[1]
    plain.leave_out(KEY, targets)
    roots, answers = np.unique(targets), answer_format(VERTICES, whole.edges, plain.weighted)

    def work(rank):
        shard = shard_of(rank, whole, offsets)
        inner = kinds.make(kind, shard.own, (4, 3), train=np.empty(0, np.int64))
        sampler = ShardedSampler(inner, shard, rank, np.array(offsets), answers, lambda ids: whole.original_id[ids])
        assert sampler.leaves_edges_out
        sampler.leave_out(KEY, targets)
        return sampler.sample(KEY, roots)

    for blocks in on_ranks(ranks, work):
        same(blocks, plain.sample(KEY, roots))
