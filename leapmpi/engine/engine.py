"""One iteration: plan, sample, request rows, forward and backward.

One Engine serves one training on one rank. It holds the strategy (`placement`), the exchange mode of layer 0, the log
of tuning, and three values: where roots come from (`roots`), how this rank's mini-batch is made (`preparation`), and
what is computed of it (`step`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine import batch_rows
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.engine.edge_roots import EdgeRoots
from leapmpi.engine.placement import STRATEGIES, Placement, labelled, mode_of, placement_of, trains_labelled
from leapmpi.engine.root_source import Plan, RootSource, VertexRoots
from leapmpi.engine.tuning_log import TuningLog, TuningRecord
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.selection import exchange_mode
from leapmpi.features.row_exchange import RowExchange
from leapmpi.features.shards.mapped_shard import MappedShard
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.norms import normalising
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.sampler import LOCAL
from leapmpi.system.counter_rng import TRAIN, DrawKey

if TYPE_CHECKING:
    from leapmpi.plan.cost_model import Rates

Step = Callable[[MiniBatch], float]
"""Function that adds the gradients of a mini-batch to the parameters', and returns this rank's share of the loss."""


class Engine:
    """Plans, prepares and computes the mini-batches of one training on this rank.

    placement: the strategy of `config` by default. scatters: whether edges that are roots are assigned to any rank.
    preparation: makes the mini-batches; that of the strategy by default. step: computes the gradients; by default the
    exchange mode trains each micro-batch. tuning_log: that of an engine before; a new one by default.
    """

    def __init__(
        self,
        ctx: RankContext,
        config: StrategyConfig,
        *,
        placement: Placement | None = None,
        scatters: bool = False,
        preparation: Callable[[Engine], Preparation] | None = None,
        step: Step | None = None,
        tuning_log: TuningLog | None = None,
    ) -> None:
        """Raise ConfigError for an unknown strategy, or one that cannot train the model, task or sampler of `ctx`."""
        self.ctx = ctx
        self.config = config
        # The mode is that of the configured strategy, even where a given placement distributes the roots.
        own = placement_of(ctx, config)
        self.mode_name, self.mode = mode_of(own)
        self.placement = placement or own
        self.tuning_log = tuning_log or TuningLog()
        self.rates: Rates | None = None
        """Rates of this job, once measured or replayed."""
        self.roots: RootSource
        if ctx.task.roots == "edges":
            self.roots = EdgeRoots(ctx, self.placement, self.tuning_log, scatters)
        else:
            self.roots = VertexRoots(ctx, self.placement, self.tuning_log)
        # Preparations read placement, mode and roots of the engine, so these come first.
        self.preparation = (preparation or preparation_of(config.name))(self)
        self.roots.read_by(None if self.preparation.reads_whole_schedules else self._cells_read())
        self._step = step or self._train_micro_batches
        batch_rows.check_time_steps(ctx.model, self.placement.time_steps, trains_labelled(self.placement))

    def _cells_read(self) -> np.ndarray | None:
        """Return int64[ranks, k]: the ranks whose cells of a schedule each rank reads; None if they read all."""
        # Draws of other samplers may depend on all roots of the batch.
        if self.ctx.sampler.family != LOCAL:
            return None
        ranks, labelled_from = np.arange(self.ctx.ranks), self.placement.strategy.labels_from
        read = [ranks] if labelled_from % len(ranks) == 0 else [ranks, (ranks + labelled_from) % len(ranks)]
        return np.stack(read, axis=1)

    # -- one iteration ---------------------------------------------------------------------------------------------

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Plan `batch` (int64 roots on rank 0, None elsewhere) on all ranks, and sample this rank's part. Collective.

        A batch of edges is int64[B, 2]; with a sharded topology every rank has a share of it.
        """
        key = DrawKey(TRAIN, self.ctx.seed, epoch, iteration)
        if ready := self.preparation.ready(key):
            return ready
        plan = self.roots.plan(batch, epoch, iteration)
        with self.ctx.phases("sample"):
            return self.draw(plan, key)

    def draw(self, planned: Plan, key: DrawKey) -> MiniBatch:
        """Draw this rank's part of a plan with `key`. Local unless `preparation.sample` or the topology is shared."""
        return self.roots.draw(planned, key, self.preparation.sample)

    def request(self, minibatch: MiniBatch) -> None:
        """Request labels, and rows that do not depend on weights; owners pack these rows only. Collective."""
        with self.ctx.phases("exchange"):
            self.preparation.request(minibatch)

    def fetch(self, minibatch: MiniBatch) -> None:
        """Request and receive everything that does not depend on weights. Collective."""
        self.request(minibatch)
        with self.ctx.phases("exchange"):
            minibatch.complete()

    def forward_backward(self, minibatch: MiniBatch) -> float:
        """Add the gradients of `minibatch` to the parameters' and send those of learned rows to owners. Collective.

        Returns this rank's share of the batch's loss: the sum over its roots of weight x loss.
        """
        return self._step(minibatch)

    def _train_micro_batches(self, minibatch: MiniBatch) -> float:
        loss = 0.0
        with normalising(self.ctx.model, minibatch.batch_rows):
            for step, labels in enumerate(minibatch.labels):
                loss += self.mode.train(minibatch, step, labels)
                if step + 1 < len(minibatch.micro_batches):
                    self.placement.after_step(minibatch, step)
        # After all micro-batches, as the rows of their union were fetched at once.
        if self.ctx.learned:
            with self.ctx.phases("exchange"):
                self.ctx.learned.collect(self.ctx.communicator)
        return loss

    def count(self, minibatch: MiniBatch) -> None:
        """Count what `request` and `forward_backward` of `minibatch` send and read; nothing is computed. Collective."""
        self.request(minibatch)
        minibatch.begin()
        minibatch.wait()
        for step in range(len(minibatch.micro_batches)):
            self.mode.count(minibatch, step)
            if minibatch.edge_loss is not None:
                minibatch.edge_loss.count(step)
            if step + 1 < len(minibatch.micro_batches):
                self.placement.after_step(minibatch, step)
        batch_rows.count_sums(self.ctx.model, minibatch.batch_rows)
        if isinstance(minibatch.row_exchange, RowExchange):
            self.ctx.features.count_returns(minibatch.row_exchange)

    # -- all iterations ----------------------------------------------------------------------------------------------

    @property
    def overlaps(self) -> bool:
        """Whether a step computes while its own messages travel, so that a progress thread should carry them."""
        return self.mode.overlaps

    @property
    def interleaves(self) -> bool:
        """Whether the training thread itself may prepare the next iteration while a step waits for other ranks."""
        late = self.mode.needs_weights or self.rows_change
        return late and self.mode.overlaps and on_host(self.ctx.device)

    @property
    def rows_change(self) -> bool:
        """Whether fetched rows change with each step: learned ones. They are fetched once the step has moved them."""
        return self.ctx.features.returned_row_bytes > 0 and not self.mode.needs_weights

    @property
    def fetches_ahead(self) -> bool:
        """Whether rows for the first layer can be fetched before the weights are known. Learned rows cannot."""
        return not (self.mode.needs_weights or self.rows_change)

    @property
    def prefetch_depth(self) -> int:
        """Number of mini-batches prepared ahead of the one in training, if MPI allows it."""
        return self.preparation.prefetch_depth

    @property
    def one_time_step(self) -> bool:
        """Whether an iteration cannot be cut into several time steps."""
        return batch_rows.refusal(self.ctx.model, 2, True) is not None

    def use_mode(self, name: str, mode: ExchangeMode | None = None) -> None:
        """Feed layer 0 by the exchange mode called `name` from now on; `mode` is one of it that exists already."""
        if mode or name != self.mode_name:
            self.mode_name, self.mode = name, mode or exchange_mode(name, self.ctx)

    def state(self) -> dict[str, Any]:
        """Return the choices so far, the same on all ranks: plain values and arrays by name, for checkpoints. Local."""
        return {
            "ranks": self.ctx.ranks,
            "remote": self.mode_name,
            # Decisions that no record of the run holds yet.
            "decisions": [record.to_values() for record in self.tuning_log.pending],
            **self.placement.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the `state` of an earlier start instead of choosing again. Collective.

        What depends on the number of ranks holds only where `state["ranks"]` is that of this job.
        """
        self.use_mode(state["remote"])
        for values in state["decisions"]:
            self.tuning_log.make(TuningRecord.from_values(values))
        if state["ranks"] == self.ctx.ranks:
            self.placement.restore(state)


class Preparation:
    """Makes this rank's mini-batches of an engine's plans, and requests their inputs.

    As it stands, a rank draws the micrographs of the roots that it trains. Others make graphs layer by layer
    (leapmpi/full_batch), or send or receive shares of mini-batches (leapmpi/engine/disaggregated).
    """

    plans_once = False
    """Whether one mini-batch, planned before the first iteration, serves all iterations."""

    limits_memory = False
    """Whether planning itself keeps to --memory-limit."""

    ships = False
    """Whether mini-batches go to other ranks as soon as they are prepared."""

    reads_rows = True
    """Whether this rank holds feature rows and reads those of its mini-batches."""

    reads_whole_schedules = False
    """Whether this rank reads cells of other ranks than its own and the one whose roots it labels."""

    planning_seconds = 0.0
    """Seconds spent on what is planned once for all iterations."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.ctx, self.placement = engine, engine.ctx, engine.placement

    def ready(self, key: DrawKey) -> MiniBatch | None:
        """Return the mini-batch of `key` if none has to be planned for it. Collective."""
        return None

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Draw this rank's part of `schedule` with `key`. Local here."""
        cells = [schedule.cell(self.ctx.rank, step) for step in range(schedule.time_steps)]
        return MiniBatch(schedule, key, self.micro_batches(cells, schedule, key))

    def micro_batches(self, cells: Sequence[np.ndarray], schedule: Schedule, key: DrawKey) -> list[MicroBatch]:
        """Draw a micro-batch for the roots (int64) of each of `cells`. Local."""
        sample = self.engine.mode.sample
        return [MicroBatch(roots, sample(key, roots, schedule.roots), None) for roots in cells]

    def request(self, minibatch: MiniBatch) -> None:
        """Request rows and labels. Collective."""
        ctx = self.ctx
        self.engine.mode.request(minibatch)
        fetch_edge_features(ctx, minibatch.micro_batches)
        minibatch.batch_rows = batch_rows.shared_out(ctx, minibatch.micro_batches)
        self.engine.roots.label(minibatch, self.labelled(minibatch), self.labels_are_local(minibatch))

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        """Return the roots (int64) by micro-batch that this rank needs labels and weights of. Local."""
        return labelled(self.placement, minibatch)

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        """Return whether every rank holds those labels; all ranks agree. Local."""
        return self.engine.roots.labels_are_local(minibatch)

    def drawn_for(self, batch: np.ndarray, epoch: int, iteration: int) -> np.ndarray:
        """Return the roots int64 of `batch` that this rank draws for. Local and pure."""
        return self.placement.schedule(batch, epoch, iteration).rank_roots(self.ctx.rank)

    def share_of(self, roots: np.ndarray) -> np.ndarray:
        """Return float64[n]: the chance that this rank draws for each of `roots` (int64[n]) of a batch. Local."""
        if not self.placement.strategy.roots_are_local:
            return np.full(len(roots), 1 / self.ctx.ranks)
        first, end = self.ctx.local_range
        return ((first <= roots) & (roots < end)).astype(np.float64)

    @property
    def prefetch_depth(self) -> int:
        """Number of mini-batches prepared ahead.

        `auto`: two if raw rows come from other ranks or from files, which takes long and needs no weights; else one if
        draws come from other ranks or the training thread prepares it, and no limit of memory is given. Threads do not
        prepare mini-batches whose rows change with each step.
        """
        engine, ctx, config = self.engine, self.ctx, self.engine.config
        if engine.rows_change and not engine.interleaves:
            return 0
        if config.prefetch != "auto":
            return int(config.prefetch)
        # Files are as slow as a network, even with one rank.
        if isinstance(ctx.features.shard, MappedShard) and engine.fetches_ahead:
            return 2
        if ctx.ranks == 1:
            return 0
        if engine.fetches_ahead:
            return 2
        # A mini-batch ahead takes memory, so a limit that the user set comes first.
        return 1 if (ctx.sampler.sharded or engine.interleaves) and not config.memory_limit else 0

    def sentences(self) -> list[str]:
        """Return sentences about choices for the start of the log, on rank 0. Local."""
        return []


def preparation_of(strategy: str) -> type[Preparation]:
    """Return the way in which `strategy` prepares; by default each rank draws micrographs.

    Raises ConfigError for an unknown strategy.
    """
    found = None if strategy == "auto" else STRATEGIES.load(strategy).preparation
    return found or Preparation
