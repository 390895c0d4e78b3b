"""Rule R2 for users' own modules, and for one of PyTorch Geometric's layers; the others are in tests/soak."""

from importlib.util import find_spec

import pytest
import torch
from mpi4py import MPI

from leapmpi.config.schema import Config
from leapmpi.session.setup import load, open_for_training
from leapmpi.session.warm_up import warm_up
from leapmpi.system.phase_timers import PhaseTimers
from tests.support import datasets
from tests.support.equality import Case
from tests.support.launch import PROJECT

COMMON = {
    "parts": 4, "batch": "even", "dropout": "hidden", "shape": "plain", "labels": "single", "threads": 1,
    "remote": "raw", "merge": "paper", "rows": "copied", "cache": "none",
}  # fmt: skip
OWN = f"{PROJECT}/tests/support/own_module.py:Net"
OTHER = [
    Case(model=OWN, strategy="leap", partition="lopsided", fanout="3,2", prefetch=0, **COMMON),
    Case(model=OWN, strategy="pull", partition="lopsided", fanout="4,3,2", prefetch=1, **COMMON),
]
CASES = [
    *OTHER[MPI.COMM_WORLD.size % 2 :][:1],
    Case(model=OWN, strategy="leap, ring", partition="lopsided", fanout="3,2", prefetch=0, **COMMON),
]
# Loading it takes each process seconds: one job will do.
if find_spec("torch_geometric") and MPI.COMM_WORLD.size == 2:
    layer = f"{PROJECT}/tests/support/pyg_layers.py:GATv2ConvOnEdges"
    carrying = COMMON | {"labels": "single, edges with data"}
    CASES += [Case(model=layer, strategy="leap, ring", partition="lopsided", fanout="3,2", prefetch=0, **carrying)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model.rpartition(':')[2]}-{case.strategy}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)


def test_a_module_that_wants_weights_of_edges_is_warmed_up(world, folder):
    variant = datasets.Variant("single, edges with data", "lopsided", 4)
    datasets.build(world.comm, folder, {variant})
    settings = {"model.name": OWN.replace(":Net", ":Weighing"), "sampling.fanout": "3"}
    config = Config.from_values({"data": str(variant.folder(folder)), **settings})
    found = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    warm_up(world, found.ctx, config)
    assert not any(each.any() for each in found.ctx.parameters.gradients)
