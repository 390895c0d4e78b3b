"""Traffic and memory of an engine's mini-batches, predicted without any communication."""

from __future__ import annotations

from collections.abc import Sequence

from leapmpi.engine.batch_rows import statistics_bytes
from leapmpi.engine.edge_roots import embedding_bytes
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
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
    """Add to `traffic` the part of `predict_traffic` that does not depend on whose gradients are reduced. Local."""
    engine.preparation.predict_draws(minibatches[engine.ctx.rank], traffic)
    engine.mode.predict(minibatches, traffic)
    engine.preparation.predict_request(minibatches[engine.ctx.rank], traffic)


def predicted_memory(engine: Engine, minibatch: MiniBatch) -> int:
    """Return the bytes, about, that mini-batches like this one take on this rank at most. Local.

    Blocks and rows of it and of those prepared ahead; hidden values, gradients and statistics of one.
    """
    mode, layers, micro_batches = engine.mode, engine.ctx.model.layers, minibatch.micro_batches
    widths = [layer.out_dim for layer in layers]
    size = layers[0].bias.element_size()
    alone = len(micro_batches) == 1
    steps = [
        mode.step_bytes(each, alone)
        + hidden_bytes(each.blocks, widths, size)
        + statistics_bytes(engine.ctx.model, each)
        for each in micro_batches
    ]
    if (edge_loss := minibatch.edge_loss) is not None:
        scored = (edge_loss.held_bytes(number, embedding_bytes(engine.ctx)) for number in range(len(steps)))
        steps = [step + pairs for step, pairs in zip(steps, scored, strict=True)]
    prepared = sum(block_bytes(each.blocks) for each in micro_batches) + mode.held_bytes(minibatch)
    return (1 + engine.prefetch_depth) * prepared + max(steps)
