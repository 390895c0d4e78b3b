"""The training loop where some ranks prepare and others compute: all ranks go through the same iterations.

A preparation rank's iterations do nothing themselves: mini-batches are prepared and sent ahead of them, as many as
--prefetch says. The vote that ends each iteration is what compute ranks give credit by: a preparation rank goes on to
the next one when all compute ranks have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.engine.disaggregated.compute_engine import ComputeEngine
from leapmpi.engine.disaggregated.preparation_engine import PreparationEngine
from leapmpi.engine.engine import Engine
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.evaluation.remote_evaluation import RemoteEvaluator
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.fault_tolerance.stop_signals import StopRequest, begin_vote
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.role_balance import RoleBalance
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.session.setup import warm_up
from leapmpi.training.trainer import Trainer

_TIMES = 3
"""How often the first iteration is timed."""


class DisaggregatedTrainer(Trainer):
    """Trains one model on the ranks that compute, on mini-batches of those that prepare."""

    loaded: LoadedByRole
    balance: RoleBalance
    """What a mini-batch costs each role, by clocks: for people, nothing is chosen by it."""

    def make_engine(self) -> Engine:
        loaded, strategy = self.loaded, self.config.strategy
        if not loaded.prepares:
            return ComputeEngine(loaded.of_role, strategy, loaded.shipping)
        offsets = rank_offsets(loaded.dataset.offsets, loaded.roles.shares)
        return PreparationEngine(loaded.of_role, strategy, loaded.shipping, offsets)

    def make_evaluator(self) -> Evaluator:
        return RemoteEvaluator(self.config, self.loaded)

    def planned_batches(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The epoch's batches on the first rank that prepares, which plans; None elsewhere."""
        if self.world.rank != self.loaded.roles.computing:
            return None
        with self.ctx.phases("plan"):
            return self.epoch_batches(epoch)

    def warm_up(self) -> None:
        """Compile what a preparation rank needs; the first mini-batch compiles the rest."""
        if self.loaded.prepares:
            warm_up(self.loaded.role, self.loaded.of_role, self.config)

    def dry_run(self, batch: np.ndarray | None) -> None:
        """The first iteration twice: to compile its kernels, then to see what it costs each role."""
        self.engine.dry_run(batch)
        engine = self.engine
        assert isinstance(engine, PreparationEngine | ComputeEngine), "what `make_engine` gives"
        mine = [np.array(engine.timed(batch)) for _ in range(_TIMES)]
        prepare, send, compute = self.ctx.communicator.all_gather_rows(np.median(mine, axis=0)).max(axis=0).tolist()
        self.balance = RoleBalance(prepare * self.loaded.roles.preparing, send, compute)

    def roles_record(self) -> dict[str, Any] | None:
        roles = self.loaded.roles
        return {"computing": roles.computing, "preparing": roles.preparing, **self.balance.to_values()}

    def sentences(self) -> list[str]:
        """How many ranks would have to prepare, by what the first iteration took."""
        roles = self.loaded.roles
        return [f"by clocks, {self.balance.sentence(roles.preparing, roles.computing)}"]

    def train_epoch(self, epoch: int) -> dict[str, Any]:
        """One pass over the roots, iteration by iteration on all ranks; its record says how busy compute ranks were."""
        self._watcher = self._watcher or Pace(self.ctx.communicator)
        record = super().train_epoch(epoch)
        phases, computing = self.progress.phases, self.loaded.roles.computing
        # Without work ahead, shares are waited for in the exchange.
        mine = phases["wait"] + (0.0 if self.prefetch_depth else phases["exchange"])
        waits = self.ctx.communicator.all_gather_rows(np.array([mine]))[:computing]
        return {**record, "busy": 1 - float(waits.mean()) / record["seconds"]}

    def train_iteration(self, minibatch: MiniBatch, number: int) -> float:
        """Take the step of iteration `number` on the ranks that compute, whose gradients are added up already."""
        self.ctx.parameters.gradients.zero_()
        loss = self.engine.forward_backward(minibatch)
        if not self.loaded.prepares:
            with self.ctx.phases("compute"):
                self.optimizer.step(number)
        self.engine.placement.iteration_ended(minibatch)
        return loss


class Pace:
    """Keeps preparation ranks in step with compute ranks where nobody else watches the iterations."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self._answer: Callable[[], StopRequest] = StopRequest

    def iteration_begins(self) -> None:
        """Begin a vote in which nobody wants anything. Collective."""
        self._answer = begin_vote(self.communicator, StopRequest())

    def iteration_ended(self, quiet: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Wait until all ranks have begun the iteration. Collective."""
        self._answer()

    def evaluation_round(self) -> AbstractContextManager[None]:
        """Rounds of an evaluation need no pace."""
        return nullcontext()
