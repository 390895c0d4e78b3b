"""Machine rates that jobs choose the exchange by: shown, and with --measure measured and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.config.sections import ModelConfig
from leapmpi.engine.calibration import link_seconds
from leapmpi.engine.machine import key_of
from leapmpi.errors import ConfigError
from leapmpi.nn.layer import Layer, costs
from leapmpi.nn.model import build_model
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.plan.machine_rates import MachineRates, keep_rates, kept_rates, rates_file
from leapmpi.sampling.block import Block
from leapmpi.system.phase_timers import median_seconds
from leapmpi.tools.doctor.problems import MOST_SPREAD

if TYPE_CHECKING:
    from leapmpi.comm.world import World

_TAKES, _ROUNDS = 5, 4
"""Repetitions per round (the median counts), and most rounds after a disturbance."""

_LEAST = 1e-15
"""Fewest seconds per unit, for clocks too coarse to separate two times."""

_WIDTH, _HIDDEN, _ROOTS, _FANOUT = 256, 128, 2048, 10
"""Shape of the layer that is timed."""


def facts(world: World, device: torch.device, measures: bool) -> dict[str, Any]:
    """Return the rates for jobs of as many ranks on this machine, measured first if `measures`. Collective.

    Raises DataError and ResourceError, on all ranks, if measured rates cannot be kept.
    """
    key = key_of(world, device)
    if measures:
        return _measured(world, device, key)
    try:
        rates, error = kept_rates(key), None
    except ConfigError as damage:
        rates, error = None, str(damage)
    source = f"kept in {rates_file()}" if rates else "documented constants; leapmpi doctor --measure measures them"
    return {"key": key, "source": source, "error": error, "spread": None, **(rates or MachineRates()).to_values()}


def _measured(world: World, device: torch.device, key: str) -> dict[str, Any]:
    communicator = MPICommunicator(world.comm)
    takes, spread = _undisturbed(lambda: _take(communicator, device))
    names = [each.name for each in fields(MachineRates)]
    rates = MachineRates(**dict(zip(names, np.median(takes, axis=0).tolist(), strict=True)))
    about = {"measured": date.today().isoformat(), "spread": round(spread, 3)}
    world.on_root(lambda: keep_rates(key, rates, about))
    source = f"measured, kept in {rates_file()}"
    return {"key": key, "source": source, "error": None, "spread": spread, **rates.to_values()}


def _undisturbed(take: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """Return the repetitions with the least spread, float64[takes, figures], and their spread. Collective."""
    best, least = np.empty(0), np.inf
    for _ in range(_ROUNDS):
        takes = np.stack([take() for _ in range(_TAKES)])
        # The slowest and the fastest repetition may be outliers; three of five must agree.
        middle = np.sort(takes, axis=0)[1:-1]
        spread = float((np.ptp(middle, axis=0) / np.median(middle, axis=0)).max())
        if spread < least:
            best, least = takes, spread
        if least <= MOST_SPREAD:
            break
    return best, least


def _take(communicator: Communicator, device: torch.device) -> np.ndarray:
    """Measure each rate once, float64[figures] in the order of MachineRates; the slowest rank counts. Collective."""
    communicator.barrier()
    # One rank has no links to measure, so take the constants.
    constants = MachineRates()
    links = link_seconds(communicator) if communicator.size > 1 else (constants.collective, constants.byte)
    figures = np.maximum((*_compute_seconds(device), *links), _LEAST)
    return communicator.all_gather_rows(figures).max(axis=0)


def _compute_seconds(device: torch.device) -> tuple[float, float]:
    """Measure the seconds of a multiply-add (as `Layer.costs` counts them) and the fixed part of a step."""
    layer = build_model(ModelConfig(), 1, _WIDTH, _HIDDEN, seed=0).to(device).layers[0]
    few, many = _block(2), _block(_ROOTS)
    alone, whole = (_train_seconds(layer, to_tensors(block, device), device) for block in (few, many))
    operations = min(costs(layer, many.n_src, many.n_dst, many.edges))
    return (whole - alone) / operations, 2 * alone


def _train_seconds(layer: Layer, block: BlockTensors, device: torch.device) -> float:
    rows = torch.ones(block.n_src, _WIDTH, device=device)

    def train() -> None:
        layer(block, rows).sum().backward()
        # GPU work is asynchronous: wait for it before reading the clock.
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return median_seconds(train)


def _block(roots: int) -> Block:
    """Return a block of `roots` destinations, each with its own sources."""
    edges = roots * _FANOUT
    src = np.arange(roots + edges)
    indices = np.arange(roots, roots + edges, dtype=np.int32)
    return Block(0, roots, src, np.arange(0, edges + 1, _FANOUT), indices, src, np.full(len(src), _FANOUT))
