"""Strategies: where each root of a batch is trained, and what travels between time steps.

A `Strategy` says what holds for a strategy on any rank: its settings, where parameters and features go, how layer 0 is
fed. A `Placement` is one strategy on one rank. It decides which rank trains which root at which time step (`schedule`;
that of rank 0 holds), and what ranks pass on after a step. The Engine does the rest, alike for all strategies.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.tuner import Tuner
from leapmpi.engine.tuning_log import TIME_STEPS, TuningLog, TuningRecord
from leapmpi.errors import DataError
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.selection import exchange_mode
from leapmpi.features.shards.mapped_shard import check_feature_memory
from leapmpi.plan.schedule import Schedule
from leapmpi.registry import Member, Registry

if TYPE_CHECKING:
    from leapmpi.comm.world import World
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.exchange.minibatch import MiniBatch
    from leapmpi.exchange.mode import ExchangeMode


def _reads_own_lists(config: StrategyConfig) -> str:
    return ""


def _parameters_everywhere(ctx: RankContext) -> RankContext:
    return ctx


def _as_loaded(world: World, loaded: Loaded) -> Loaded:
    return loaded


def _has_room(world: World, loaded: Loaded) -> None:
    return


def held_feature_bytes(ctx: RankContext) -> int:
    """Count the bytes of the features that this rank holds, copies of remote rows included."""
    features = ctx.features
    return features.shard.resident_bytes + (features.cached_bytes(features.cache) if features.cache else 0)


@dataclass(frozen=True)
class Strategy(Member):
    """One strategy, on any rank. All functions are local."""

    placement: Callable[[RankContext, StrategyConfig, Strategy], Placement]
    choose_time_steps: Callable[[StrategyConfig, int], int]
    """Number of time steps on so many ranks. Raises ConfigError for one that this strategy cannot take."""
    preparation: type[Any] | None = None
    """The Preparation (engine.py) of its mini-batches; None where each rank draws micrographs."""
    mode: Callable[[RankContext, StrategyConfig], tuple[str, ExchangeMode]] | None = None
    """Name and mode by which layer 0 is fed; None where `--remote` says how. Raises ConfigError for other models."""

    roots_are_local: bool = True
    """Whether every root is trained on its home rank; else roots are assigned to ranks at random."""
    labels_from: int = 0
    """Offset of the rank that trains the roots whose loss a rank computes."""
    takes_full_batch: bool = False
    """Whether `--batch-size full` is supported."""
    by_layer: bool = False
    """Whether each layer is computed over all ranks, with draws and destinations of its own."""
    reassigns_parts: bool = False
    """Whether `--balance-parts` is supported."""
    opens_time_steps: bool = False
    """Whether `--time-steps auto` may become more than one, by memory or by measured times."""

    check_settings: Callable[[Config, Dataset], None] = check_feature_memory
    """Raises ConfigError for settings with which this strategy cannot train a dataset."""
    why_whole_topology: Callable[[StrategyConfig], str] = _reads_own_lists
    """Why it reads the lists of vertices of other ranks, and what else to choose; empty if it does not."""
    place_parameters: Callable[[RankContext], RankContext] = _parameters_everywhere
    """The model's parameters on the ranks that need them. Raises ConfigError where the model cannot be split so."""
    place: Callable[[World, Loaded], Loaded] = _as_loaded
    """Parameters and features as this strategy needs them. Raises ConfigError, ResourceError where that cannot be."""
    check_room: Callable[[World, Loaded], None] = _has_room
    """Raises ResourceError where `place` would find too little memory."""
    feature_bytes: Callable[[RankContext], int] = held_feature_bytes
    """Bytes of the features that a rank holds."""


STRATEGIES = Registry("strategy", "leapmpi.strategies", Strategy)


def strategy_named(name: str) -> Strategy:
    """Return the strategy called `name`; leap stands in for `auto` until that is chosen.

    Raises ConfigError for an unknown one.
    """
    return STRATEGIES.load("leap" if name == "auto" else name)


class Placement(ABC):
    """One strategy on one rank."""

    def __init__(self, ctx: RankContext, config: StrategyConfig, strategy: Strategy) -> None:
        self.ctx, self.config, self.strategy = ctx, config, strategy
        self.time_steps = strategy.choose_time_steps(config, ctx.ranks)
        self.restored = False
        self.tuner: Tuner | None = None
        """Tuner of time steps, once they are measured."""
        self._last: tuple[int, int, int, float] | None = None

    @abstractmethod
    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Assign `batch` (int64 roots in shuffled order) to ranks and time steps; `time_steps` overrides their number.

        Local and pure. In training rank 0 alone calls it, in dry runs every rank does.
        """

    def after_step(self, minibatch: MiniBatch, step: int) -> None:
        """Send what moves between time step `step` and the next one. Collective."""
        return

    def decide(self, log: TuningLog, epoch: int, iteration: int) -> None:
        """Take the tuner's choice, or that of the replayed run, from this iteration on. Local, on rank 0.

        Other ranks see it in the schedule.
        """
        if not self.strategy.opens_time_steps:
            return
        if log.replays:
            choice = log.earlier(TIME_STEPS, epoch, iteration)
            # The first choice was made before training, and is replayed there.
            if choice is None or (epoch, iteration) == (0, 0):
                return
            self.time_steps = choice.value
            log.make(choice)
        elif self.tuner and (found := self.tuner.choose()):
            self.time_steps = found.time_steps
            log.make(TuningRecord(TIME_STEPS, epoch, iteration, found.time_steps, found.evidence))

    def iteration_ended(self, minibatch: MiniBatch) -> None:
        """Report to the tuner how long the iteration took, from the end of the one before. Local."""
        if self.tuner is None or self.ctx.rank != 0 or self.tuner.decided:
            return
        schedule, now = minibatch.planned, time.perf_counter()
        before, self._last = self._last, (schedule.epoch, schedule.iteration, schedule.time_steps, now)
        if before and before[:3] == (schedule.epoch, schedule.iteration - 1, schedule.time_steps):
            self.tuner.add(schedule.time_steps, now - before[3])

    def state(self) -> dict[str, Any]:
        """Return the choices of this strategy, the same on all ranks: plain values and numpy arrays by name. Local."""
        tuner = {"tuner": self.tuner.state() if self.tuner else None} if self.strategy.opens_time_steps else {}
        return {"time_steps": self.time_steps} | tuner

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the `state` of an earlier start on as many ranks; not called on others. Collective.

        Raises DataError, on all ranks alike, for a number of time steps that these ranks cannot have.
        """
        if not 1 <= state["time_steps"] <= self.ctx.ranks:
            error = DataError(f"the checkpoint has {state['time_steps']} time steps; choose another --run folder")
            error.agreed = True
            raise error
        self.restored = True
        self.time_steps = state["time_steps"]
        self.tuner = Tuner.restored(state["tuner"]) if state.get("tuner") else None


def placement_of(ctx: RankContext, config: StrategyConfig) -> Placement:
    """Return the strategy that `config` names, on this rank. Raises ConfigError for an unknown one."""
    strategy = strategy_named(config.name)
    return strategy.placement(ctx, config, strategy)


def mode_of(placement: Placement) -> tuple[str, ExchangeMode]:
    """Return name and mode by which layer 0 is fed; raw rows stand in for `auto` until the engine has chosen."""
    ctx, config = placement.ctx, placement.config
    if placement.strategy.mode is not None:
        return placement.strategy.mode(ctx, config)
    name = "raw" if config.remote == "auto" else config.remote
    return name, exchange_mode(name, ctx)


def mode_is_open(placement: Placement) -> bool:
    """Return whether the engine chooses the exchange mode."""
    return placement.strategy.mode is None and placement.config.remote == "auto"


def time_steps_are_open(placement: Placement) -> bool:
    """Return whether the number of time steps is chosen by memory, measured rates and times."""
    config, several = placement.config, placement.ctx.ranks > 1
    limited = config.time_steps == "auto" and bool(config.memory_limit)
    return placement.strategy.opens_time_steps and several and (limited or config.time_steps == "measured")


def plans_ahead(placement: Placement) -> bool:
    """Return whether `decide` changes nothing from now on, so that iterations to come may be scheduled now. Local.

    All ranks find the same.
    """
    unchanged = type(placement).decide is Placement.decide
    return unchanged and not (time_steps_are_open(placement) and placement.config.time_steps == "measured")


def labelled_rank(placement: Placement) -> int:
    """Return the rank that trains the roots whose loss this rank computes."""
    return (placement.ctx.rank + placement.strategy.labels_from) % placement.ctx.ranks


def labelled(placement: Placement, minibatch: MiniBatch) -> list[np.ndarray]:
    """Return the roots (int64) whose loss this rank computes, by micro-batch. Local."""
    planned, rank = minibatch.planned, labelled_rank(placement)
    return [planned.cell(rank, step) for step in range(len(minibatch.micro_batches))]


def trains_labelled(placement: Placement) -> bool:
    """Return whether each rank computes the loss of its own micro-batches' roots."""
    return placement.strategy.labels_from == 0
