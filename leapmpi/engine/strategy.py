"""What all strategies do in an iteration: plan, fetch, step.

A strategy decides which rank trains which root at which time step (`schedule`, pure; that of rank 0 holds) and whether
models travel between steps. Everything else - sampling, the union of rows over the whole iteration, the weighted loss,
the order of collectives - is the same for all and stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.context import RankContext
from leapmpi.engine.first_layer.base import FirstLayerMode
from leapmpi.engine.first_layer.selection import remote_mode
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.engine.tuning_log import TuningLog, TuningRecord
from leapmpi.features.row_request import RowRequest
from leapmpi.plan.memory_model import block_bytes, hidden_bytes
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.counter_rng import TRAIN, DrawKey

if TYPE_CHECKING:
    from leapmpi.comm.world import World
    from leapmpi.config.schema import Config
    from leapmpi.engine.context import Loaded
    from leapmpi.plan.cost_model import Rates


class Strategy(ABC):
    """Base of all strategies; its methods other than `schedule` are collective."""

    roots_at_home = True
    """Whether every root is trained where it is at home, or else dealt to the ranks at random."""

    balances = False
    """Whether, as far as it is settled, roots may be trained elsewhere than `roots_at_home` says, to even out loads."""

    def __init__(self, surroundings: RankContext, config: StrategyConfig) -> None:
        self.ctx = surroundings
        self.config = config
        self.time_steps = self.choose_time_steps(config, surroundings.communicator.size)
        self.tuning_log = TuningLog()
        self.rates: Rates | None = None
        self.remote_name, self.remote = self.choose_remote()

    @classmethod
    def place(cls, config: Config, world: World, loaded: Loaded) -> Loaded:
        """`loaded` with model and features held as this strategy needs them, here as they are. Local.

        Raises ConfigError and ResourceError when that cannot be.
        """
        del config, world
        return loaded

    def choose_remote(self) -> tuple[str, FirstLayerMode]:
        """Name and way in which the first layer gets computed; raw stands in for auto until that is settled."""
        name = "raw" if self.config.remote == "auto" else self.config.remote
        return name, remote_mode(name, self.ctx)

    @staticmethod
    @abstractmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """The number of time steps of an iteration. Raises ConfigError for one this strategy cannot do."""

    @abstractmethod
    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """Deal `batch` (int64 roots in shuffled order) to ranks and time steps. Pure.

        In training rank 0 alone calls it; in rehearsals every rank does.
        """

    def after_step(self, minibatch: MiniBatch, step: int) -> None:
        """What travels when time step `step` of `minibatch` is done and another follows. Collective."""
        del minibatch, step

    def settle(self, batch: np.ndarray | None) -> None:
        """Measure and decide what clocks have a say in, on the first batch (None but on rank 0). Collective.

        After `restore`, what that did not bring.
        """
        del batch

    def decide(self, epoch: int, iteration: int) -> None:
        """What is to hold from this iteration on. Local, on rank 0 only: the others see it in the schedule."""
        del epoch, iteration

    def stepped(self, minibatch: MiniBatch) -> None:
        """All ranks are done with `minibatch`. Local."""
        del minibatch

    @property
    def overlaps(self) -> bool:
        """Whether a step computes while messages of its own travel, so that a courier should carry them."""
        return self.remote.overlaps

    @property
    def chooses_remote(self) -> bool:
        """Whether what crosses ranks for the first layer is still to be settled."""
        return self.config.remote == "auto"

    def use_remote(self, name: str) -> None:
        """Compute the first layer by the remote mode called `name` from now on."""
        if name != self.remote_name:
            self.remote_name, self.remote = name, remote_mode(name, self.ctx)

    def state(self) -> dict[str, Any]:
        """What this strategy has settled, the same on all ranks: plain values and numpy arrays by name. Local.

        Checkpoints keep it. A strategy that settles more adds its own names, and takes them up in `restore`.
        """
        return {
            "ranks": self.ctx.communicator.size,
            "time_steps": self.time_steps,
            "remote": self.remote_name,
            # What no record holds yet.
            "decisions": [each.to_values() for each in self.tuning_log.pending],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the `state` of an earlier start instead of settling anew. Collective.

        What depends on the number of ranks holds only where `state["ranks"]` is that of this job.
        """
        self.use_remote(state["remote"])
        for each in state["decisions"]:
            self.tuning_log.make(TuningRecord(**each))
        if state["ranks"] == self.ctx.communicator.size:
            self.time_steps = state["time_steps"]

    def own_state(self) -> dict[str, np.ndarray]:
        """What this rank alone has settled or keeps, by name; empty where ranks hold nothing of their own. Local."""
        return {}

    def restore_own(self, state: dict[str, np.ndarray]) -> None:
        """Take up the `own_state` of this rank; empty where there was none, or other ranks. Collective."""
        del state

    def rehearse(self, batch: np.ndarray | None) -> None:
        """Do all of the first iteration but the optimizer's step, so that its kernels are compiled. Collective."""
        minibatch = self.plan(batch, 0, 0)
        self.fetch(minibatch)
        self.step(minibatch)
        self.ctx.parameters.gradients.zero_()

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Rank 0 schedules `batch` (others pass None), all ranks learn it and sample their cells. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            if batch is not None:
                self.decide(epoch, iteration)
            own = None if batch is None else self.schedule(batch, epoch, iteration).to_buffer()
            schedule = Schedule.from_buffer(ctx.communicator.broadcast(own, "schedule"))
        self.time_steps = schedule.time_steps
        with ctx.phases("sample"):
            return self.sampled(schedule, DrawKey(TRAIN, ctx.seed, epoch, iteration))

    def sampled(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """This rank's part of `schedule`, drawn with `key`. Local."""
        micro_batches = []
        for step in range(schedule.time_steps):
            roots = schedule.cell(self.ctx.communicator.rank, step)
            micro_batches.append(MicroBatch(roots, self.ctx.sampler.sample(key, roots, schedule.roots), None))
        return MiniBatch(schedule, key, micro_batches)

    @classmethod
    def seated(cls, ctx: RankContext) -> RankContext:
        """What `place` makes of model and parameters, for a rank without a job: nothing is read. Local."""
        return ctx

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features this rank holds, copies of others' rows included."""
        features = self.ctx.features
        return features.shard.nbytes + (features.cached_bytes(features.cache) if features.cache else 0)

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Add to `traffic` what this rank sends, asks for and reads in an iteration, given all ranks' parts. Local.

        `leapmpi plan` is made of this. A strategy that moves more than what its remote mode tells, labels, the schedule
        and the reduction of gradients adds it here.
        """
        self.predict_fetch(minibatches, traffic)
        gradients = self.ctx.parameters.shared_gradients
        traffic.add_reduction(self.ctx.communicator.rank, len(gradients), gradients.element_size())

    def predict_fetch(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """The part of `predict` that does not depend on whose gradients are summed up. Local."""
        ctx, minibatch = self.ctx, minibatches[self.ctx.communicator.rank]
        self.remote.predict(minibatches, traffic)
        if not self.labels_at_home(minibatch):
            roots = RowRequest(np.concatenate(self.labelled(minibatch)), ctx.rank_offsets, ctx.communicator.rank)
            row_bytes = ctx.labels.shard.row_bytes
            traffic.add_request(
                ctx.communicator.rank, roots.remote_counts, ctx.labels.ranges.id_bytes, "labels", row_bytes
            )
        if ctx.communicator.rank == 0:
            traffic.add_broadcast("schedule", minibatch.schedule.to_buffer().nbytes)

    @property
    def most_ahead(self) -> int:
        """How many iterations are prepared ahead of the one that is trained, where MPI allows it.

        `auto`: two where raw rows come from other ranks, which takes long and needs no weights, so that they travel all
        the time; none where only sampling and ids could run ahead.
        """
        if self.config.prefetch != "auto":
            return int(self.config.prefetch)
        return 2 if self.remote_name == "raw" and self.ctx.communicator.size > 1 else 0

    def predicted_memory(self, minibatch: MiniBatch) -> int:
        """Bytes that iterations like `minibatch` take on this rank at most, about. Local.

        Blocks and rows of it and of those prepared ahead, hidden values and gradients of one.
        """
        layers, micro_batches = self.ctx.model.layers, minibatch.micro_batches
        widths, size = [layer.out_dim for layer in layers], layers[0].bias.element_size()
        steps = (
            self.remote.step_bytes(micro_batch, len(micro_batches) == 1)
            + hidden_bytes(micro_batch.blocks, widths, size)
            for micro_batch in micro_batches
        )
        prepared = sum(block_bytes(micro_batch.blocks) for micro_batch in micro_batches) + self.remote.held_bytes(
            minibatch
        )
        return (1 + self.most_ahead) * prepared + max(steps)

    def fetch(self, minibatch: MiniBatch) -> None:
        """Bring here what the iteration needs and does not depend on the weights. Collective."""
        self.ask(minibatch)
        with self.ctx.phases("exchange"):
            minibatch.complete()

    def ask(self, minibatch: MiniBatch) -> None:
        """All of `fetch` but to move the feature rows, which are packed. Collective."""
        with self.ctx.phases("exchange"):
            self.remote.ask(minibatch)
            roots = self.labelled(minibatch)
            size = minibatch.schedule.batch_size
            minibatch.root_weights = [self.ctx.sampler.root_weights(minibatch.key, each, size) for each in roots]
            labels = self.ctx.root_labels(np.concatenate(roots), self.labels_at_home(minibatch))
            minibatch.labels = labels.split([len(each) for each in roots])

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        """The roots (int64) whose loss this rank computes, by cell. Local."""
        return [micro_batch.roots for micro_batch in minibatch.micro_batches]

    def labels_at_home(self, minibatch: MiniBatch) -> bool:
        """Whether every rank holds the labels of the roots it has `labelled`; all ranks find the same. Local."""
        trains_them = type(self).labelled is Strategy.labelled
        return trains_them and minibatch.schedule.is_at_home(self.ctx.rank_offsets)

    def step(self, minibatch: MiniBatch) -> float:
        """Add the gradients of all cells to the parameters' and sum them over ranks. Collective.

        Returns this rank's share of the batch's loss: the sum over its roots of weight x loss.
        """
        ctx, loss = self.ctx, 0.0
        ctx.parameters.gradients.zero_()
        for number, labels in enumerate(minibatch.labels):
            loss += self.remote.train(minibatch, number, labels)
            if number + 1 < len(minibatch.micro_batches):
                self.after_step(minibatch, number)
        with ctx.phases("reduce"):
            ctx.communicator.all_reduce(ctx.parameters.shared_gradients)
        self.stepped(minibatch)
        return loss
