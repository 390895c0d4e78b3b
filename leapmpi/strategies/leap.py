"""`leap`: feature-centric training (LeapGNN, FAST'25): each root is trained where its features are.

At N time steps, N models visit the N ranks in a ring, taking their accumulated gradients along; at fewer, steps are
merged (`--merge`). At one time step each rank trains all roots at home there; with synchronous updates the gradient is
the same and no model moves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.config.setting import parse_size
from leapmpi.engine.context import RankContext
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.strategy import Strategy
from leapmpi.engine.tuner import Tuner
from leapmpi.engine.tuning import Candidate, candidates, predicted_seconds, settled_rates
from leapmpi.engine.tuning_log import TuningRecord
from leapmpi.errors import ConfigError
from leapmpi.plan.cost_model import Rates
from leapmpi.plan.homes import home_of
from leapmpi.plan.load_balance import balanced, moving_price
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.plan.planner import Rule, merge_rule, plan_leap
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic

TIME_STEPS = "time_steps"


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

    def __init__(self, surroundings: RankContext, config: StrategyConfig) -> None:
        super().__init__(surroundings, config)
        self.tuner: Tuner | None = None
        # What a micrograph away from home costs beyond its work, by the rates of the job; never moved while unknown.
        self.price = 0.0 if config.balance == "on" else math.inf
        self._restored = False
        self._last: tuple[int, int, int, float] | None = None

    @cached_property
    def rule(self) -> Rule:
        """How time steps are merged."""
        return merge_rule(self.config.merge)

    @cached_property
    def expected(self) -> ExpectedWork:
        """What micrographs are expected to cost."""
        topology = self.ctx.sampler.topology
        return ExpectedWork(topology.indptr, topology.indices, self.ctx.sampler.fanouts)

    @property
    def balances(self) -> bool:
        """Whether roots may move, as far as their price is known."""
        return self.config.balance != "off" and self.price < math.inf

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """All roots at home; at more than one step the batch is cut into N models that visit the ranks."""
        return self.cut(batch, self.time_steps, epoch, iteration)

    def cut(self, batch: np.ndarray, time_steps: int, epoch: int, iteration: int) -> Schedule:
        """The schedule of `batch` in so many `time_steps`. Local."""
        ctx, moves = self.ctx, self.balances
        merges = self.config.merge == "balanced" and 1 < time_steps < ctx.communicator.size
        cost = self.expected.of(batch) if moves or merges else None
        rank = balanced(home_of(batch, ctx.rank_offsets), cost, ctx.communicator.size, self.price) if moves else None
        return plan_leap(
            batch, ctx.rank_offsets, time_steps,
            merge=self.rule, cost=cost, rank=rank, seed=ctx.seed, epoch=epoch, iteration=iteration,
        )  # fmt: skip

    def settle(self, batch: np.ndarray | None) -> None:
        """Measure this job's rates, and choose time steps and the price of moving a root by them. Collective."""
        if self._restored:
            return
        if self.config.balance == "auto":
            rates = settled_rates(self, batch)
            self.price = moving_price(self._remote_row_bytes(), rates.row, rates.edge, rates.byte)
        limit = parse_size(self.config.memory_limit, "--memory-limit") if self.config.memory_limit else None
        if self.config.time_steps == "auto" and self.ctx.communicator.size > 1:
            rates = settled_rates(self, batch)
            self._start_tuner(candidates(self, batch, limit), rates)
        elif limit is not None:
            # One rank has nothing to choose, but the limit holds there too.
            candidates(self, batch, limit)

    def _start_tuner(self, found: list[Candidate], rates: Rates) -> None:
        """Begin with the fewest time steps `found`, a decision of the run, and let clocks choose among them."""
        self.time_steps = found[0].time_steps
        predicted = predicted_seconds(found, rates)
        self.tuner = Tuner(self.time_steps, predicted)
        evidence = {"predicted": {str(steps): seconds for steps, seconds in predicted.items()}}
        evidence["memory"] = {str(each.time_steps): each.memory for each in found}
        self.tuning_log.make(TuningRecord(TIME_STEPS, *self.tuning_log.begin, self.time_steps, evidence))

    def state(self) -> dict[str, Any]:
        """With the price of moving roots and the tuner."""
        return super().state() | {
            "price": self.price if self.price < math.inf else None,
            "tuner": self.tuner.state() if self.tuner else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """On as many ranks as before, go on with the tuner and the price; on others they are settled anew."""
        super().restore(state)
        self._restored = state["ranks"] == self.ctx.communicator.size
        if not self._restored:
            return
        self.price = math.inf if state["price"] is None else state["price"]
        self.tuner = Tuner.restored(state["tuner"]) if state["tuner"] else None

    def decide(self, epoch: int, iteration: int) -> None:
        """Take the tuner's choice, or that of the replayed run."""
        if self.tuning_log.replays:
            choice = self.tuning_log.earlier(TIME_STEPS, epoch, iteration)
            if choice is None or (epoch, iteration) == (0, 0):
                return
            self.time_steps = choice.value
            self.tuning_log.make(choice)
        elif self.tuner and (found := self.tuner.choose()):
            self.time_steps = found.time_steps
            self.tuning_log.make(TuningRecord(TIME_STEPS, epoch, iteration, found.time_steps, found.evidence))

    def stepped(self, minibatch: MiniBatch) -> None:
        """Tell the tuner how long the iteration took, from the end of the one before."""
        if self.tuner is None or self.ctx.communicator.rank != 0 or self.tuner.settled:
            return
        schedule, now = minibatch.schedule, time.perf_counter()
        before, self._last = self._last, (schedule.epoch, schedule.iteration, schedule.time_steps, now)
        if before and before[:3] == (schedule.epoch, schedule.iteration - 1, schedule.time_steps):
            self.tuner.add(schedule.time_steps, now - before[3])

    def _remote_row_bytes(self) -> int:
        """Bytes that cross ranks for a row away from home."""
        layer, ids = self.ctx.model.layers[0], self.ctx.features.ranges.id_bytes
        if self.remote_name == "raw":
            return ids + self.ctx.features.shard.row_bytes
        return ids + 2 * layer.projected_width * layer.bias.element_size()

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """What every strategy moves, and models with their gradients between time steps."""
        super().predict(minibatches, traffic)
        if self.config.migrate != "ring":
            return
        rank, schedule, size = self.ctx.communicator.rank, minibatches[0].schedule, self.ctx.parameters.gradients.nbytes
        for step in range(schedule.time_steps - 1):
            traffic.add_hop(rank, _distance(schedule, step), {"parameters": size, "gradients": size})

    def after_step(self, minibatch: MiniBatch, step: int) -> None:
        """Pass the model trained here, with its gradients so far, on to the rank that trains it next. Collective."""
        if self.config.migrate != "ring":
            return
        parameters = self.ctx.parameters
        size = parameters.gradients.nbytes
        with self.ctx.phases("migrate"):
            kinds = (("parameters", size), ("gradients", size))
            self.ctx.communicator.ring_hop(parameters.state, kinds, _distance(minibatch.schedule, step))


def _distance(schedule: Schedule, step: int) -> int:
    """How many ranks back every model goes after `step`."""
    return schedule.model_of(0, step + 1) - schedule.model_of(0, step)


STRATEGY = Leap
