"""First layers of several models as one product, over the sums of raw rows that all of them read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leapmpi.nn.kernels.gemm import product
from leapmpi.nn.layer import Layer, Projection
from leapmpi.nn.rows import Rows


def read_the_same_sums(layers: Sequence[Layer]) -> bool:
    """Whether what `Layer.raw_sums` and `raw_share` give is the same for all of `layers`, of one model each."""
    kinds = {(type(layer), layer.sums_hold_own, layer.in_dim, layer.bias.dtype) for layer in layers}
    return len(kinds) == 1 and all(layer.offers_sum_shares and layer.plain_prefix for layer in layers)


def stacks(layers: Sequence[Layer]) -> bool:
    """Whether `stacked_from_sums` serves `layers`, which read the same sums."""
    return all("sum_projections" in vars(type(layer)) and layer.sum_projections for layer in layers)


def stacked_from_sums(layers: Sequence[Layer], sums: Tensor, own: Rows | None) -> list[Tensor]:
    """What `Layer.from_sums` gives for each of `layers`: float[n_dst, its width].

    The weights of all are one matrix, so that rows are read once, forward and backward. Each column of a product is
    summed by itself, as without the others.
    """
    of_sums, *of_own = zip(*(layer.sum_projections for layer in layers), strict=True)
    stacked = product(sums, _weights(of_sums))
    for projections in of_own:
        assert own is not None, "layers that multiply own rows need them"
        stacked = product(own, _weights(projections)) + stacked
    parts = stacked.split([layer.out_dim for layer in layers], dim=1)
    return [layer.finish(None, part, own) for layer, part in zip(layers, parts, strict=True)]


def _weights(projections: Sequence[Projection]) -> Tensor:
    return torch.cat([projection.weight for projection in projections])
