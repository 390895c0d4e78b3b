"""What a share is, and the forms that layers choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from leapmpi.nn.shares.combination import Combination, SumCombination
from leapmpi.nn.shares.maximum import MaximumCombination
from leapmpi.nn.shares.softmax import SoftmaxCombination

PartialStep = tuple[Tensor, Callable[[Tensor], None]]
"""Shares, and what passes the gradient of them on to the weights."""


@dataclass(frozen=True)
class PartialForm:
    """How shares of a layer's aggregate are laid out and combined. One instance serves all layers of its kind."""

    combination: type[Combination]
    separate_self: bool = False
    """Whether a destination's self part travels as a row of its own instead of within its home rank's share."""
    share_rows: int = 1
    """Rows of a share, where self parts are separate; the matrix holds the first of each destination, then the next."""

    def parts(self, rows: Tensor, destinations: int) -> tuple[Tensor | None, Tensor]:
        """The self parts (None if they are in the aggregate) and the aggregates, float[destinations, out] each.

        `rows` is the combined matrix, with the self parts, if separate, below; `Layer.finish` takes both. Of a share of
        several rows, the last one is the aggregate.
        """
        if not self.separate_self:
            return None, rows
        below = self.share_rows * destinations
        return rows[below:], rows[below - destinations : below]


SUM, MAXIMUM = PartialForm(SumCombination), PartialForm(MaximumCombination, separate_self=True)
"""Sums: one row per destination. Maxima: one from every owner of a neighbour, and a self part from the home."""

SEPARATE_SUM, SOFTMAX = PartialForm(SumCombination, True), PartialForm(SoftmaxCombination, True, 2)
"""Sums of what is not linear in rows, and means by a softmax: from every owner of a neighbour, and a self part."""
