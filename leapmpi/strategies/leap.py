"""`leap`: feature-centric training (LeapGNN, FAST'25): each root is trained where its features are.

At N time steps, N models visit the N ranks in a ring, taking their accumulated gradients along; at fewer, steps are
merged (`--merge`). At one time step each rank trains all roots at home there; with synchronous updates the gradient is
the same and no model moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from leapmpi.config import StrategyConfig
from leapmpi.errors import ConfigError
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.plan.planner import Rule, merge_rule, plan_leap
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic import Traffic
from leapmpi.strategies._iteration import Iteration, Strategy


class Leap(Strategy):
    """Roots at home, in any number of time steps up to that of the ranks."""

    @staticmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """1 for auto. Raises ConfigError for more time steps than ranks."""
        if config.time_steps in ("auto", "N"):
            return 1 if config.time_steps == "auto" else ranks
        if int(config.time_steps) > ranks:
            raise ConfigError(
                f"strategy.time_steps: leap on {ranks} rank{'s' * (ranks > 1)} takes auto, N or a number up to "
                f"{ranks}, not {config.time_steps}"
            )
        return int(config.time_steps)

    @cached_property
    def rule(self) -> Rule:
        """How time steps are merged."""
        return merge_rule(self.config.merge)

    @cached_property
    def expected(self) -> ExpectedWork:
        """What micrographs are expected to cost."""
        topology = self.at.sampler.topology
        return ExpectedWork(topology.indptr, topology.indices, self.at.sampler.fanouts)

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """All roots at home; at more than one step the batch is cut into N models that visit the ranks."""
        cost = self.expected.of(batch) if self.config.merge == "balanced" and self.time_steps > 1 else None
        return plan_leap(
            batch, self.at.rank_offsets, self.time_steps,
            merge=self.rule, cost=cost, seed=self.at.seed, epoch=epoch, iteration=iteration,
        )  # fmt: skip

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """What every strategy moves, and models with their gradients between time steps."""
        super().predict(works, traffic)
        if self.config.migrate != "ring":
            return
        rank, schedule, size = self.at.wire.rank, works[0].schedule, self.at.parameters.gradients.nbytes
        for step in range(schedule.time_steps - 1):
            traffic.add_hop(rank, _distance(schedule, step), {"parameters": size, "gradients": size})

    def after_step(self, work: Iteration, step: int) -> None:
        """Pass the model trained here, with its gradients so far, on to the rank that trains it next. Collective."""
        if self.config.migrate != "ring":
            return
        parameters = self.at.parameters
        size = parameters.gradients.nbytes
        with self.at.phases("migrate"):
            kinds = (("parameters", size), ("gradients", size))
            self.at.wire.ring_hop(parameters.state, kinds, _distance(work.schedule, step))


def _distance(schedule: Schedule, step: int) -> int:
    """How many ranks back every model goes after `step`."""
    return schedule.model_of(0, step + 1) - schedule.model_of(0, step)


STRATEGY = Leap
