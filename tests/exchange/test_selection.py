"""What crosses ranks, chosen from bytes and the rates of the job."""

import numpy as np

from leapmpi.exchange.selection import fewest_bytes, least_seconds
from leapmpi.plan.cost_model import Rates

RATES = Rates(row=1e-6, edge=1e-7, step=1e-4, collective=1e-4, byte=1e-8)
COMPUTE = 0.01


def bytes_of(raw: float, partial: float) -> dict[str, np.ndarray]:
    return {"partial": np.full(4, int(partial)), "raw": np.full(4, int(raw))}


def test_equal_bytes_go_to_partial_sums():
    assert fewest_bytes(bytes_of(0, 0)) == "partial"


def test_the_busiest_rank_counts():
    seconds = least_seconds({"raw": np.array([0, 0, 0, 8_000_000])}, COMPUTE, RATES)[1]
    assert seconds["raw"] == COMPUTE + 0.08 - COMPUTE


def test_no_overlap_hides_more_than_half_of_a_fetch():
    assert least_seconds(bytes_of(1_000_000, 0), COMPUTE, RATES)[1]["raw"] == COMPUTE + 0.005


def test_far_fewer_bytes_win():
    assert least_seconds(bytes_of(20_000_000, 1_000_000), COMPUTE, RATES)[0] == "partial"


def test_raw_rows_win_where_they_are_few_and_hidden():
    assert least_seconds(bytes_of(900_000, 1_000_000), 0.02, RATES)[0] == "raw"
    # More bytes, yet hidden behind computing.
    assert least_seconds(bytes_of(2_100_000, 2_000_000), 0.02, RATES)[0] == "raw"


def test_what_moves_least_stands_unless_another_is_clearly_faster():
    assert least_seconds(bytes_of(1_100_000, 1_000_000), 0.05, RATES)[0] == "partial"


def test_learned_rows_are_not_hidden_behind_computing():
    found = least_seconds(bytes_of(2_000_000, 1_000_000), COMPUTE, RATES, learned=True)[1]
    assert found["raw"] == COMPUTE + 0.02 + 2 * RATES.collective
