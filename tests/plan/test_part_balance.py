"""Parts assigned to ranks: the fit finds the weights, the best assignment wins, boundaries are those of a segment."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from leapmpi.plan.part_balance import PartCounts, assigned, fitted, rank_seconds, slowness

SEEDS = range(20)


def any_counts(seed, parts):
    rng = np.random.default_rng(seed)
    read = rng.integers(0, 50, (parts, parts)).astype(float) * (rng.random((parts, parts)) < 0.6)
    np.fill_diagonal(read, 0)
    return PartCounts(rng.integers(0, 90, (parts, 2)).astype(float), read)


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_count_what_their_parts_do_and_read_of_others(seed):
    parts = 1 + seed % 7
    counts = any_counts(seed, parts)
    found = counts.of_segments()
    for first in range(parts):
        for end in range(first + 1, parts + 1):
            inside = np.arange(first, end)
            outside = np.setdiff1d(np.arange(parts), inside)
            wanted = [*counts.own[inside].sum(axis=0), counts.read[np.ix_(inside, outside)].sum()]
            np.testing.assert_allclose(found[first, end], wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_other_deal_has_a_faster_slowest_rank(seed):
    parts, ranks = 3 + seed % 6, 1 + seed % 3
    seconds = any_counts(seed, parts).of_segments() @ np.array([1.0, 0.3, 0.2])
    slow = np.random.default_rng(seed).choice([1.0, 2.0], ranks)
    starts = assigned(seconds, slow)
    assert (starts[0], starts[-1]) == (0, parts)
    assert (np.diff(starts) > 0).all()
    others = [np.array([0, *inner, parts]) for inner in combinations(range(1, parts), ranks - 1)]
    least = min(
        max(times * seconds[first, end] for times, (first, end) in zip(slow, pairwise(each), strict=True))
        for each in others
    )
    assert (slow * rank_seconds(seconds, starts)).max() == least


def test_slowness_is_what_counts_do_not_tell():
    predicted = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]])
    assert slowness(predicted * [3.0, 0.5, 1.0], predicted).tolist() == [3.0, 0.5, 1.0]


def test_every_rank_has_a_part_even_where_one_part_takes_all():
    seconds = PartCounts(np.array([[9.0, 0], [0, 0], [0, 0]]), np.zeros((3, 3))).of_segments()[..., 0]
    assert assigned(seconds, np.ones(3)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fit_finds_what_made_the_seconds(seed):
    rng = np.random.default_rng(seed)
    counts = rng.random((40, 3)) * [1e6, 1e8, 1e4]
    weights = rng.random(3) * [1e-7, 1e-9, 1e-5]
    found = fitted(counts, counts @ weights * (1 + 0.01 * rng.standard_normal(40)))
    wanted = counts @ weights
    np.testing.assert_allclose(counts @ found, wanted, atol=0.02 * wanted.mean())


def test_the_fit_has_no_negative_seconds_and_leaves_out_what_is_never_there():
    counts = np.array([[1.0, 4.0, 0.0], [2.0, 2.0, 0.0], [3.0, 1.0, 0.0], [4.0, 0.5, 0.0]])
    found = fitted(counts, np.array([1.0, 2.0, 3.0, 4.0]))
    assert (found >= 0).all()
    assert found[2] == 0
    assert fitted(np.zeros((2, 3)), np.ones(2)).tolist() == [0, 0, 0]


def test_the_fit_of_few_observations_predicts_them():
    # Two ranks, three counts that go together.
    counts, seconds = np.array([[10.0, 100, 3], [30.0, 300, 9]]), np.array([1.0, 3.0])
    np.testing.assert_allclose(counts @ fitted(counts, seconds), seconds, rtol=0.02)
