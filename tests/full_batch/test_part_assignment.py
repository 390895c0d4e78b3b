"""Reassigned parts: counts of parts, assignments that pay, and those that are undone."""

from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.engine.tuning_log import PARTS, TuningLog, TuningRecord
from leapmpi.full_batch.part_assignment import PartAssignment, part_counts

VERTICES, PARTS_OF = 40, np.array([0, 5, 6, 20, 29, 40])


class CountingLayer:
    """A vertex costs 10, an edge 1; rows of 3 numbers."""

    linear, in_dim = True, 3


@pytest.fixture(autouse=True)
def prices(monkeypatch):
    def costs(layer, sources, destinations, edges, passes_on):
        return 100 * sources + 2 * edges, 10 * destinations + edges

    monkeypatch.setattr("leapmpi.full_batch.part_assignment.costs", costs)


@pytest.fixture(scope="module")
def topology():
    rng = np.random.default_rng(8)
    lists = [np.sort(rng.choice(VERTICES, rng.integers(0, 6), replace=False)) for _ in range(VERTICES)]
    indptr = np.cumsum([0, *map(len, lists)])
    return Topology(indptr, np.concatenate(lists).astype(np.int32), np.arange(VERTICES))


def test_parts_count_what_they_compute_and_read_of_each_other(topology):
    train = np.array([1, 5, 22, 39])
    found = part_counts(topology, train, PARTS_OF, [CountingLayer()] * 2)
    part = np.searchsorted(PARTS_OF, np.arange(VERTICES), side="right") - 1
    own, read, computed = np.zeros((5, 2)), np.zeros((5, 5)), set(train.tolist())
    for _ in range(2):
        pairs = set()
        for vertex in computed:
            sources = topology.indices[topology.indptr[vertex] : topology.indptr[vertex + 1]].tolist()
            own[part[vertex]] += 10, len(sources)
            pairs |= {(part[vertex], each) for each in sources}
        for reader, source in pairs:
            read[reader, part[source]] += 3 * (part[source] != reader)
        computed |= {source for _, source in pairs}
    np.testing.assert_array_equal(found.own, own)
    np.testing.assert_array_equal(found.read, read)


@pytest.fixture
def engine():
    features = SimpleNamespace(shard=SimpleNamespace(row_bytes=400))
    layers = SimpleNamespace(layers=[CountingLayer()])
    return SimpleNamespace(
        tuning_log=TuningLog(),
        preparation=SimpleNamespace(planning_seconds=0.1),
        ctx=SimpleNamespace(ranks=2, model=layers, features=features),
    )


@pytest.fixture
def assignment(topology):
    dataset = SimpleNamespace(offsets=PARTS_OF, splits=SimpleNamespace(train=np.arange(VERTICES)))
    return PartAssignment(dataset, topology, np.array([0, 4, 5]))


def after_epochs(assignment, engine, compute, seconds, left=100, count=4):
    assignment.seconds += [[*compute, seconds]] * count
    return assignment.decide(engine, 4, left)


def test_a_slow_rank_gives_parts_away_and_what_did_not_help_is_taken_back(assignment, engine):
    better = after_epochs(assignment, engine, [2.9, 1.1], 3.0)
    assert better.tolist() == [0, 3, 5]
    (record,) = engine.tuning_log.pending
    assert (record.about, record.epoch, record.value) == (PARTS, 4, [0, 3, 5])
    slowest, least = record.evidence["predicted"]
    assert least < 0.95 * slowest
    assignment.take(better)

    # Epochs are no faster with it: the former assignment returns, and stays.
    assert after_epochs(assignment, engine, [2.0, 2.0], 3.0).tolist() == [0, 4, 5]
    assignment.take(np.array([0, 4, 5]))
    assert after_epochs(assignment, engine, [2.9, 1.1], 3.0) is None


def test_a_weaker_host_gets_fewer_parts(assignment, engine):
    # With 20 of 40 vertices it takes four times as long as the other.
    assignment.starts = np.array([0, 3, 5])
    assert after_epochs(assignment, engine, [4.0, 1.0], 4.1).tolist() == [0, 2, 5]
    (record,) = engine.tuning_log.pending
    assert record.evidence["slowness"][0] > 2 * record.evidence["slowness"][1]


def test_an_assignment_that_helps_stays(assignment, engine):
    assignment.take(after_epochs(assignment, engine, [2.9, 1.1], 3.0))
    assert after_epochs(assignment, engine, [2.1, 1.9], 2.2) is None
    assert not assignment.settled


@pytest.mark.parametrize(("planning", "left", "count"), [(0.1, 0, 4), (1e3, 100, 4), (0.1, 100, 3)])
def test_nothing_is_reassigned_at_the_end_or_where_it_does_not_pay_or_too_soon(
    assignment, engine, planning, left, count
):
    engine.preparation.planning_seconds = planning
    assert after_epochs(assignment, engine, [2.9, 1.1], 3.0, left, count) is None


def test_a_restart_decides_as_the_run_would_have(assignment, engine, topology):
    assignment.take(after_epochs(assignment, engine, [2.9, 1.1], 3.0))
    again = PartAssignment(assignment.dataset, topology, assignment.starts)
    again.restore(assignment.state())
    assert after_epochs(again, engine, [2.0, 2.0], 3.0).tolist() == [0, 4, 5]


def test_a_replay_reassigns_as_the_run_did(assignment, engine):
    engine.tuning_log.replay([TuningRecord(PARTS, 4, 0, [0, 2, 5])])
    assert after_epochs(assignment, engine, [1.0, 1.0], 1.0, count=1).tolist() == [0, 2, 5]
    engine.tuning_log.replay([])
    assert after_epochs(assignment, engine, [2.9, 1.1], 3.0) is None


def test_bytes_of_what_moves(assignment):
    assert assignment.moved_bytes(np.array([0, 3, 5]), 400) == 400 * (29 - 20)
    assert assignment.moved_bytes(assignment.starts, 400) == 0
