"""Planner and Schedule at 1 to 64 ranks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.errors import ConfigError
from leapmpi.plan.homes import home_of
from leapmpi.plan.planner import plan_leap, plan_pull
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.schedule_buffers import part_buffers, schedule_of, whole_buffer, words_of

pytestmark = pytest.mark.compiles


@st.composite
def problems(draw):
    """(batch, rank_offsets): any number of ranks, uneven and empty homes, batches down to no root."""
    ranks = draw(st.integers(1, 64))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(0, draw(st.sampled_from([2, 20])), ranks)
    sizes[rng.integers(ranks)] += draw(st.integers(1, 50))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    size = draw(st.integers(0, min(int(offsets[-1]), 150)))
    return rng.permutation(offsets[-1])[:size], offsets


def model_slices(batch, ranks):
    """The slice of each root, by the plain definition: slice d starts at d * size // ranks."""
    return {
        int(root): d for d in range(ranks) for root in batch[d * len(batch) // ranks : (d + 1) * len(batch) // ranks]
    }


def each_cell(schedule):
    for rank in range(schedule.ranks):
        for step in range(schedule.time_steps):
            yield rank, step, schedule.cell(rank, step).tolist()


@settings(derandomize=True)
@given(problems(), st.booleans())
def test_leap_trains_each_root_once_at_home_for_the_right_model(problem, ring):
    batch, offsets = problem
    ranks = len(offsets) - 1
    schedule = plan_leap(batch, offsets, ranks if ring else 1, epoch=3, iteration=5)
    assert (schedule.ranks, schedule.time_steps) == (ranks, ranks if ring else 1)
    assert (schedule.epoch, schedule.iteration, schedule.batch_size) == (3, 5, len(batch))
    assert sorted(schedule.roots.tolist()) == sorted(batch.tolist())
    slices = model_slices(batch, ranks)
    for rank, step, roots in each_cell(schedule):
        assert (home_of(np.array(roots, np.int64), offsets) == rank).all()
        assert list(roots) == sorted(roots)
        assert schedule.model_of(rank, step) == (rank + step) % ranks
        if ring and ranks > 1:
            assert all(slices[root] == (rank + step) % ranks for root in roots)


@settings(derandomize=True)
@given(problems())
def test_in_the_ring_every_model_is_on_one_rank_per_step_and_moves_to_the_neighbour(problem):
    batch, offsets = problem
    ranks = len(offsets) - 1
    model = plan_leap(batch, offsets, ranks).model.reshape(ranks, ranks)
    for step in range(ranks):
        assert sorted(model[:, step].tolist()) == list(range(ranks))
    for step in range(ranks - 1):
        assert (model[:, step + 1] == np.roll(model[:, step], -1)).all()


@settings(derandomize=True)
@given(st.integers(1, 64), st.integers(0, 200))
def test_pull_deals_consecutive_slices_that_differ_by_one_at_most(ranks, size):
    batch = np.random.default_rng(size).permutation(1000)[:size]
    schedule = plan_pull(batch, ranks, epoch=1, iteration=2)
    bounds = schedule.cell_indptr
    assert [schedule.cell(rank, 0).tolist() for rank in range(ranks)] == [
        sorted(batch[low:high].tolist()) for low, high in pairwise(bounds)
    ]
    loads = schedule.loads()
    assert loads.shape == (ranks, 1)
    assert loads.max() - loads.min() <= 1
    assert [schedule.model_of(rank, 0) for rank in range(ranks)] == list(range(ranks))


def test_a_ring_of_two_ranks_by_hand():
    schedule = plan_leap(np.array([7, 1, 2, 9, 8]), np.array([0, 5, 10]), 2)
    cells = {(rank, step): roots for rank, step, roots in each_cell(schedule)}
    # slices: model 0 trains 7, 1; model 1 trains 2, 9, 8. Home 0: 1, 2; home 1: 7, 9, 8.
    assert cells == {(0, 0): [1], (0, 1): [2], (1, 0): [8, 9], (1, 1): [7]}
    assert schedule.loads().tolist() == [[1, 1], [2, 1]]
    assert schedule.rank_roots(1).tolist() == [8, 9, 7]


@pytest.mark.parametrize("time_steps", [0, 5, -1])
def test_impossible_time_steps_are_refused(time_steps):
    with pytest.raises(ConfigError, match="--time-steps must be between 1 and the number of ranks"):
        plan_leap(np.arange(3), np.array([0, 1, 2, 3, 4]), time_steps)


@pytest.mark.parametrize("root", [-1, 4])
def test_roots_outside_the_graph_are_refused(root):
    with pytest.raises(ValueError, match="roots must be in"):
        plan_leap(np.array([0, root]), np.array([0, 2, 4]), 1)


def test_cells_outside_the_schedule_are_refused():
    schedule = plan_pull(np.arange(4), 2)
    for rank, step in [(2, 0), (0, 1), (-1, 0)]:
        with pytest.raises(IndexError, match="no cell"):
            schedule.cell(rank, step)


@settings(derandomize=True)
@given(problems(), st.booleans())
def test_only_a_schedule_of_roots_are_local_is_at_home(problem, ring):
    batch, offsets = problem
    steps = len(offsets) - 1 if ring else 1
    assert plan_leap(batch, offsets, steps).is_local(offsets)
    dealt = plan_pull(batch, len(offsets) - 1)
    home = [set(home_of(dealt.rank_roots(rank), offsets).tolist()) <= {rank} for rank in range(len(offsets) - 1)]
    assert dealt.is_local(offsets) == all(home)


@settings(derandomize=True)
@given(problems(), st.booleans())
def test_a_buffer_gives_the_schedule_back(problem, ring):
    batch, offsets = problem
    schedule = plan_leap(batch, offsets, len(offsets) - 1 if ring else 1, epoch=2, iteration=9)
    buffer = whole_buffer(schedule)
    assert buffer.dtype == np.int64
    assert buffer.ndim == 1
    same = schedule_of(buffer)
    for name in ("epoch", "iteration", "ranks", "time_steps"):
        assert getattr(same, name) == getattr(schedule, name)
    for name in ("roots", "cell_indptr", "model"):
        assert getattr(same, name).tolist() == getattr(schedule, name).tolist()


@settings(derandomize=True)
@given(problems(), st.booleans(), st.integers(0, 3), st.booleans())
def test_a_part_has_the_cells_of_the_ranks_that_are_read(problem, ring, further, leap):
    batch, offsets = problem
    ranks = len(offsets) - 1
    schedule = plan_leap(batch, offsets, ranks if ring else 1) if leap else plan_pull(batch, ranks)
    read = np.stack([np.arange(ranks), (np.arange(ranks) + further) % ranks], axis=1)[:, : 1 + (further % ranks > 0)]
    buffers, words = part_buffers(schedule, read, offsets)
    for rank, (row, length) in enumerate(zip(buffers, words.tolist(), strict=True)):
        assert words_of(row) == length
        assert not row[length:].any()
        part = schedule_of(row[:length])
        assert (part.batch_size, part.is_local(offsets)) == (len(batch), schedule.is_local(offsets))
        for each in read[rank].tolist():
            assert part.rank_roots(each).tolist() == schedule.rank_roots(each).tolist()
            models = [part.model_of(each, step) for step in range(part.time_steps)]
            assert models == [schedule.model_of(each, step) for step in range(part.time_steps)]
        with pytest.raises(ValueError, match="schedule"):
            schedule_of(np.append(row[:length], 0))


@pytest.mark.parametrize(("gap", "width"), [(1, 1), (255, 1), (256, 2), (1 << 16, 4), (1 << 32, 8)], ids=str)
def test_roots_take_the_bytes_of_the_largest_gap(gap, width):
    roots = np.arange(1000) * gap + 5
    schedule = plan_leap(roots, np.array([0, roots[-1] + 1]), 1)
    # Eight words of the header, and one each for the cell, its model and its first root.
    assert whole_buffer(schedule).nbytes == 8 * (8 + 3) + 1000 * width
    assert schedule_of(whole_buffer(schedule)).roots.tolist() == roots.tolist()


def test_damage_anywhere_in_a_buffer_is_refused():
    buffer = whole_buffer(plan_leap(np.array([7, 1, 2, 9, 8]), np.array([0, 5, 10]), 2))
    for word in range(len(buffer)):
        damaged = buffer.copy()
        damaged[word] ^= 4
        with pytest.raises(ValueError, match="schedule"):
            schedule_of(damaged)
    for length in (0, 1, len(buffer) - 1):
        with pytest.raises(ValueError, match="schedule"):
            schedule_of(buffer[:length])
    for foreign in (np.append(buffer, 0), buffer.astype(np.int32), buffer.reshape(1, -1), np.zeros(40, np.int64)):
        with pytest.raises(ValueError, match="schedule"):
            schedule_of(foreign)


@pytest.mark.parametrize(
    ("ranks", "cell_indptr", "model"),
    [
        (2, [0, 2, 1], [0, 1]),
        (2, [1, 1, 2], [0, 1]),
        (2, [0, 1, 1], [0, 1]),
        (2, [0, 1, 2], [0, 2]),
        (2, [0, 1, 2], [-1, 0]),
        (3, [0, 1, 2], [0, 1]),
    ],
)
def test_a_whole_buffer_with_an_impossible_schedule_is_refused(ranks, cell_indptr, model):
    wrong = Schedule(0, 0, ranks, 1, np.arange(2), np.array(cell_indptr), np.array(model))
    with pytest.raises(ValueError, match="schedule"):
        schedule_of(whole_buffer(wrong))
