"""`leap`: feature-centric training (LeapGNN, FAST'25): each root is trained on its home rank, where its features are.

At N time steps, N models visit the N ranks in a ring and take their accumulated gradients along; at fewer, steps are
merged (`--merge`). At one time step each rank trains all roots whose home it is; with synchronous updates the gradient
is the same and no model moves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.placement import Placement, StrategyMember
from leapmpi.engine.tuner import Tuner
from leapmpi.engine.tuning_log import TIME_STEPS, TuningLog, TuningRecord
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.plan.planner import merge_rule, plan_leap
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic


class Leap(Placement):
    """Roots on their home ranks, in any number of time steps up to that of the ranks."""

    takes_full_batch = True

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        super().__init__(ctx, config)
        self.tuner: Tuner | None = None
        self.rule = merge_rule(config.merge)
        """Rule by which time steps are merged."""
        self._last: tuple[int, int, int, float] | None = None

    @staticmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """Return 1 for auto. Raises ConfigError for more time steps than ranks."""
        if config.time_steps in ("auto", "N"):
            return 1 if config.time_steps == "auto" else ranks
        if int(config.time_steps) > ranks:
            raise ConfigError(
                f"strategy.time_steps: leap on {ranks} rank{'s' * (ranks > 1)} takes auto, N or a number up to "
                f"{ranks}, not {config.time_steps}"
            )
        return int(config.time_steps)

    @classmethod
    def why_whole_topology(cls, config: StrategyConfig) -> str:
        return "--merge balanced counts the lists of all vertices; take another" if config.merge == "balanced" else ""

    @cached_property
    def expected_work(self) -> ExpectedWork:
        """Expected cost of micrographs."""
        topology = self.ctx.sampler.topology
        return ExpectedWork(topology.indptr, topology.indices, self.ctx.sampler.fanouts)

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Assign roots to their home ranks; at more than one step cut the batch into N models that visit the ranks."""
        ctx, steps = self.ctx, time_steps or self.time_steps

        # The expected cost of each micrograph, where steps are merged by it.
        merges_by_cost = self.config.merge == "balanced" and 1 < steps < ctx.ranks
        cost = self.expected_work.of(batch) if merges_by_cost else None
        return plan_leap(
            batch,
            ctx.rank_offsets,
            steps,
            merge=self.rule,
            cost=cost,
            seed=ctx.seed,
            epoch=epoch,
            iteration=iteration,
        )

    def after_step(self, minibatch: MiniBatch, step: int) -> None:
        """Send the model trained here, with its gradients so far, to the rank that trains it next. Collective."""
        parameters = self.ctx.parameters
        size = parameters.gradients.nbytes
        with self.ctx.phases("migrate"):
            kinds = (("parameters", size), ("gradients", size))
            self.ctx.communicator.ring_hop(parameters.state, kinds, _distance(minibatch.planned, step))

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Add models with their gradients, between time steps."""
        schedule, size = minibatches[0].planned, self.ctx.parameters.gradients.nbytes
        for step in range(schedule.time_steps - 1):
            traffic.add_hop(self.ctx.rank, _distance(schedule, step), {"parameters": size, "gradients": size})

    @property
    def time_steps_are_open(self) -> bool:
        """Several ranks may cut an iteration into more steps, for memory's sake or where clocks are asked."""
        config = self.config
        return config.time_steps == "auto" and self.ctx.ranks > 1 and (config.tune or bool(config.memory_limit))

    def tune_time_steps(self, predicted: dict[int, float]) -> None:
        """Begin with the fewest, and with --tune let measured times choose among them."""
        self.time_steps = min(predicted)
        self.tuner = Tuner(self.time_steps, predicted) if self.config.tune else None

    @property
    def plans_ahead(self) -> bool:
        """Whether no tuner changes the time steps."""
        return type(self).decide is Leap.decide and not (self.time_steps_are_open and self.config.tune)

    def decide(self, log: TuningLog, epoch: int, iteration: int) -> None:
        """Take the tuner's choice, or that of the replayed run."""
        if log.replays:
            choice = log.earlier(TIME_STEPS, epoch, iteration)
            if choice is None or (epoch, iteration) == (0, 0):
                return
            self.time_steps = choice.value
            log.make(choice)
        elif self.tuner and (found := self.tuner.choose()):
            self.time_steps = found.time_steps
            log.make(TuningRecord(TIME_STEPS, epoch, iteration, found.time_steps, found.evidence))

    def iteration_ended(self, minibatch: MiniBatch) -> None:
        """Report to the tuner how long the iteration took, from the end of the one before."""
        if self.tuner is None or self.ctx.rank != 0 or self.tuner.decided:
            return
        schedule, now = minibatch.planned, time.perf_counter()
        before, self._last = self._last, (schedule.epoch, schedule.iteration, schedule.time_steps, now)
        if before and before[:3] == (schedule.epoch, schedule.iteration - 1, schedule.time_steps):
            self.tuner.add(schedule.time_steps, now - before[3])

    def state(self) -> dict[str, Any]:
        """Return the state with the tuner's."""
        return super().state() | {"tuner": self.tuner.state() if self.tuner else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the tuner too; another number of ranks has another."""
        super().restore(state)
        self.tuner = Tuner.restored(state["tuner"]) if state["tuner"] else None


def _distance(schedule: Schedule, step: int) -> int:
    """Return how many ranks back every model goes after `step`."""
    return schedule.model_of(0, step + 1) - schedule.model_of(0, step)


MEMBER = StrategyMember(Leap)
