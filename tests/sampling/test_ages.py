"""Ages of sources at the bounds of their roots."""

from dataclasses import replace

import numpy as np
import pytest

from leapmpi.sampling.ages import AGES, ages, span_of
from tests.sampling.test_root_bounds import KEY, sampler_of, timed_topology

ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def test_columns_are_those_of_the_page():
    found = ages(np.array([100, 100, 100, 100]), np.array([100, 60, ALWAYS, NEVER]), 400.0)
    recent = [np.log(101) / np.log(1001), np.exp(-1), np.exp(-10)]
    np.testing.assert_allclose(found, [[0, 1, 1], recent, [0] * AGES, [0] * AGES], rtol=1e-6)


@pytest.mark.parametrize(
    ("times", "span"),
    [([3, 10, 5], 7), ([4, 4], 1), ([], 1), ([2, NEVER, ALWAYS, 8], 6), ([0.5, np.inf, 2.0], 1.5)],
)
def test_the_span_is_of_roots_that_have_times(times, span):
    assert span_of(np.array(times)) == span


def test_blocks_of_typed_graphs_have_the_ages_of_their_sources():
    topology = timed_topology()
    assert sampler_of(topology, (3, 3)).sample(KEY, np.arange(4))[0].ages is None
    typed = replace(topology, relation=np.zeros(len(topology.indices), np.uint8))
    for block in sampler_of(typed, (3, 3)).sample(KEY, np.arange(20)):
        span = np.ptp(typed.vertex_time)
        np.testing.assert_array_equal(block.ages, ages(block.bound, typed.vertex_time[block.src], span))
        # What is drawn was there before its root: no age is negative, and some are of every scale.
        assert (block.ages[block.n_dst :] >= 0).all()
