"""Memory that the mini-batches of an engine take."""

from __future__ import annotations

from leapmpi.engine.batch_rows import statistics_bytes
from leapmpi.engine.edge_roots import embedding_bytes
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.plan.memory_model import block_bytes, hidden_bytes


def predicted_memory(engine: Engine, minibatch: MiniBatch) -> int:
    """Return the bytes, about, that mini-batches like this one take on this rank at most. Local.

    Blocks and rows of it and of those prepared ahead; hidden values, gradients and statistics of one.
    """
    mode, layers, micro_batches = engine.mode, engine.ctx.model.layers, minibatch.micro_batches
    widths = [layer.out_dim for layer in layers]
    size = engine.ctx.model.dtype.itemsize
    alone = len(micro_batches) == 1
    # Micro-batches are trained one after the other, so the largest counts; blocks and rows of all are held at once.
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
