"""Attention of edges that a layer leaves for the layer above, which mixes it with its own."""

from __future__ import annotations

from torch import Tensor


class CarriedAttention:
    """The attention that the layer of one block leaves at its edges, until the layer above has read it.

    below: that of the layer below, None for the first layer. places: int32[edges], the number of each edge in the block
    below; None where they are the first ones there. is_read: whether a layer above reads what is left here.
    """

    def __init__(self, below: CarriedAttention | None, places: Tensor | None, is_read: bool) -> None:
        self.below, self.places, self.is_read = below, places, is_read
        self.values: Tensor | None = None
        """float[edges, heads], in the order of `edges_with_self` of the block."""

    def take(self, edges: int) -> Tensor | None:
        """Return what the layer below left at the `edges` of this block, float[edges, heads]; None for the first layer.

        It can be taken once.
        """
        if self.below is None:
            return None
        values, self.below.values = self.below.values, None
        assert values is not None, "the layer below is computed first"
        return values[:edges] if self.places is None else values.index_select(0, self.places)

    def leave(self, values: Tensor) -> None:
        """Keep `values`, float[edges, heads], for the layer above; no gradient passes through them."""
        if self.is_read:
            self.values = values.detach()
