"""A session: what stands between the start and the end of MPI, for every command that works on a dataset."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from leapmpi.config import Config
from leapmpi.failure import ends_the_job
from leapmpi.phases import Phases
from leapmpi.plan.homes import rank_offsets
from leapmpi.training.evaluation import choose_metric
from leapmpi.training.loading import Loaded, check_device, choose_device, load, open_for_training
from leapmpi.training.loop import strategy_class
from leapmpi.world import World, finish, start, together

log = logging.getLogger("leapmpi")

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """One job between the start and the end of MPI. `folder` holds the run folder once there is one."""

    world: World
    device: torch.device
    phases: Phases = field(default_factory=Phases)
    folder: list[Path] = field(default_factory=list)

    def load(self, config: Config) -> Loaded:
        """Load the dataset of `config`. Collective."""
        with self.phases("load"):
            return load(config, self.world, self.device, self.phases)


def in_session(config: Config, comm: Any, action: Callable[[Session], T]) -> T:
    """Run `action` between the start and the end of MPI, so that a failure of one rank ends all."""
    # The device is chosen first: MPI must find it selected when it starts.
    device = choose_device(config.run.device)
    session = Session(start(config.run.threads, comm), device)
    try:
        with (
            _log_to_screen(config.run.log_level, session.world),
            ends_the_job(session.world, session.phases, session.folder),
        ):
            together(session.world, lambda: check_device(config.run.device, device))
            return action(session)
    finally:
        finish(session.world)


def check_settings(config: Config, world: World) -> None:
    """Raise for settings that do not fit the dataset or the ranks, before anything is loaded."""
    dataset = open_for_training(config)
    rank_offsets(dataset.offsets, world.size)
    choose_metric(config.evaluate.metric, dataset)
    strategy_class(config.strategy.name).choose_time_steps(config.strategy, world.size)


@contextmanager
def _log_to_screen(level: str, world: World) -> Iterator[None]:
    """Log from `level` on while the body runs: rank 0 tells its story, the others speak up from warnings on, by name.

    Afterwards the logger is as it was; handlers that the body added are closed.
    """
    severity, propagates, raises = log.level, log.propagate, logging.raiseExceptions
    others = list(log.handlers)
    log.setLevel(level.upper())
    log.propagate = False
    # A log that cannot be written (disk full) must not print tracebacks; metrics and summary report it.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s" if world.rank == 0 else f"[{world.name}] %(message)s"))
    if world.rank != 0:
        handler.setLevel(max(logging.WARNING, log.level))
    log.addHandler(handler)
    try:
        yield
    finally:
        for each in [each for each in log.handlers if each not in others]:
            log.removeHandler(each)
            with suppress(OSError):
                each.close()
        log.propagate, logging.raiseExceptions = propagates, raises
        log.setLevel(severity)
