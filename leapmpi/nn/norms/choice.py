"""Which normalisation a setting stands for."""

from __future__ import annotations

from torch import nn

from leapmpi.nn.norms.batch_norm import BatchNormalise
from leapmpi.nn.norms.layer_norm import Normalise

BATCH = "batch"


def norm_of(kind: str, width: int, after: int, with_bias: bool = True, auto: str = "none") -> nn.Module | None:
    """The normalisation `kind` (a value of model.norm) of rows that layer `after` gives out; None for none.

    `auto` is what that value stands for.
    """
    kind = auto if kind == "auto" else kind
    if kind == BATCH:
        return BatchNormalise(width, after, with_bias)
    return Normalise(width, with_bias) if kind == "layer" else None
