"""Rule R2 on real ranks: every pair of options takes the steps of a single process, and counts what it moves."""

from itertools import combinations

import pytest
from mpi4py import MPI

from tests.support.equality import EXCLUDED, OPTIONS, Case
from tests.support.pairs import full_product, pair, pairwise

# The number of ranks is one more option: every value meets every number.
WITH_RANKS = OPTIONS | {"ranks": (4, 3, 2, 1)}
EVERY_PAIR = pairwise(WITH_RANKS, EXCLUDED)
CASES = [
    Case(**{name: values[name] for name in OPTIONS}) for values in EVERY_PAIR if values["ranks"] == MPI.COMM_WORLD.size
]


def test_every_pair_of_options_is_covered():
    for a, b in combinations(WITH_RANKS, 2):
        met = {pair(a, case[a], b, case[b]) for case in EVERY_PAIR}
        assert met == {pair(a, x, b, y) for x in WITH_RANKS[a] for y in WITH_RANKS[b]} - EXCLUDED


def test_the_product_holds_what_may_go_together():
    few = {name: OPTIONS[name] for name in ("model", "shape")} | {"remote": ("raw", "projected", "partial")}
    assert len(full_product(few)) == 4 * 3 * 4
    assert len(full_product(few, EXCLUDED)) == 4 * 4 + 4 * 2 + 4 * 2


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.strategy}-{case.remote}-{case.partition}-{case.model}-{case.batch}"
)
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)
