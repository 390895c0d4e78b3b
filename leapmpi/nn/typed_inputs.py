"""The input layer of models of typed graphs, and their normalisation of rows.

Each type has a matrix of its own for its features and one for its learned rows, without bias: z_v = P_t x_v + Q_t e_v.
Learned rows that are as wide as z need no matrix: a product of two things that are learned trains worse. All types have
the same width afterwards, so that one row per source serves every relation that reads it.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Weighted
from leapmpi.nn.relation_sums import by_kind
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.nn.typed_schema import TypedSchema, places_among


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
        pieces, places = [], []
        for t in self.types:
            rows = order[bounds[t + 1] : bounds[t + 2]]
            pieces.append(self._projected(x, t, rows))
            places.append(rows)
        out = pieces[0].new_zeros(len(x), self.width)
        return out.index_copy(0, torch.cat(places), torch.cat(pieces))

    def _projected(self, x: TypedMatrix, t: int, rows: Tensor) -> Tensor:
        """Project the rows numbered `rows` (int64[k]), which are of type `t`."""
        terms = []
        if t in self.added and x.learned is not None:
            terms.append(x.learned.index_select(0, x.learned_places[rows]))
        for kind, columns, places in (("features", x.features[t], x.places), ("learned", x.learned, x.learned_places)):
            weight = cast("Tensor | None", getattr(self, f"{kind}_{t}", None))
            if weight is None:
                continue
            # A rank may hold no vertex of a type, and then has no rows of it.
            if columns is None:
                assert not len(rows), f"rows of type {t} have {kind}"
                columns = weight.new_empty(0, weight.shape[1])
            terms.append(product(columns, weight, places[rows]))
        if not terms:
            assert not len(rows), f"rows of type {t} have learned rows"
            return torch.empty(0, self.width, dtype=x.dtype, device=x.device)
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]


class TypedNormalise(nn.Module):
    """Layer normalisation of rows with gain and bias of their type, one of `types` (int64[k])."""

    places: Tensor

    def __init__(self, schema: TypedSchema, width: int, types: np.ndarray) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(len(types), width))
        self.bias = nn.Parameter(torch.zeros(len(types), width))
        self.register_buffer("places", places_among(types, len(schema.names)), persistent=False)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        """Normalise float[rows, width] of `types` (int64[rows]) -> float[rows, width]."""
        # A row of a type that the layer does not read is read by nothing.
        place = self.places[types].clamp(min=0)
        return F.layer_norm(x, x.shape[1:]) * self.gain.index_select(0, place) + self.bias.index_select(0, place)
