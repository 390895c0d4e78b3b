"""Base of strategies: where each root of a batch is trained, and what travels between time steps.

A placement decides which rank trains which root at which time step (`schedule`; that of rank 0 holds) and what ranks
pass on after a step. All else is the same for all strategies and is done by the Engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
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
    from leapmpi.engine.tuning_log import TuningLog
    from leapmpi.exchange.minibatch import MiniBatch
    from leapmpi.exchange.mode import ExchangeMode
    from leapmpi.plan.traffic_model import Traffic


class Placement(ABC):
    """One strategy on one rank."""

    roots_are_local = True
    """Whether every root is trained on its home rank; else roots are assigned to ranks at random."""

    trains_labelled = True
    """Whether this rank computes the loss of its own micro-batches' roots; False where `labelled_rank` says another."""

    takes_full_batch = False
    """Whether `--batch-size full` is supported."""

    deals_parts = False
    """Whether `--balance-parts` is supported."""

    def __init_subclass__(cls) -> None:
        """Set `trains_labelled` to False in a strategy that overrides `labelled_rank`."""
        if "labelled_rank" in vars(cls) and "trains_labelled" not in vars(cls):
            cls.trains_labelled = False

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        self.ctx = ctx
        self.config = config
        self.time_steps = self.choose_time_steps(config, ctx.ranks)
        self.restored = False

    @staticmethod
    @abstractmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """Return the number of time steps of an iteration. Raises ConfigError for one that this strategy cannot
        take.
        """

    @classmethod
    def check_settings(cls, config: Config, dataset: Dataset) -> None:
        """Raise ConfigError for settings with which this strategy cannot train `dataset`. Local."""
        check_feature_memory(config, dataset)

    draws_by_layer = False
    """Whether the destinations of each layer draw by themselves, not with those of the layers above."""

    @classmethod
    def why_whole_topology(cls, config: StrategyConfig) -> str:
        """Return why this strategy reads the lists of vertices of other ranks, and what else to choose; empty if it
        does not.

        Local.
        """
        return ""

    @classmethod
    def place_parameters(cls, ctx: RankContext) -> RankContext:
        """Return `ctx` with the model's parameters on the ranks where this strategy needs them. Local, nothing is read.

        Raises ConfigError where the model cannot be split so.
        """
        return ctx

    @classmethod
    def place(cls, world: World, loaded: Loaded) -> Loaded:
        """Return `loaded` with parameters and features held as this strategy needs them. Local.

        Raises ConfigError and ResourceError where that cannot be.
        """
        return loaded

    @classmethod
    def check_room(cls, world: World, loaded: Loaded) -> None:
        """Raise ResourceError where `place` would find too little memory. Local."""
        return

    def exchange_mode(self) -> tuple[str, ExchangeMode]:
        """Name and mode by which layer 0 is fed; raw rows stand in for `auto` until the engine has chosen."""
        name = "raw" if self.config.remote == "auto" else self.config.remote
        return name, exchange_mode(name, self.ctx)

    @property
    def mode_is_open(self) -> bool:
        """Whether the engine chooses the exchange mode."""
        return self.config.remote == "auto"

    @abstractmethod
    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Assign `batch` (int64 roots in shuffled order) to ranks and time steps; `time_steps` overrides their number.

        Local and pure. In training rank 0 alone calls it, in dry runs every rank does.
        """

    @property
    def labelled_rank(self) -> int:
        """The rank whose share of a batch this rank computes the loss of: its own, unless a model ends elsewhere."""
        return self.ctx.rank

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        """Return the roots (int64) whose loss this rank computes, by micro-batch. Local."""
        planned = minibatch.planned
        return [planned.cell(self.labelled_rank, step) for step in range(len(minibatch.micro_batches))]

    def after_step(self, minibatch: MiniBatch, step: int) -> None:
        """Send what moves between time step `step` and the next one. Collective."""
        return

    @property
    def time_steps_are_open(self) -> bool:
        """Whether the number of time steps is chosen by measured rates and times."""
        return False

    def tune_time_steps(self, predicted: dict[int, float]) -> None:
        """Begin with the fewest time steps of `predicted` (seconds by time steps), then try others. Local."""
        return

    def decide(self, log: TuningLog, epoch: int, iteration: int) -> None:
        """Choose what holds from this iteration on, and record it in `log`. Local, on rank 0.

        Other ranks see it in the schedule.
        """
        return

    @property
    def plans_ahead(self) -> bool:
        """Whether `decide` changes nothing from now on, so that iterations to come may be scheduled now. Local.

        All ranks find the same.
        """
        return type(self).decide is Placement.decide

    def iteration_ended(self, minibatch: MiniBatch) -> None:
        """Note that all ranks are done with `minibatch`. Local."""
        return

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Add to `traffic` what this rank sends between time steps, given the mini-batches of all ranks. Local."""
        return

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features that this rank holds, copies of remote rows included."""
        features = self.ctx.features
        return features.shard.resident_bytes + (features.cached_bytes(features.cache) if features.cache else 0)

    def state(self) -> dict[str, Any]:
        """Return the choices of this strategy, the same on all ranks: plain values and numpy arrays by name. Local."""
        return {"time_steps": self.time_steps}

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

    def rank_state(self) -> dict[str, np.ndarray]:
        """Return the arrays that this rank alone keeps, by name; empty if ranks keep nothing of their own. Local."""
        return {}

    def restore_rank(self, state: dict[str, np.ndarray]) -> None:
        """Take over the `rank_state` of this rank; empty where there was none, or other ranks. Collective."""
        return


@dataclass(frozen=True)
class StrategyMember(Member):
    """A strategy."""

    placement: type[Placement]
    preparation: type[Any] | None = None
    """The Preparation (engine.py) of its mini-batches; None where each rank draws micrographs."""


STRATEGIES = Registry("strategy", "leapmpi.strategies", StrategyMember)


def placement_class(name: str) -> type[Placement]:
    """Return the strategy called `name`; leap stands in for `auto` until that is chosen.

    Raises ConfigError for an unknown one.
    """
    return STRATEGIES.load("leap" if name == "auto" else name).placement
