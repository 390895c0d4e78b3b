"""Which rows are read how often: chances by enumeration, counts by hand, and the rows chosen by them."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology, from_graph
from leapmpi.features import expected_reads
from leapmpi.features.access import AccessPattern
from leapmpi.features.expected_reads import READS_BYTES, choose, included, inclusion, read_counts, reads_by_hops
from leapmpi.plan.planner import plan_leap, plan_pull
from leapmpi.sampling.epoch_order import batches, epoch_order
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers.labor_0 import Labor0, Options
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles


def topology_of(lists):
    """In-neighbours by vertex, as a topology."""
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Topology(indptr, np.concatenate([*lists, []]).astype(np.int32), np.arange(len(lists)))


def access(topology, *, train, fanouts=(2, 2), rank=0, offsets=None, batch_size=1, at_home=True):
    train = np.asarray(train, np.int64)
    offsets = np.array([0, topology.vertices // 2, topology.vertices]) if offsets is None else np.asarray(offsets)

    def drawn_for(batch, epoch, iteration):
        schedule = plan_leap(batch, offsets, 1) if at_home else plan_pull(batch, len(offsets) - 1)
        return schedule.rank_roots(rank)

    def chances():
        own = (train >= offsets[rank]) & (train < offsets[rank + 1])
        found = np.zeros(topology.vertices)
        found[train] = min(1, batch_size / len(train)) * (own if at_home else 1 / (len(offsets) - 1))
        return found

    def dry_run(epoch):
        order = epoch_order(train, topology.original_id[train], 5, epoch)
        for iteration, batch in enumerate(batches(order, batch_size)):
            yield DrawKey(PRESAMPLE, 5, epoch, iteration), drawn_for(batch, epoch, iteration), batch

    sampler, iterations = NodeWiseSampler(topology, fanouts), -(-len(train) // batch_size)
    return AccessPattern(topology, sampler, chances, rank, offsets, iterations, dry_run)


def test_a_tree_is_read_with_the_product_of_its_chances():
    # 0 <- 1, 2, 3, 4 and 1 <- 5, 6; two of four neighbours are drawn, then both of two.
    tree = topology_of([[1, 2, 3, 4], [5, 6], [], [], [], [], []])
    found = inclusion(access(tree, train=[0], fanouts=(2, 2)))
    # A hop draws for all found so far: 0 draws its neighbours in both hops.
    once = 0.5
    twice = 1 - once**2
    np.testing.assert_allclose(found, [1, twice, twice, twice, twice, once, once])


def test_roots_are_at_home_or_anywhere():
    chain = topology_of([[1], [2], [3], []])
    at_home = inclusion(access(chain, train=[0, 2], batch_size=1, fanouts=(1,)))
    np.testing.assert_allclose(at_home, [0.5, 0.5, 0, 0])
    dealt = inclusion(access(chain, train=[0, 2], batch_size=1, fanouts=(1,), at_home=False))
    np.testing.assert_allclose(dealt, [0.25, 0.25, 0.25, 0.25])
    everything = inclusion(access(chain, train=[0, 2], batch_size=9, fanouts=(-1, -1, -1)))
    np.testing.assert_allclose(everything, [1, 1, 1, 1])


@pytest.mark.parametrize("at_home", [True, False])
def test_chances_are_those_seen_in_many_iterations(at_home):
    topology = from_graph(random_graph(n=120, degree=4))
    law = access(topology, train=np.arange(0, 120, 2), batch_size=12, at_home=at_home, fanouts=(2, 2), rank=1)
    seen, iterations = np.zeros(120), 0
    for epoch in range(60):
        for key, roots, _ in law.dry_run(epoch):
            seen[law.sampler.sample(key, roots)[-1].src] += 1
            iterations += 1
    predicted = inclusion(law)
    assert predicted.sum() == pytest.approx(seen.sum() / iterations, rel=0.05)
    assert np.corrcoef(predicted, seen)[0, 1] > 0.95


def test_presampling_counts_iterations_that_read_a_vertex():
    chain = topology_of([[1], [2], [3], [], [0]])
    found = read_counts(access(chain, train=[0, 4], batch_size=1, fanouts=(-1, -1), offsets=[0, 5]))
    # Root 0 reads 0, 1, 2; root 4 reads 4, 0, 1.
    np.testing.assert_array_equal(found, [2, 2, 1, 0, 1])
    np.testing.assert_array_equal(read_counts(access(chain, train=[0, 4], rank=1, offsets=[0, 5, 5])), np.zeros(5))


def test_another_epoch_of_the_dry_run_is_other_evidence_and_may_be_cut_short():
    law = access(from_graph(random_graph(n=120, degree=4)), train=np.arange(0, 120, 2), batch_size=12)
    first, other, some = read_counts(law), read_counts(law, epoch=2), read_counts(law, epoch=2, most=2)
    assert (first != other).any()
    assert other.max() > 2 >= some.max()
    assert (some <= other).all()


def other_sampler(law):
    return dataclasses.replace(law, sampler=Labor0(Setup(law.topology, (2, 2), np.empty(0, np.int64), 5, 1), Options()))


def test_hits_are_counted_in_a_dry_run_where_the_analysis_does_not_apply(monkeypatch):
    monkeypatch.setattr(expected_reads, "inclusion", lambda access: np.full(access.topology.vertices, 0.5))
    law = access(from_graph(random_graph(n=120, degree=4)), train=np.arange(0, 120, 2), batch_size=12)
    ids = np.arange(60, 70)
    assert expected_reads.predicted_hits(law, ids) == (5, 30)
    law = other_sampler(law)
    # Five iterations an epoch: sixteen hold three.
    counts = read_counts(law, epoch=2) + read_counts(law, epoch=3) + read_counts(law, epoch=4)
    assert expected_reads.predicted_hits(law, ids) == (counts[ids].sum(), counts[60:].sum())


def test_the_best_rows_from_elsewhere_are_chosen():
    star = topology_of([[2, 3, 4], [3, 4], [4], [], [], []])
    law = access(star, train=[0, 1], offsets=[0, 2, 6], batch_size=2, fanouts=(1,))
    # Root 0 draws one of three, root 1 one of two: 4 and 3 are the likelier; nobody draws 5, whatever room there is.
    assert choose(law, 2).tolist() == [3, 4]
    assert choose(law, 1).tolist() == [3]
    assert choose(law, 9).tolist() == [2, 3, 4]
    assert choose(law, 0).tolist() == []


def test_rows_are_chosen_by_a_dry_run_where_the_analysis_does_not_apply():
    law = other_sampler(access(from_graph(random_graph(n=120, degree=4)), train=np.arange(0, 120, 2), batch_size=12))
    # Five iterations an epoch: 25 epochs hold 125.
    counts = sum(read_counts(law, epoch) for epoch in range(18, 43))
    counts[law.local] = 0
    chosen = choose(law, 10)
    assert len(chosen) == 10
    assert counts[chosen].min() >= np.delete(counts, chosen).max()


def test_chances_of_several_hops_take_the_memory_that_was_checked():
    def hop(chances, fanout, drew, left_out):
        # As the owners of a sharded topology add up numbers of their vertices.
        left_out += np.zeros(len(chances))

    roots = np.full(100_000, 0.01)
    tracemalloc.start()
    reads_by_hops(roots, (3, 3, 3), hop)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The chances of roots are the caller's.
    assert peak + roots.nbytes < READS_BYTES * len(roots) + 10_000


def test_roots_that_are_certain_are_read_for_certain():
    reads = included(np.zeros(3, np.int64), np.empty(0, np.int32), np.array([1.0, 0.25]), (2, 2, 2))
    np.testing.assert_allclose(reads, [1, 0.25], rtol=1e-15)
