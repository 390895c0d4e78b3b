"""What every strategy does in an iteration: plan, sample, request rows, forward and backward.

One Engine serves one training on one rank. It holds the strategy (`placement`), the exchange mode that feeds layer 0,
and the log of what was tuned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine import batch_rows
from leapmpi.engine.edges.edge_features import fetch_edge_features, predict_edge_features
from leapmpi.engine.placement import STRATEGIES, placement_class
from leapmpi.engine.schedule_broadcast import Coming, ScheduleBroadcast
from leapmpi.engine.tuning_log import TuningLog, TuningRecord
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.selection import exchange_mode
from leapmpi.features.row_exchange import RowRequest
from leapmpi.features.shards.mapped_shard import MappedShard
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.norms import normalising
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.list_traffic import predict_draws, predict_tables
from leapmpi.plan.schedule import Schedule
from leapmpi.system.counter_rng import PRESAMPLE, TRAIN, DrawKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.plan.cost_model import Rates
    from leapmpi.plan.traffic_model import Traffic


class Engine:
    """Plans, fetches and computes the mini-batches of one training on this rank."""

    limits_memory = False
    """Whether `plan` itself holds --memory-limit."""

    ships = False
    """Whether mini-batches go to other ranks as soon as they are prepared."""

    reads_rows = True
    """Whether this rank holds feature rows and reads those of its mini-batches."""

    planning_seconds = 0.0
    """What it took to plan what is planned once, where something is."""

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        self.ctx = ctx
        self.config = config
        self.placement = placement_class(config.name)(ctx, config)
        self.mode_name, self.mode = self.placement.exchange_mode()
        self.tuning_log = TuningLog()
        self._schedules = ScheduleBroadcast(ctx.communicator)
        self.rates: Rates | None = None
        """The rates of this job, once they are measured or replayed."""
        self._check_time_steps(self.placement.time_steps)

    # -- one iteration ---------------------------------------------------------------------------------------------

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Schedule `batch` (int64 roots on rank 0, None elsewhere), broadcast it, and sample. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            schedule = self._schedules.schedule(batch, epoch, iteration, self._schedule)
        self.placement.time_steps = schedule.time_steps
        self._check_time_steps(schedule.time_steps)
        with ctx.phases("sample"):
            return self.sample(schedule, DrawKey(TRAIN, ctx.seed, epoch, iteration))

    def expect(self, coming: Sequence[Coming]) -> None:
        """From now on `plan` is asked for these iterations, in this order, so that it may plan ahead. Local."""
        plans_ahead = self.placement.plans_ahead and not self.tuning_log.replays
        self._schedules.expect(coming if plans_ahead else ())

    def _schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        self.placement.decide(self.tuning_log, epoch, iteration)
        return self.placement.schedule(batch, epoch, iteration)

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        """`batch` cut into `time_steps`, sampled on a stream of its own, to see what it would take. Collective."""
        flat = None if batch is None else self.placement.schedule(batch, 0, 0, time_steps).to_buffer()
        schedule = Schedule.from_buffer(self.ctx.communicator.broadcast(flat, "schedule"))
        return self.sample(schedule, DrawKey(PRESAMPLE, self.ctx.seed, 0, 0))

    def planned(self, batch: np.ndarray, key: DrawKey) -> Schedule | EdgePlan:
        """What all ranks train of `batch` in a dry run by `key`; `draw` of each of them needs it. Local."""
        return self.placement.schedule(batch, key.epoch, key.iteration)

    def draw(self, planned: Schedule | EdgePlan, key: DrawKey) -> MiniBatch:
        """This rank's part of what is `planned`, drawn with `key`. Local."""
        assert isinstance(planned, Schedule), "what `planned` gives"
        return self.sample(planned, key)

    def predict_planning(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Add to `traffic` what this rank sends so that all ranks know what is planned. Local."""
        if self.ctx.rank == 0:
            traffic.add_broadcast("schedule", minibatch.planned.nbytes)

    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        """The vertices int64 that are embedded for `batch`, on rank 0; None elsewhere. Local."""
        return batch

    def expected_roots(self, dataset: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
        """Which vertices may be embedded, int64, and how many a batch embeds, about. Local."""
        return dataset.splits.train, batch_size

    def drawn_for(self, batch: np.ndarray, epoch: int, iteration: int) -> np.ndarray:
        """The roots int64 of `batch` for which this rank draws. Local and pure."""
        return self.placement.schedule(batch, epoch, iteration).rank_roots(self.ctx.rank)

    def share_of(self, roots: np.ndarray) -> np.ndarray:
        """float64[n]: the chance that this rank draws for each of `roots` (int64[n]) of a batch. Local."""
        if not self.placement.roots_are_local:
            return np.full(len(roots), 1 / self.ctx.ranks)
        first, end = self.ctx.local_range
        return ((first <= roots) & (roots < end)).astype(np.float64)

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """This rank's part of `schedule`, drawn with `key`. Local."""
        micro_batches = []
        for step in range(schedule.time_steps):
            roots = schedule.cell(self.ctx.rank, step)
            micro_batches.append(MicroBatch(roots, self.mode.sample(key, roots, schedule.roots), None))
        return MiniBatch(schedule, key, micro_batches)

    @staticmethod
    def sample_all(engines: Sequence[Engine], planned: Schedule | EdgePlan, key: DrawKey) -> list[MiniBatch]:
        """What `draw` gives to each of `engines`, those of all ranks in one process. Local."""
        return [engine.draw(planned, key) for engine in engines]

    def request(self, minibatch: MiniBatch) -> None:
        """Request the rows that do not depend on weights, and bring labels here; rows are packed only. Collective."""
        ctx = self.ctx
        with ctx.phases("exchange"):
            self.mode.request(minibatch)
            fetch_edge_features(ctx, minibatch.micro_batches)
            minibatch.batch_rows = batch_rows.shared_out(ctx, minibatch.micro_batches)

            # Weights and labels of the roots whose loss this rank computes.
            roots = self.labelled(minibatch)
            size = minibatch.planned.batch_size
            minibatch.root_weights = [ctx.sampler.root_weights(minibatch.key, each, size) for each in roots]
            labels = ctx.root_labels(np.concatenate(roots), self.labels_are_local(minibatch))
            minibatch.labels = labels.split([len(each) for each in roots])

    def predict_draws(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Add to `traffic` what its draws move, where the topology is sharded. Local."""
        ctx = self.ctx
        if ctx.answers is not None:
            drawn = ctx.sampler.drawing, minibatch.key
            predict_tables(*drawn, minibatch.planned.roots, ctx.rank, ctx.rank_offsets, traffic)
            for micro_batch in minibatch.micro_batches:
                predict_draws(*drawn, micro_batch.blocks, ctx.rank, ctx.rank_offsets, ctx.answers, traffic)

    def predict_epoch(self, batches: int, traffic: Traffic) -> None:
        """Add to `traffic` what this rank sends before the first of an epoch's `batches`. Local."""

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Add to `traffic` what `plan` and `request` move, but for what the exchange mode requests. Local."""
        ctx = self.ctx
        predict_edge_features(ctx, minibatch.micro_batches, traffic)
        batch_rows.predict_batch_rows(ctx, minibatch.micro_batches, traffic)
        if not self.labels_are_local(minibatch):
            roots = RowRequest(np.concatenate(self.placement.labelled(minibatch)), ctx.rank_offsets, ctx.rank)
            row_bytes = ctx.labels.shard.row_bytes
            traffic.add_request(ctx.rank, roots.remote_counts, ctx.labels.id_codec.id_bytes, "labels", row_bytes)
        self.predict_planning(minibatch, traffic)

    def fetch(self, minibatch: MiniBatch) -> None:
        """Bring here all that does not depend on weights. Collective."""
        self.request(minibatch)
        with self.ctx.phases("exchange"):
            minibatch.complete()

    def forward_backward(self, minibatch: MiniBatch) -> float:
        """Add the gradients of all micro-batches to the parameters', and bring those of learned rows home. Collective.

        Returns this rank's share of the batch's loss: the sum over its roots of weight x loss.
        """
        loss = 0.0
        with normalising(self.ctx.model, minibatch.batch_rows):
            for step, labels in enumerate(minibatch.labels):
                loss += self.mode.train(minibatch, step, labels)
                if step + 1 < len(minibatch.micro_batches):
                    self.placement.after_step(minibatch, step)
        if self.ctx.learned:
            with self.ctx.phases("exchange"):
                self.ctx.learned.collect(self.ctx.communicator)
        return loss

    def dry_run(self, batch: np.ndarray | None) -> None:
        """Do all of the first iteration but the optimizer's step, so that its kernels are compiled. Collective."""
        self.dry_run_of(self.plan(batch, 0, 0))

    def dry_run_of(self, minibatch: MiniBatch) -> None:
        """The same with a `minibatch` that is planned. Collective."""
        self.fetch(minibatch)
        self.ctx.parameters.gradients.zero_()
        self.forward_backward(minibatch)
        with self.ctx.phases("reduce"):
            self.ctx.communicator.all_reduce(self.ctx.parameters.shared_gradients)
        self.placement.iteration_ended(minibatch)
        self.ctx.parameters.gradients.zero_()
        if self.ctx.learned:
            self.ctx.learned.forget()

    # -- what holds for all iterations -------------------------------------------------------------------------------

    @property
    def overlaps(self) -> bool:
        """Whether a step computes while its own messages travel, so that a progress thread should carry them."""
        return self.mode.overlaps

    @property
    def interleaves(self) -> bool:
        """Whether the next iteration may be prepared on the thread that trains, where a step waits for other ranks."""
        return self.mode.needs_weights and self.mode.overlaps and on_host(self.ctx.device)

    @property
    def fetches_ahead(self) -> bool:
        """Whether rows for the first layer can come before the weights are known; learned rows cannot."""
        return not self.mode.needs_weights and not self.ctx.features.returned_row_bytes

    @property
    def prefetch_depth(self) -> int:
        """How many mini-batches are prepared ahead of the one that is trained, where MPI allows it.

        `auto`: two where raw rows come from other ranks or from files, which takes long and needs no weights; else one
        where draws come from other ranks or the thread that trains prepares it, and no limit of memory is given.
        Learned rows are fetched when the step before has moved them.
        """
        if self.ctx.features.returned_row_bytes and not self.mode.needs_weights:
            return 0
        if self.config.prefetch != "auto":
            return int(self.config.prefetch)
        if isinstance(self.ctx.features.shard, MappedShard) and self.fetches_ahead:
            return 2
        if self.ctx.ranks == 1:
            return 0
        if self.fetches_ahead:
            return 2
        pays = (self.ctx.sampler.sharded or self.interleaves) and not self.config.memory_limit
        return 1 if pays and not self.ctx.features.returned_row_bytes else 0

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        """The roots (int64) whose labels and weights this rank brings here, by micro-batch. Local."""
        return self.placement.labelled(minibatch)

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        """Whether every rank holds the labels of its labelled roots; all ranks find the same. Local."""
        return self.placement.trains_labelled and minibatch.planned.is_local(self.ctx.rank_offsets)

    @property
    def one_time_step(self) -> bool:
        """Whether an iteration cannot be cut into several time steps."""
        return batch_rows.refusal(self.ctx.model, 2, True) is not None

    def _check_time_steps(self, time_steps: int) -> None:
        """Raise ConfigError, on all ranks, for more of them than the model can be trained in."""
        if reason := batch_rows.refusal(self.ctx.model, time_steps, self.placement.trains_labelled):
            error = ConfigError(f"model.norm: {reason}")
            error.agreed = True
            raise error

    def use_mode(self, name: str) -> None:
        """Feed layer 0 by the exchange mode called `name` from now on."""
        if name != self.mode_name:
            self.mode_name, self.mode = name, exchange_mode(name, self.ctx)

    def sentences(self) -> list[str]:
        """What was chosen and is told at the start, on rank 0. Local."""
        return []

    def state(self) -> dict[str, Any]:
        """What was chosen, the same on all ranks: plain values and numpy arrays by name. Checkpoints keep it. Local."""
        return {
            "ranks": self.ctx.ranks,
            "remote": self.mode_name,
            # What no record of the run holds yet.
            "decisions": [record.to_values() for record in self.tuning_log.pending],
            **self.placement.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the `state` of an earlier start instead of choosing anew. Collective.

        What depends on the number of ranks holds only where `state["ranks"]` is that of this job.
        """
        self.use_mode(state["remote"])
        for values in state["decisions"]:
            self.tuning_log.make(TuningRecord.from_values(values))
        if state["ranks"] == self.ctx.ranks:
            self.placement.restore(state)


def make_engine(ctx: RankContext, config: StrategyConfig) -> Engine:
    """The engine of the strategy `config.name`: the one that its module offers, or an Engine.

    Raises ConfigError for an unknown strategy.
    """
    kind = None if config.name == "auto" else STRATEGIES.load(config.name).engine
    return (kind or Engine)(ctx, config)
