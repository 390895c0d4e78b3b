"""Training where some ranks prepare and others compute: all ranks go through the same iterations.

The iterations of a preparation rank do nothing themselves: its mini-batches are prepared and sent ahead of them, as
many as --prefetch says. The vote that ends each iteration gives it credit: a preparation rank goes on to the next
iteration when all compute ranks have done so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.config.schema import Config
from leapmpi.engine.disaggregated.share_preparation import SharePreparation, preparing_engine
from leapmpi.engine.disaggregated.share_training import ShareReception, computing_engine
from leapmpi.engine.engine import Engine
from leapmpi.fault_tolerance.stop_signals import StopRequest, begin_vote
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.role_balance import RoleBalance
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.session.warm_up import warm_up
from leapmpi.training.epoch_record import EpochProgress

_TIMES = 3
"""Timed runs of the first iteration."""


class RoleTraining:
    """The part of a training that depends on this rank's role."""

    def __init__(self, loaded: LoadedByRole) -> None:
        self.loaded, self.roles = loaded, loaded.roles

    @property
    def planner(self) -> int:
        """Rank that plans: the first one that prepares."""
        return self.roles.computing

    def engine(self, config: Config) -> Engine:
        """Return the engine of this rank. Local."""
        loaded, strategy = self.loaded, config.strategy
        if not loaded.prepares:
            return computing_engine(loaded.of_role, strategy, loaded.shipping)
        offsets = rank_offsets(loaded.dataset.offsets, self.roles.shares)
        return preparing_engine(loaded.of_role, strategy, loaded.shipping, offsets)

    def warm_up(self, config: Config) -> None:
        """Compile what a preparation rank needs; the first mini-batch compiles the rest. Local."""
        if self.loaded.prepares:
            warm_up(self.loaded.role, self.loaded.of_role, config)

    def measure(self, engine: Engine, batch: np.ndarray | None) -> RoleBalance:
        """Run the first iteration to compile its kernels, then time what it costs each role. Collective.

        The times are for people: no choice depends on them.
        """
        preparation = engine.preparation
        assert isinstance(preparation, SharePreparation | ShareReception), "`engine` has made it"
        mine = [np.array(preparation.timed(batch)) for _ in range(1 + _TIMES)][1:]
        medians = self.loaded.ctx.communicator.all_gather_rows(np.median(mine, axis=0))
        prepare, send, compute = medians.max(axis=0).tolist()
        return RoleBalance(prepare * self.roles.preparing, send, compute)

    def busy(self, progress: EpochProgress, prefetches: bool, seconds: float) -> float:
        """Return the mean share of an epoch's `seconds` in which compute ranks did not wait. Collective."""
        # Without work ahead, shares are waited for in the exchange.
        mine = progress.phases["wait"] + (0.0 if prefetches else progress.phases["exchange"])
        waits = self.loaded.ctx.communicator.all_gather_rows(np.array([mine]))[: self.roles.computing]
        return 1 - float(waits.mean()) / seconds


class Pace:
    """Keeps preparation ranks in step with compute ranks if nothing else watches the iterations."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self._answer: Callable[[], StopRequest] = StopRequest

    def iteration_begins(self) -> None:
        """Begin a vote in which no rank wants anything. Collective."""
        self._answer = begin_vote(self.communicator, StopRequest())

    def iteration_ended(self, quiet: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Wait until all ranks have begun the iteration. Collective."""
        self._answer()

    def evaluation_round(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: rounds of an evaluation need no pace."""
        return nullcontext()
