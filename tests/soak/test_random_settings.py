"""A share of the random command lines of tests/soak/random_settings.py: a quarter of an hour."""

import math

import pytest

from tests.soak.random_settings import soak


@pytest.mark.timeout(3600)
def test_random_lines_are_equal_to_one_rank_or_refused_in_a_sentence(tmp_path):
    counts, faults = soak(range(60), 0, tmp_path, math.inf)
    print(counts)
    assert not faults, "\n\n".join(faults)
    assert counts["equal"] >= 15, counts
