"""Counts of what an iteration on a typed graph reads from other ranks, by type of vertices and by relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.features.typed_shard import TypedShard
from leapmpi.forecast.virtual_job import Batches, VirtualJob
from leapmpi.plan.homes import home_of


def of_first_iteration(
    types: GraphTypes | None, job: VirtualJob, batch: Batches
) -> dict[str, list[dict[str, Any]]] | None:
    """Return what the first iteration of `job`, which trains `batch`, reads from other ranks by type and relation.

    None for a plain graph, and for strategies that compute layer by layer, whose iterations have no samples.
    """
    if types is None or job.engines[0].placement.strategy.by_layer:
        return None
    minibatches = job.draw(batch, 0)
    job.world.take()
    return _by_type_and_relation(types, [each.ctx for each in job.engines], minibatches)


def _by_type_and_relation(
    types: GraphTypes, contexts: Sequence[RankContext], minibatches: Sequence[MiniBatch]
) -> dict[str, list[dict[str, Any]]]:
    """Count remote rows of the first layer, and their bytes as stored, over all ranks.

    By type, each row once a rank, with the bytes of all rows of the type in memory; by relation, each row that the
    relation reads once a rank, with its remote edges. A row that several relations read counts for each of them.
    """
    of_types = np.zeros((len(types.vertices), 2), np.int64)
    of_relations = np.zeros((len(types.relations), 3), np.int64)
    for ctx, minibatch in zip(contexts, minibatches, strict=True):
        shard = ctx.features.shard
        assert isinstance(shard, TypedShard), "the graph is typed"
        blocks = [each.blocks[-1] for each in minibatch.micro_batches if each.blocks]
        sources = [each.neighbours for each in blocks]
        relation = np.concatenate([np.empty(0, np.int64), *(each.relation for each in blocks)]).astype(np.int64)
        ids = np.concatenate([np.empty(0, np.int64), *sources])
        remote = _remote(ctx, ids)
        ids, relation = ids[remote], relation[remote]

        # Destinations need rows of their own, which no relation reads.
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *(each.src for each in blocks)]))
        rows = rows[_remote(ctx, rows)]
        of_types += _rows_and_bytes(shard, rows, shard.types_of(rows), len(types.vertices))

        # Each source once for each relation.
        of_relations[:, 0] += np.bincount(relation, minlength=len(types.relations))
        pairs = np.unique(np.stack([relation, ids]), axis=1)
        of_relations[:, 1:] += _rows_and_bytes(shard, pairs[1], pairs[0], len(types.relations))
    shard = contexts[0].features.shard
    assert isinstance(shard, TypedShard), "the graph is typed"
    # A learned row has two moments, and the best of its values so far.
    row_bytes = (shard.feature_bytes + 4 * shard.learned_bytes).tolist()
    return {
        "types": [
            {"type": each.name, "remote_rows": rows, "bytes": size, "held_bytes": each.vertices * held}
            for each, (rows, size), held in zip(types.vertices, of_types.tolist(), row_bytes, strict=True)
        ],
        "relations": [
            {"relation": str(each), "remote_edges": edges, "remote_rows": rows, "bytes": size}
            for each, (edges, rows, size) in zip(types.relations, of_relations.tolist(), strict=True)
        ],
    }


def _remote(ctx: RankContext, ids: np.ndarray) -> np.ndarray:
    """Return which of `ids` (int64[k]) are on another rank, and not of a type that every rank holds: bool[k]."""
    away = home_of(ids, ctx.rank_offsets) != ctx.communicator.rank
    return away if ctx.features.cache is None else away & (ctx.features.cache.slots(ids) < 0)


def _rows_and_bytes(shard: TypedShard, ids: np.ndarray, kind: np.ndarray, count: int) -> np.ndarray:
    """Count `ids` (int64[n]) and the bytes of their rows by `kind` (integers[n]): int64[count, 2]."""
    size = shard.units(ids) * shard.unit
    rows = np.bincount(kind, minlength=count)
    return np.stack([rows, np.bincount(kind, size, minlength=count).astype(np.int64)], axis=1)
