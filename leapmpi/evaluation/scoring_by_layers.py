"""Scoring a split by sampled neighbours layer by layer, where that is cheaper than batch by batch.

Batches draw with one key, so that a vertex has the same row in all of them: computed once, it serves all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.context import RankContext
from leapmpi.inference.drawn_lists import lists_by_layer, most_edges
from leapmpi.inference.layerwise import LayerwiseInference, Round, runs_in_layers
from leapmpi.system.counter_rng import DrawKey

LEAST_BATCHES = 4
"""Fewer batches are scored one by one."""

MOST_EDGES = 2 / 3
"""The share of the edges of all batches that layers may read."""

_LEAST_ROWS = 64 << 20
"""Bytes that rows of layers may take on a rank in any case."""


class ScoringByLayers:
    """Computes outputs for the splits of one evaluation, which draws node-wise from `topology`, on all nodes."""

    def __init__(self, topology: Topology, relation_fanouts: np.ndarray | None = None) -> None:
        """Take relation_fanouts, int64[hops, R] of a typed graph."""
        self._topology, self._of_relations = topology, relation_fanouts
        self._cheaper: dict[int, bool] = {}
        """By stream."""

    def is_cheaper(self, ctx: RankContext, batches: Sequence[tuple[DrawKey, np.ndarray]], roots: np.ndarray) -> bool:
        """Return whether to compute outputs for `roots` (int64, of this rank), cut into `batches`, by layers.
        Collective.

        By counts: where the layers read at most two thirds of the edges of all batches, and their rows take no more
        than the features. Batches are taken to be as large as the first.
        """
        if len(batches) < LEAST_BATCHES or not runs_in_layers(ctx.model):
            return False
        key, first = batches[0]
        if key.stream not in self._cheaper:
            of_batches = len(batches) * sum(block.edges for block in ctx.sampler.sample(key, first))
            of_layers = most_edges(ctx, self._topology, ctx.sampler.fanouts, roots)
            # Those of two layers next to each other, and projected ones.
            widest, size = max(layer.out_dim for layer in ctx.model.layers), ctx.model.dtype.itemsize
            rows = 3 * widest * size * (ctx.local_range[1] - ctx.local_range[0])
            counts = np.array([of_batches, of_layers, rows > max(_LEAST_ROWS, ctx.features.shard.nbytes)])
            all_batches, all_layers, large = ctx.communicator.all_gather_rows(counts).sum(axis=0)
            self._cheaper[key.stream] = bool(all_layers <= MOST_EDGES * all_batches and not large)
        return self._cheaper[key.stream]

    def outputs(self, ctx: RankContext, key: DrawKey, roots: np.ndarray, round: Round) -> np.ndarray:
        """Return the answers of the task of `ctx` for `roots` (int64, of this rank) on samples drawn with `key`.
        Collective.
        """
        lists_of = lists_by_layer(ctx, self._topology, ctx.sampler.fanouts, key, self._of_relations)
        inference = LayerwiseInference(ctx, self._topology, round=round, lists_of=lists_of)
        ordered, places = np.unique(roots, return_inverse=True)
        rows = torch.from_numpy(inference.outputs(ordered)).to(ctx.device)
        return ctx.task.answer(rows).cpu().numpy()[places]
