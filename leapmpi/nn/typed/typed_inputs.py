"""The input layer of models of typed graphs, and their normalisation of rows.

Each type has a matrix of its own for its features and one for its learned rows, without bias: z_v = P_t x_v + Q_t e_v.
Learned rows that are as wide as z need no matrix: a product of two things that are learned trains worse. All types have
the same width afterwards, so that one row per source serves every relation that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.gemm import place_product, sum_of_outer
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Weighted
from leapmpi.nn.rows import Rows, ScatteredRows, dense
from leapmpi.nn.typed.relation_sums import by_kind
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.nn.typed_schema import TypedSchema, place_table


class InputLayer(Weighted):
    """A projection for each of `types` (int64[k]) to rows of `width` columns; rows of other types become zeros.

    Learned rows of `width` columns are added as they are.
    """

    def __init__(self, schema: TypedSchema, width: int, types: np.ndarray) -> None:
        super().__init__()
        self.width, self.types, self.fans = width, types.tolist(), {}
        self.added = [t for t in self.types if schema.learned[t] == width]
        for t in self.types:
            for kind, columns in (("features", schema.widths), ("learned", schema.learned)):
                if columns[t] and not (kind == "learned" and t in self.added):
                    name = f"{kind}_{t}"
                    self.register_parameter(name, nn.Parameter(torch.empty(width, int(columns[t]))))
                    self.fans[name] = int(columns[t]), width

    def forward(self, x: Rows) -> Tensor:
        """Project rows to float[n, width]. A tensor is taken as projected before."""
        if not isinstance(x, TypedMatrix):
            return dense(x)
        order, bounds = by_kind(x.types, max(self.types, default=0) + 1)
        rows = [order[bounds[t + 1] : bounds[t + 2]] for t in self.types]
        weights = [getattr(self, f"{kind}_{t}", None) for t in self.types for kind in KINDS]
        return _Projected.apply(x, self.width, self.types, self.added, rows, x.learned, *weights)


KINDS = "features", "learned"
"""Kinds of columns of a type that may have a matrix."""

_LEARNED = 5
"""The place of the learned rows among the operands of `_Projected`."""


class _Projected(Function):
    """The rows of all types, written to their places once; those of other types are zeros.

    rows: for each type int64[k], their numbers. weights: of each type, that of its features and of its learned rows.
    """

    @staticmethod
    def forward(ctx, x, width, types, added, rows, learned, *weights) -> Tensor:
        given = next(each for each in (learned, *weights) if each is not None)
        # Zeros take a pass over memory, which only rows of types that are not read need.
        fills = torch.empty if sum(map(len, rows)) == len(x) else torch.zeros
        out = fills(len(x), width, dtype=given.dtype, device=x.device)
        for number, chosen in enumerate(rows):
            terms = 0
            if types[number] in added and len(chosen):
                places, here = x.learned_places[chosen], _span(chosen)
                if here is None:
                    out.index_copy_(0, chosen, learned.index_select(0, places))
                else:
                    torch.index_select(learned, 0, places, out=out[here])
                terms = 1
            for place, columns, numbers in _factors(x, types[number], number, chosen, weights):
                place_product(out, chosen, columns, weights[place], numbers, adds=terms > 0)
                terms += 1
            assert terms or not len(chosen), f"rows of type {types[number]} are neither stored nor learned"
        ctx.x, ctx.types, ctx.added, ctx.rows = x, types, added, rows
        ctx.save_for_backward(learned, *weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, (learned, *weights) = ctx.x, ctx.saved_tensors
        of_learned = torch.zeros_like(learned) if ctx.needs_input_grad[_LEARNED] else None
        found = [None if each is None else torch.zeros_like(each) for each in weights]
        for number, chosen in enumerate(ctx.rows):
            here = _span(chosen)
            given = grad.index_select(0, chosen) if here is None else grad[here]
            if of_learned is not None and ctx.types[number] in ctx.added and len(chosen):
                of_learned.index_add_(0, x.learned_places[chosen], given)
            for place, columns, numbers in _factors(x, ctx.types[number], number, chosen, weights):
                found[place] = sum_of_outer(given, columns, numbers)
                if of_learned is not None and columns is learned:
                    place_product(of_learned, numbers, given, weights[place].t(), adds=True)
        return *(None,) * _LEARNED, of_learned, *found


def _span(rows: Tensor) -> slice | None:
    """Return the slice of `rows` (int64[k], ascending) where they follow each other in host memory, else None."""
    if not len(rows) or not on_host(rows.device):
        return None
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else None


def _factors(
    x: TypedMatrix, t: int, number: int, chosen: Tensor, weights: Sequence[Tensor | None]
) -> Iterator[tuple[int, Tensor | ScatteredRows, Tensor]]:
    """Yield what the rows `chosen` of type `t`, entry `number` of all types, are multiplied by.

    Yields the place of the matrix among `weights`, the columns, and the numbers int64[k] of the rows in these.
    """
    both = (x.features[t], x.places), (x.learned, x.learned_places)
    for place, (columns, places) in enumerate(both, len(KINDS) * number):
        # A rank may hold no vertex of a type, and then has no rows of it.
        if weights[place] is not None and len(chosen):
            assert columns is not None, f"rows of type {t} have the columns that a matrix multiplies"
            yield place, columns, places[chosen]


class TypedNormalise(nn.Module):
    """Layer normalisation of rows with gain and bias of their type, one of `types` (int64[k])."""

    places: Tensor

    def __init__(self, schema: TypedSchema, width: int, types: np.ndarray) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(len(types), width))
        self.bias = nn.Parameter(torch.zeros(len(types), width))
        self.register_buffer("places", place_table(types, len(schema.names)), persistent=False)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        """Normalise float[rows, width] of `types` (int64[rows]) -> float[rows, width]."""
        # A row of a type that the layer does not read is read by nothing.
        place = self.places[types].clamp(min=0)
        return F.layer_norm(x, x.shape[1:]) * self.gain.index_select(0, place) + self.bias.index_select(0, place)
