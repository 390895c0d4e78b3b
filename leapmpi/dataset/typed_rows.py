"""Typed rows of a graph or a part: where the vertices of each type begin, and the features of each type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array
from leapmpi.errors import DataError


@dataclass(frozen=True)
class TypedRows:
    """Features of the vertices of a graph or a part by type.

    offsets: int64[T + 1], the rows of type t are offsets[t] to offsets[t + 1] (exclusive). features: by type
    [n_t, F_t] or None; dense, of a dtype of names.FEATURE_DTYPES. scales: by type float32[2, F_t], steps and middles of
    int8 features, or None.
    """

    types: GraphTypes
    offsets: np.ndarray
    features: tuple[np.ndarray | None, ...]
    scales: tuple[np.ndarray | None, ...]

    @classmethod
    def of(
        cls,
        types: GraphTypes,
        original_id: np.ndarray,
        features: tuple[np.ndarray | None, ...],
        scales: tuple[np.ndarray | None, ...] | None = None,
    ) -> TypedRows:
        """Return the typed rows of vertices with ascending `original_id` int64[n]."""
        offsets = np.searchsorted(original_id, types.bases).astype(np.int64)
        return cls(types, offsets, features, scales or (None,) * len(features))

    def sections(self) -> Iterator[tuple[int, int, np.ndarray | None]]:
        """Yield the first row, the end and the features of each type that has vertices here."""
        for t, features in enumerate(self.features):
            if self.offsets[t] < self.offsets[t + 1]:
                yield int(self.offsets[t]), int(self.offsets[t + 1]), features

    def types_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers int64[k] of the types of `rows` integers[k]."""
        return np.searchsorted(self.offsets, rows, "right") - 1

    def describe(self, relation_edges: np.ndarray) -> dict[str, list[dict]]:
        """Return types and relations as plain values; `relation_edges` int64[R]."""
        return self.types.describe(self.offsets[None], relation_edges)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return features and scales by their names in files."""
        features = {names.type_features(t): array for t, array in enumerate(self.features)}
        scales = {names.type_scale(t): array for t, array in enumerate(self.scales)}
        return {name: array for name, array in {**features, **scales}.items() if array is not None}


def map_typed_rows(file: OpenedFile, types: GraphTypes, offsets: np.ndarray) -> TypedRows:
    """Map the features of the types in `file`; `offsets` are those of TypedRows. Raises DataError if one is missing."""
    features: list[np.ndarray | None] = []
    scales: list[np.ndarray | None] = []
    for t, each in enumerate(types.vertices):
        shape = int(offsets[t + 1] - offsets[t]), each.feature_dim
        dtype = names.FEATURE_DTYPES[each.feature_dtype] if each.feature_dtype else None
        features.append(map_array(file, names.type_features(t), (dtype,), shape) if dtype else None)
        scaled = each.feature_dtype == "int8"
        scales.append(np.array(map_array(file, names.type_scale(t), ("<f4",), (2, shape[1]))) if scaled else None)
    return TypedRows(types, offsets, tuple(features), tuple(scales))


def check_type_offsets(offsets: np.ndarray, first: np.ndarray, path: Path) -> None:
    """Check `offsets` int64[P, T + 1] of a dataset whose parts begin at `first` int64[P + 1]. Raises DataError."""
    ends = np.stack([first[:-1], first[1:]], axis=1)
    if (offsets[:, [0, -1]] != ends).any() or (np.diff(offsets, axis=1) < 0).any():
        raise DataError(f"{path}: {names.TYPE_OFFSETS} does not cut each part by type; partition again")
