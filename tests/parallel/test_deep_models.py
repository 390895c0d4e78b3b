"""Rule R2 for deep models: each way to feed their first layer takes the steps of a single process, bytes counted."""

import pytest
from mpi4py import MPI

from tests.support.equality import DEEP, EXCLUDED, OWN, OWN_MODE, Case
from tests.support.pairs import pairwise

FIXED = {
    "fanout": "3,2", "dropout": "everywhere", "shape": "plain", "batch": "three roots",
    "parts": 4, "merge": "paper", "rows": "copied", "cache": "none", "prefetch": 0, "threads": 1,
    "partition": "hash",
}  # fmt: skip
# The others are left to tests/soak/product.py.
OPTIONS = {
    "model": tuple(DEEP)[:7],
    "remote": ("partial", "projected", "raw", OWN),
    "strategy": ("leap", *OWN_MODE),
}
EDGES = "single, edges with data"


def reads_edges(values: dict) -> bool:
    """Whether edges with features may feed the model so."""
    refused = values["model"].startswith("gin") and (values["remote"], values["strategy"]) != ("raw", "leap")
    return (
        "film" not in values["model"]
        and values["remote"] != "partial"
        and values["strategy"] != "naive"
        and not refused
    )


# Each number of ranks takes a third of the pairs, every other with features of edges where these are read.
PAIRS = pairwise(OPTIONS, EXCLUDED)[(MPI.COMM_WORLD.size - 2) % 3 :: 3]
READING = [values for values in PAIRS if reads_edges(values)][MPI.COMM_WORLD.size % 4 == 0 :: 2]
CASES = [Case(**values, **FIXED, labels=EDGES if values in READING else "single") for values in PAIRS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.remote}-{case.strategy}-{case.labels}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)
