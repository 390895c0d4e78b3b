"""Merging rules on any assignment of roots, and what each promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.plan.homes import home_of
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.plan.planner import merge_rule, plan_leap
from leapmpi.plan.root_assignment import MergeRule, RootAssignment
from leapmpi.registry import Registry
from leapmpi.system.counter_rng import PLAN, DrawKey

pytestmark = pytest.mark.compiles

RULES = ("paper", "balanced", "random")
KEY = DrawKey(PLAN, 1, 2, 3)


@st.composite
def problems(draw):
    """(assignment, time steps): empty ranks and steps, one costly root, no root at all."""
    ranks = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    roots = draw(st.sampled_from([0, 1, 3, 40, 300]))
    rank = rng.integers(0, draw(st.integers(1, ranks)), roots)
    step = rng.integers(0, draw(st.integers(1, ranks)), roots)
    cost = rng.exponential(1.0, roots) + (rng.random(roots) < 0.02) * 50
    return RootAssignment(ranks, ranks, rank, step, cost), draw(st.integers(1, ranks))


def merged(rule, assigned, time_steps):
    kept, step = merge_rule(rule)(assigned, time_steps, KEY)
    return kept, step, RootAssignment(assigned.ranks, assigned.steps, assigned.rank, step, assigned.cost)


def test_rules_are_found_by_name():
    assert Registry("merge rule", "leapmpi.plan.merging", MergeRule).names() == sorted(RULES)


@pytest.mark.parametrize("rule", RULES)
@settings(derandomize=True, deadline=None)
@given(problems())
def test_roots_of_dropped_steps_go_to_kept_ones_and_others_stay(rule, problem):
    assigned, time_steps = problem
    kept, step, _ = merged(rule, assigned, time_steps)
    assert len(kept) == time_steps
    assert (np.diff(kept) > 0).all()
    assert kept[0] >= 0
    assert kept[-1] < assigned.steps
    assert np.isin(step, kept).all()
    stays = np.isin(assigned.step, kept)
    assert (step[stays] == assigned.step[stays]).all()


@settings(derandomize=True, deadline=None)
@given(problems())
def test_paper_drops_the_steps_with_the_smallest_micro_batches_and_fills_up_to_the_average(problem):
    assigned, time_steps = problem
    kept, _, after = merged("paper", assigned, time_steps)
    smallest = assigned.loads().min(axis=0)
    dropped = np.setdiff1d(np.arange(assigned.steps), kept)
    if len(dropped):
        assert smallest[dropped].max() <= smallest[kept].min()
    quota = assigned.loads().sum(axis=1, keepdims=True) // time_steps + 1
    assert (after.loads() <= np.maximum(quota, assigned.loads())).all()


@settings(derandomize=True, deadline=None)
@given(problems())
def test_balanced_keeps_the_costliest_micro_batch_near_the_least_possible(problem):
    assigned, time_steps = problem
    kept, _, after = merged("balanced", assigned, time_steps)
    largest = np.sort(assigned.costs().max(axis=0))
    # No choice of steps beats this bound: kept micro-batches cannot shrink, and a rank's work needs T steps.
    bound = np.maximum(largest[time_steps - 1] if time_steps < assigned.steps else largest[-1], 0)
    share = assigned.costs().sum(axis=1).max() / time_steps
    heaviest = assigned.cost.max() if len(assigned.cost) else 0
    assert after.costs().max() <= max(bound, share + heaviest) + 1e-9
    assert (assigned.costs()[:, kept].max() <= largest[time_steps - 1] + 1e-9).all()


def test_paper_by_hand():
    # Rank 0 has 3, 1, 2 roots at its steps, rank 1 has 2, 2, 0: step 2 has the smallest micro-batch.
    rank = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    step = np.array([0, 0, 0, 1, 2, 2, 0, 0, 1, 1])
    kept, new, _ = merged("paper", RootAssignment(2, 3, rank, step, np.ones(10)), 2)
    assert kept.tolist() == [0, 1]
    # Up to 6 // 2 + 1 = 4 roots a micro-batch: one goes to step 0, one to step 1.
    assert new.tolist() == [0, 0, 0, 1, 0, 1, 0, 0, 1, 1]


def test_balanced_by_hand():
    rank, step = np.zeros(6, np.int64), np.array([0, 0, 1, 2, 2, 2])
    cost = np.array([1.0, 1.0, 1.0, 5.0, 3.0, 2.0])
    kept, new, after = merged("balanced", RootAssignment(1, 3, rank, step, cost), 2)
    assert kept.tolist() == [0, 1]
    # 5 joins the micro-batch of 1, 3 and 2 that of 2.
    assert new.tolist() == [0, 0, 1, 1, 0, 0]
    assert after.costs().tolist() == [[7.0, 6.0, 0.0]]


def test_random_depends_on_the_iteration_alone():
    assigned = RootAssignment(8, 8, np.arange(64) % 8, np.arange(64) // 8, np.ones(64))
    chosen = [merge_rule("random")(assigned, 3, KEY._replace(iteration=i))[0].tolist() for i in range(20)]
    again = [merge_rule("random")(assigned, 3, KEY._replace(iteration=i))[0].tolist() for i in range(20)]
    assert chosen == again
    assert len({tuple(kept) for kept in chosen}) > 10


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("time_steps", [1, 2, 3, 4])
def test_merged_schedules_keep_roots_on_their_home_rank_and_models_apart(rule, time_steps):
    offsets, batch = np.array([0, 10, 10, 25, 60]), np.random.default_rng(4).permutation(60)[:37]
    schedule = plan_leap(batch, offsets, time_steps, merge=merge_rule(rule), cost=batch + 1.0, seed=5)
    assert schedule.time_steps == time_steps
    assert sorted(schedule.roots) == sorted(batch)
    for rank in range(4):
        assert (home_of(schedule.rank_roots(rank), offsets) == rank).all()
    model = schedule.model.reshape(4, time_steps)
    for step in range(time_steps):
        assert sorted(model[:, step]) == [0, 1, 2, 3]
        # Every model moves by the same distance: one hop serves them all.
        assert len(set((model[:, step] - model[:, 0]) % 4)) == 1


def test_expected_work_is_the_mean_over_draws():
    rng = np.random.default_rng(0)
    degree = rng.integers(0, 6, 30)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    indices = rng.integers(0, 30, indptr[-1]).astype(np.int32)
    fanouts = (2, -1, 3)

    def work(vertex, hop):
        if hop == len(fanouts):
            return 1.0
        found = indices[indptr[vertex] : indptr[vertex + 1]]
        drawn = len(found) if fanouts[hop] < 0 else min(len(found), fanouts[hop])
        mean = np.mean([work(each, hop + 1) for each in found]) if len(found) else 0.0
        return work(vertex, hop + 1) + drawn * (1 + mean)

    roots = np.array([3, 29, 0, 11])
    assert np.allclose(ExpectedWork(indptr, indices, fanouts).of(roots), [work(v, 0) for v in roots])


def test_threads_expect_the_same_work():
    rng = np.random.default_rng(1)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 70_000))])
    lists = indptr, rng.integers(0, 70_000, indptr[-1]).astype(np.int32)
    roots = rng.permutation(70_000)
    alone = ExpectedWork(*lists, (2, 3)).of(roots)
    assert np.array_equal(ExpectedWork(*lists, (2, 3), threads=3).of(roots), alone)
