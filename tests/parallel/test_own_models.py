"""Rule R2 for users' own modules, and for one of PyTorch Geometric's layers; the others are in tests/soak."""

from contextlib import nullcontext
from importlib.util import find_spec

import pytest
import torch
from mpi4py import MPI

from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
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


BY_RANK = """
import torch
from mpi4py import MPI
from tests.support import own_module

class Net(own_module.Net):
    def __init__(self, in_channels, hidden_channels, out_channels, num_layers):
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, 0.0)
        self.factor = 1
        {body}

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) * self.factor
"""


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gain", "self.gain = torch.nn.Parameter(torch.ones(2) + MPI.COMM_WORLD.rank)"),
        ("more", "self.more = torch.nn.Parameter(torch.ones(2 + MPI.COMM_WORLD.rank))"),
        ("last.weight", "self.last = torch.nn.Linear(3, 3) if MPI.COMM_WORLD.rank else None"),
        ("kept", "self.register_buffer('kept', torch.ones(2) + MPI.COMM_WORLD.rank)"),
        ("the result of forward", "self.factor = 1 + MPI.COMM_WORLD.rank"),
        ("mask", "self.register_buffer('mask', torch.ones(4) / (torch.arange(4) - MPI.COMM_WORLD.rank))"),
    ],
)
def test_a_module_that_differs_between_ranks_is_refused(world, folder, name, body):
    variant = datasets.Variant("single", "lopsided", 4)
    datasets.build(world.comm, folder, {variant})
    # A name of its own for each case, since a file is loaded once.
    file = folder / f"{name}.py"
    if world.rank == 0:
        file.write_text(BY_RANK.format(body=body))
    world.comm.barrier()
    config = Config.from_values({"data": str(variant.folder(folder)), "model.name": f"{file}:Net"})
    refused = pytest.raises(ConfigError, match=rf"Net: {name} differs between ranks 0 and 1")
    with refused if world.size > 1 else nullcontext():
        load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
