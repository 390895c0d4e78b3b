"""The cost model, by hand."""

import numpy as np
import pytest

from leapmpi.errors import ConfigError
from leapmpi.plan.cost_model import Counts, Rates, compute_seconds, iteration_seconds, link_rates

RATES = Rates(row=1.0, edge=0.1, step=5.0, collective=2.0, byte=0.01)


def counts(**changes):
    rows, edges = np.array([[10, 30], [20, 10]]), np.array([[100, 0], [0, 0]])
    return Counts(rows, edges, **changes)


def test_ranks_that_meet_at_every_step_wait_for_the_slowest_each_time():
    # Steps: max(10 + 10, 20) + 5 and max(30, 10) + 5; by rank: 60 and 40.
    assert compute_seconds(counts(), RATES) == 25 + 35
    assert compute_seconds(counts(steps_synchronised=False), RATES) == 60


def test_bytes_hops_and_collectives_add_up():
    moved = counts(bytes_ahead=1000, bytes_within=500, hops=1, hop_bytes=300, collectives=4)
    assert iteration_seconds(moved, RATES, ahead=False) == pytest.approx(60 + 10 + 5 + (2 + 3) + 8)


@pytest.mark.parametrize(("size", "exposed"), [(1000, 0), (6000, 0), (7000, 10)])
def test_what_is_fetched_ahead_hides_behind_computing(size, exposed):
    moved = counts(bytes_ahead=size, collectives=0)
    assert iteration_seconds(moved, RATES, ahead=True) == pytest.approx(60 + exposed)
    assert iteration_seconds(moved, RATES, ahead=False) == pytest.approx(60 + size / 100)


def test_rates_survive_a_record_and_links_are_read():
    assert Rates.from_values(RATES.to_values()) == RATES
    assert link_rates("10gbit")[0] == pytest.approx(8e-10)
    assert link_rates("200mbit")[0] == pytest.approx(4e-8)
    for wrong in ("fast", "10", "0gbit", "-1gbit", "10 gbit/s"):
        with pytest.raises(ConfigError, match="--link"):
            link_rates(wrong)
    with pytest.raises(ConfigError, match="not a set of rates"):
        Rates.from_values({"row": 1})
