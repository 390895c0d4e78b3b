"""Columns of travelling rows that their reader's dropout keeps: no others are read.

Both sides of an exchange know the mask of a vertex (rule R1), so they agree on the columns without a message.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.nn.dropout import DropoutKey, kept_columns, with_seed
from leapmpi.nn.head import Head
from leapmpi.nn.layer import Layer, reads_destinations
from leapmpi.nn.share_forms import SUM

Kept = tuple[np.ndarray | None, np.ndarray | None]
"""uint8[rows, width] of sent and of received rows: 1 for numbers that are read; None where all are."""

EVERY: Kept = (None, None)

Names = Callable[[], tuple[np.ndarray, np.ndarray]]
"""Original ids, int64, of the vertices of the rows that are sent and of those that are received."""


def drops_alone(layer: Layer) -> bool:
    """Return whether `layer` reads its input rows only through dropout, column by column."""
    plain = layer.norm is None and not reads_destinations(layer) and type(layer).prefix is Layer.prefix
    return layer.splits and layer.dropout > 0 and plain


def reader_of(ctx: RankContext, layer: Layer) -> Layer | None:
    """Return the layer that reads the output of `layer` through dropout alone; None where something else reads it too.

    Shares of a destination may then lack the columns that it drops: `finish` works on each column apart.
    """
    model = ctx.model
    if layer.number == len(model.layers) or layer.shares is None or layer.shares.layout is not SUM:
        return None
    # A finish of its own, or a residual, may mix columns; then none can be left out.
    apart = type(layer).finish is Layer.finish and layer.residual is None
    head = model.head
    last = head is None or (head.jumping not in ("cat", "max") and type(head).forward is Head.forward)
    above = model.layers[layer.number]
    return above if apart and last and drops_alone(above) else None


def has_zeros(layer: Layer) -> bool:
    """Return whether half of the outputs of `layer`, and of the gradients of its sums, are zero, as with ReLU."""
    return not layer.last and type(layer).activation is Layer.activation


def hides_gradients(layer: Layer) -> bool:
    """Return whether the output of `layer` is that of ReLU itself: where it is zero, its gradient is not read."""
    return has_zeros(layer) and type(layer).finish is Layer.finish and layer.residual is None


def without_zeros(kept: Kept, sent: Tensor, received: Tensor) -> Kept:
    """Return which numbers of the gradients of rows are read: those `kept` that are not zero in the rows.

    sent, received: float[k, width] and float[m, width] on the host; `kept` has the numbers of both that travelled. Both
    ends of a row find the same.
    """
    nonzero = [np.not_equal(each.detach().numpy(), 0).view(np.uint8) for each in (sent, received)]
    for found, read in zip(nonzero, kept, strict=True):
        if read is not None:
            found &= read
    return nonzero[0], nonzero[1]


def expected_share(ctx: RankContext, layer: Layer, shares: bool) -> float:
    """Estimate the fraction of numbers that travel for `layer`, of rows and their gradients, before any is known.

    With `shares` its shares of destinations travel, else rows of the layer below; features travel whole. A bit for each
    number marks those that are not zero.
    """
    if not ctx.packing or (layer.number == 1 and not shares):
        return 1.0
    sparse = 0.5 + 1 / (8 * layer.dtype.itemsize)
    # Shares are sums before ReLU, so only their gradients have zeros; rows of the layer below are outputs of ReLU.
    if shares:
        reader = reader_of(ctx, layer)
        forward, back = 1.0, sparse if has_zeros(layer) else 1.0
    else:
        reader = layer if drops_alone(layer) else None
        below = ctx.model.layers[layer.number - 2]
        # Zeros of the rows, which both sides know then, need no bits in the gradients.
        forward, back = sparse if has_zeros(below) else 1.0, 0.5 if hides_gradients(below) else 1.0
    kept = 1.0 if reader is None or ctx.answers is not None else 1 - reader.dropout
    return kept * (forward + back) / 2


class ReadColumns:
    """The columns of rows of vertices `names` that `reader` reads; all of them without a reader, and in evaluation."""

    def __init__(self, ctx: RankContext, reader: Layer | None, names: Names) -> None:
        # Owners of a sharded topology do not know the original ids of remote vertices.
        self._reader = reader if ctx.packing and ctx.answers is None else None
        self._names = names

    def kept(self, key: DropoutKey | None, width: int) -> Kept:
        """Return which numbers of rows of `width` columns are read in the iteration of `key`."""
        if self._reader is None or (key := with_seed(key, self._reader.seed)) is None:
            return EVERY
        layer, rate = self._reader.number, self._reader.dropout
        sent, received = (kept_columns(each, key, layer, rate, width) for each in self._names())
        return sent, received
