"""What the mini-batches of an engine move and hold, predicted without any communication."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.engine.edges.edge_features import predict_edge_features
from leapmpi.engine.engine import Engine
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.features.row_exchange import RowRequest
from leapmpi.plan.list_traffic import predict_lists
from leapmpi.plan.memory_model import block_bytes, hidden_bytes
from leapmpi.plan.traffic_model import Traffic


def predict_traffic(engine: Engine, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
    """Add to `traffic` what the rank of `engine` sends, requests and reads in an iteration. Local.

    `minibatches` are those of all ranks. `leapmpi plan` is made of this, and training must count the same.
    """
    predict_fetch(engine, minibatches, traffic)
    gradients = engine.ctx.parameters.shared_gradients
    traffic.add_reduction(engine.ctx.rank, len(gradients), gradients.element_size())
    engine.placement.predict(minibatches, traffic)


def predict_fetch(engine: Engine, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
    """The part of `predict_traffic` that does not depend on whose gradients are reduced. Local."""
    ctx, minibatch = engine.ctx, minibatches[engine.ctx.rank]
    if ctx.answers is not None:
        for micro_batch in minibatch.micro_batches:
            predict_lists(micro_batch.blocks, ctx.rank, ctx.rank_offsets, ctx.answers, traffic)
    engine.mode.predict(minibatches, traffic)
    predict_edge_features(ctx, minibatch.micro_batches, traffic)
    if not engine.labels_are_local(minibatch):
        roots = RowRequest(np.concatenate(engine.placement.labelled(minibatch)), ctx.rank_offsets, ctx.rank)
        row_bytes = ctx.labels.shard.row_bytes
        traffic.add_request(ctx.rank, roots.remote_counts, ctx.labels.id_codec.id_bytes, "labels", row_bytes)
    if ctx.rank == 0:
        traffic.add_broadcast("schedule", minibatch.planned.to_buffer().nbytes)


def predicted_memory(engine: Engine, minibatch: MiniBatch) -> int:
    """Bytes, about, that mini-batches like this one take on this rank at most. Local.

    Blocks and rows of it and of those prepared ahead; hidden values and gradients of one.
    """
    mode, layers, micro_batches = engine.mode, engine.ctx.model.layers, minibatch.micro_batches
    widths = [layer.out_dim for layer in layers]
    size = layers[0].bias.element_size()
    alone = len(micro_batches) == 1
    steps = (mode.step_bytes(each, alone) + hidden_bytes(each.blocks, widths, size) for each in micro_batches)
    prepared = sum(block_bytes(each.blocks) for each in micro_batches) + mode.held_bytes(minibatch)
    return (1 + engine.prefetch_depth) * prepared + max(steps)
