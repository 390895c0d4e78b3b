"""`leap`: feature-centric training (LeapGNN, FAST'25): each root is trained on its home rank, where its features are.

At N time steps, N models visit the N ranks in a ring and take their accumulated gradients along; at fewer, steps are
merged (`--merge`). At one time step each rank trains all roots whose home it is; with synchronous updates the gradient
is the same and no model moves.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.placement import Placement, Strategy
from leapmpi.errors import ConfigError, counted
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.plan.planner import merge_rule, plan_leap
from leapmpi.plan.root_assignment import Rule
from leapmpi.plan.schedule import Schedule


class Leap(Placement):
    """Roots on their home ranks, in any number of time steps up to that of the ranks."""

    @cached_property
    def rule(self) -> Rule:
        """Rule by which time steps are merged."""
        return merge_rule(self.config.merge)

    @cached_property
    def expected_work(self) -> ExpectedWork:
        """Expected cost of micrographs."""
        topology = self.ctx.sampler.topology
        return ExpectedWork(topology.indptr, topology.indices, self.ctx.sampler.fanouts)

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Assign roots to their home ranks; at more than one step cut the batch into N models that visit the ranks."""
        ctx, steps = self.ctx, time_steps or self.time_steps

        # Costs take time to predict, and nothing is merged at one step, nor at as many as ranks.
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
            self.ctx.communicator.ring_hop(parameters.state, kinds, _distance(minibatch.planned, self.ctx.rank, step))


def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
    """Return the number to begin with, 1 unless one is given. Raises ConfigError for more time steps than ranks."""
    if config.time_steps in ("auto", "measured"):
        return 1
    if config.time_steps == "N":
        return ranks
    if int(config.time_steps) > ranks:
        raise ConfigError(
            f"strategy.time_steps: leap on {counted(ranks, 'rank')} takes auto, measured, N or a number up to "
            f"{ranks}, not {config.time_steps}"
        )
    return int(config.time_steps)


def why_whole_topology(config: StrategyConfig) -> str:
    """Explain which merge rule reads the lists of all vertices."""
    return "--merge balanced counts the lists of all vertices; take another" if config.merge == "balanced" else ""


def _distance(schedule: Schedule, rank: int, step: int) -> int:
    """Return how many ranks back every model goes after `step`, in the ring, as that of `rank` does."""
    return schedule.model_of(rank, step + 1) - schedule.model_of(rank, step)


MEMBER = Strategy(
    Leap, choose_time_steps, takes_full_batch=True, opens_time_steps=True, why_whole_topology=why_whole_topology
)
