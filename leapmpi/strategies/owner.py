"""`owner`: every row of every layer is computed once, by the rank that is the home of its vertex.

Ranks draw for the destinations that they compute and pass hidden rows on, instead of computing whole micrographs: the
owner-computes rule, for mini-batches. Deep models gain most, whose micrographs overlap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.config.setting import names_code
from leapmpi.engine.engine import Preparation
from leapmpi.errors import ConfigError
from leapmpi.exchange.layer_graphs import (
    KINDS,
    PARTIAL,
    PROJECTED,
    RAW,
    LayerInputs,
    SampledGraphBuilder,
    Split,
    build_here,
)
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.features.shards.row_request import RowRequest
from leapmpi.full_batch.full_batch_placement import (
    MIXED,
    FullBatchPlacement,
    FullBatchRules,
    by_layer_strategy,
    check_by_layer,
)
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of, refusal, width_across_ranks
from leapmpi.nn.layer import Layer
from leapmpi.nn.task import task_of
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.edge_lookup import bounds_by_root
from leapmpi.system.counter_rng import DrawKey

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


_WORK_OF_SHARE = 150
"""Numbers that a rank could send while its owner works on a share of typed rows.

The owner repeats the draws of all relations and multiplies a mean for each. With rgcn on the typed graph of jobs/lab a
share took 2.2 microseconds of a processor more than a projected row. Links of 2 Gbit/s move so many numbers meanwhile.
"""


class Owner(FullBatchPlacement):
    """Roots on their home ranks; all remote inputs of all layers come from their owners."""

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Return the numbers that this rank would receive and return, by kind, if `--remote` leaves it open.

        The work of shares of typed rows is added to theirs.
        """
        if self.config.remote != "auto":
            return super().costs(inputs)
        layer, learned = self.ctx.model.layers[inputs.layer], self.ctx.learned is not None and not inputs.layer
        remote = inputs.home != self.ctx.rank
        fetched = remote & ~self._held(inputs)
        # Stored features get no gradient, so they cross ranks once; hidden rows return one.
        ways = 1 if inputs.layer == 0 else 2
        mixes = self.mixes(layer)

        def count(kind: str) -> float:
            if kind == RAW and layer.inputs is not None:
                return self._stored_bytes(inputs.block.src[fetched]) / layer.dtype.itemsize
            width = width_across_ranks(self.ctx, layer, kind)
            if kind == PARTIAL:
                work = 0 if layer.inputs is None else _WORK_OF_SHARE
                return inputs.items(remote, self.ctx.ranks, exact=False, mixes=mixes).count * (2 * width + work)
            # Projected rows return a gradient even of stored features: that of the weights is made of it.
            return (2 if kind == PROJECTED else ways) * int(fetched.sum()) * width

        served = [kind for kind in KINDS if not refusal(layer, kind, learned)]
        return np.array([count(kind) if kind in served else np.inf for kind in KINDS], np.float64)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Compute inputs of types that every rank holds here; the others are sent as `kind`."""
        return replace(super().split(inputs, kind), cached=self._held(inputs))

    def _held(self, inputs: LayerInputs) -> np.ndarray:
        """Return which remote inputs of the first layer have their features here: bool[n_src]."""
        cache = None if inputs.layer else self.ctx.features.cache
        if cache is None:
            return np.zeros(inputs.block.n_src, bool)
        return (cache.slots(inputs.block.src) >= 0) & (inputs.home != self.ctx.rank)

    def mixes(self, layer: Layer) -> bool:
        """Return whether projected rows are sent among partial sums; of typed rows only where `--remote` says so.

        There a share takes more work than a row, and the fewest items more still.
        """
        return super().mixes(layer) and (layer.inputs is None or self.config.remote == MIXED)

    def _stored_bytes(self, remote: np.ndarray) -> int:
        """Count the bytes of the stored rows of `remote` vertices (int64[k]), and of gradients of learned ones."""
        features = self.ctx.features
        request = RowRequest(remote, self.ctx.rank_offsets, self.ctx.rank)
        return int(features.answer_bytes(request).sum()) + features.returned_bytes(request)


class OwnerGraphs(Preparation):
    """Layer graphs of mini-batches, drawn hop by hop with the other ranks: each rank computes the rows that it owns."""

    placement: FullBatchPlacement

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Draw the graph of this rank together with the other ranks. Collective."""
        ctx, chooser = self.ctx, self.placement.chooser()
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        of_rank = (ctx.sampler, roots, ctx.rank_offsets, ctx.rank, layers, chooser)
        graph = build_here(SampledGraphBuilder(key, schedule.roots, *of_rank), ctx.communicator)
        return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], graph=graph)

    def request(self, minibatch: MiniBatch) -> None:
        super().request(minibatch)
        # A forecast counts, and has no tensors to feed.
        if not self.ctx.communicator.carries:
            return
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = micro_batch.on_device(self.ctx.device)
        minibatch.feeds = [feeds_of(self.ctx, graph_of(minibatch), micro_batch.tensors)]


def check_settings(rules: FullBatchRules, config: Config, dataset: Dataset) -> None:
    """Raise ConfigError for settings with which vertices are not trained by layers."""
    name = config.strategy.name
    if task_of(config, dataset).roots == "edges":
        raise ConfigError(f"strategy: {name} trains vertices, not edges; use leap or pull with --task link")
    if names_code(config.model.name):
        raise ConfigError(
            f"strategy: {name} computes layer by layer, and {config.model.name} is run as a whole; use leap or pull"
        )
    if bounds_by_root(config):
        raise ConfigError(f"strategy: {name} computes a vertex once for all roots; use leap or pull with bound=root")
    if config.strategy.memory_limit:
        raise ConfigError(f"strategy.memory_limit: {name} trains a batch in one step; give a smaller --batch-size")
    check_by_layer(rules, config)


MEMBER = by_layer_strategy(FullBatchRules(), OwnerGraphs, Owner, check_settings, reassigns_parts=False)
