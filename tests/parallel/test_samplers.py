"""Rule R2 for every family of samplers: on any ranks they take the steps of a single process."""

import pytest
from mpi4py import MPI

from tests.support.equality import Case, here

EDGES = "single, edges with data"
COMMON = {
    "partition": "uneven", "parts": 4, "batch": "even", "fanout": "4,3", "dropout": "everywhere", "shape": "plain",
    "labels": "single", "threads": 1, "merge": "balanced", "rows": "copied", "cache": "none", "prefetch": 0,

}  # fmt: skip


def fanout_of(sampler: str) -> str:
    """The steps that a sampler comes with, or any fan-out."""
    return "25,10" if "GraphSage" in sampler else "4,3"


# (sampler and its options, strategy, remote, model)
EVERY = [
    Case(sampler=sampler, strategy=strategy, remote=remote, model=model, **COMMON | {"fanout": fanout_of(sampler)})
    for sampler, strategy, remote, model in [
        ("with-replacement", "naive", "own", "sage"),
        ("labor-0", "leap, ring of all steps but one", "partial", "gcn"),
        ("labor-0,fixed-size=no,kept-batches=2", "p3", "own", "gat"),
        ("weighted", "leap, ring", "raw", "gcn"),
        ("random-walk,walks=9", "leap", "partial", "sage"),
        ("labor-i,rounds=2", "leap, two steps", "projected", "gat"),
        ("fast-gcn,layer-size=150", "pull", "partial", "sage"),
        ("ladies,layer-size=100", "leap, ring", "partial", "gcn"),
        ("cluster-gcn,clusters=8,per-batch=3", "leap, ring of all steps but one", "projected", "sage"),
        ("graph-saint,size=300", "leap", "partial", "gcn"),
        ("tests/support/graph_sage.py:GraphSage", "pull", "partial", "sage"),
    ]
]
# Edges with weights and features: what layers read of them, in each way in which the first layer is fed.
EVERY[-1:-1] = [
    Case(sampler=sampler, strategy=strategy, remote=remote, model=model, **COMMON | {"labels": EDGES})
    for sampler, strategy, remote, model in [
        ("weighted,weights=edge", "leap", "partial", "sage"),
        ("node-wise", "naive", "own", "sage"),
        ("temporal,window=25", "leap, ring of all steps but one", "partial", "gcn"),
        ("temporal,draw=latest,same-time=no", "pull", "raw", "sage"),
        ("node-wise", "p3", "own", "gat"),
        ("node-wise", "leap, ring", "projected", "gat"),
        ("node-wise", "leap, ring of all steps but one", "partial", "gcn"),
    ]
]
# The last one is compiled anew by every process, in seconds: one job will do.
CASES = [*here(EVERY[:-1]), *(EVERY[-1:] if MPI.COMM_WORLD.size == 2 else [])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.sampler}-{case.strategy}-{case.remote}-{case.model}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)
