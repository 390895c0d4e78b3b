"""Input rows of a typed graph: rows of each type have a width of their own, features, learned columns, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TypedMatrix:
    """Input rows float[rows, width of the type]; they become a matrix in the input layer (typed/typed_inputs.py).

    Row i has the type types[i]; its features are row places[i] of features[types[i]], its learned columns row
    learned_places[i] of `learned`. Rows are selected without a copy of either.
    """

    width: int
    """Columns that the input layer makes of each row."""
    features: Sequence[Any]
    """By type: float[k_t, F_t], a tensor or ScatteredRows (rows.py), None without features."""
    learned: Tensor | None
    """float[k, N], a leaf where gradients are computed; None where nothing is learned."""
    types: Tensor
    """int64[rows]."""
    places: Tensor
    """int64[rows], arbitrary for a type without features."""
    learned_places: Tensor
    """int64[rows], arbitrary for a type without learned rows."""

    requires_grad = True
    """The input layer's weights learn at the least."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        return len(self.types), self.width

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all columns."""
        return next(each for each in (*self.features, self.learned) if each is not None).dtype

    @property
    def device(self) -> torch.device:
        """The device of all columns."""
        return self.types.device

    def __len__(self) -> int:
        return len(self.types)

    def to(self, dtype: torch.dtype) -> TypedMatrix:
        """Return the same rows with columns of `dtype`."""
        if self.dtype == dtype:
            return self
        features = [None if each is None else each.to(dtype) for each in self.features]
        return replace(self, features=features, learned=None if self.learned is None else self.learned.to(dtype))

    def __getitem__(self, rows: slice | np.ndarray | Tensor) -> TypedMatrix:
        """Return the rows of a slice, or those numbered int64[k]."""
        if isinstance(rows, np.ndarray):
            rows = torch.from_numpy(rows).to(self.device)
        numbers = (each[rows] for each in (self.types, self.places, self.learned_places))
        return TypedMatrix(self.width, self.features, self.learned, *numbers)

    def compact(self) -> TypedMatrix:
        """Return the same rows without features that none of them has; of types that learn nothing."""
        features, places = list(self.features), torch.zeros_like(self.places)
        for t, each in enumerate(self.features):
            rows = (self.types == t).nonzero().flatten()
            places[rows] = torch.arange(len(rows), device=self.device)
            features[t] = None if each is None else _taken(each, self.places[rows])
        return TypedMatrix(self.width, features, None, self.types, places, places)

    def of_type(self, t: int, width: int) -> Tensor:
        """Return the rows of type `t` in their order, float[k, width]: features, or learned columns without."""
        rows, features = (self.types == t).nonzero().flatten(), self.features[t]
        if features is not None:
            return _taken(features, self.places[rows])
        if self.learned is not None and self.learned.shape[1] == width and len(rows):
            return self.learned.index_select(0, self.learned_places[rows])
        return torch.zeros(len(rows), width, dtype=self.dtype, device=self.device)

    def dense(self) -> Tensor:
        """Refuse: rows of several widths are not a matrix before the input layer."""
        raise TypeError("rows of a typed graph become a matrix in the input layer of a typed model")


def _taken(features: Any, places: Tensor) -> Tensor:
    """Return the rows `places` (int64[k]) of features, a copy."""
    chosen = features[places]
    return chosen if isinstance(chosen, Tensor) else chosen.dense()
