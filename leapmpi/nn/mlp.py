"""A multi-layer perceptron over rows, as layers of graph networks hold one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.nn.layer import Projection
from leapmpi.nn.norms import BatchNormalise
from leapmpi.nn.rows import Rows


class MLP(nn.Module):
    """Products from width to width, with biases, normalisation and ReLU between them.

    `norm` makes the normalisation of so many columns, None for none. The last product has no bias: a layer has one of
    its own. Nor has one before a batch normalisation, which would take it out again.
    """

    def __init__(self, widths: Sequence[int], norm: Callable[[int], nn.Module | None]) -> None:
        super().__init__()
        self.products = nn.ModuleList(Projection(*pair) for pair in itertools.pairwise(widths))
        norms = [each for width in widths[1:-1] if (each := norm(width)) is not None]
        self.norms = nn.ModuleList(norms) if norms or len(widths) == 2 else None
        biased = widths[1:-1] if not any(isinstance(each, BatchNormalise) for each in norms) else ()
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in biased)

    @property
    def first(self) -> Projection:
        """The first product."""
        return cast("Projection", self.products[0])

    def forward(self, x: Rows) -> Tensor:
        """Compute float[rows, widths[0]] -> float[rows, widths[-1]]."""
        return self.after_first(self.first(x))

    def after_first(self, h: Tensor) -> Tensor:
        """Compute the result, float[n, out], from that of the first product."""
        for number, product in enumerate(itertools.islice(self.products, 1, None)):
            h = h + self.biases[number] if len(self.biases) else h
            h = product(F.relu(h if self.norms is None else self.norms[number](h)))
        return h
