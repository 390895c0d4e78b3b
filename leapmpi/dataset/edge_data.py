"""Edge data of a graph or a part, in the order of `indices`: weights, features, times, labels, relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, required
from leapmpi.errors import DataError, there_are

DTYPES = {
    names.EDGE_WEIGHT: ("<f4",),
    names.EDGE_FEATURES: ("<f4", "<f2", "<i4", "<i8"),
    names.EDGE_TIME: ("<i8", "<f8"),
    names.EDGE_LABELS: ("<i4",),
    names.RELATION: ("|u1", "<u2"),
}
"""Types of each array."""


@dataclass(frozen=True)
class EdgeData:
    """Data of edges, each None if absent. All values are finite.

    weight: float32[m]; features: [m, Fe], float32, float16, int32 or int64; time: int64[m] or float64[m]. labels:
    int32[m], of `classes` classes (0 without labels), or -1: unlabelled. relation: uint8[m] or uint16[m], below
    `relations` (0 in a plain graph), the number of the relation of each edge.
    """

    weight: np.ndarray | None = None
    features: np.ndarray | None = None
    time: np.ndarray | None = None
    labels: np.ndarray | None = None
    classes: int = 0
    relation: np.ndarray | None = None
    relations: int = 0

    def arrays(self, *, features: bool = True) -> dict[str, np.ndarray]:
        """Return the existing arrays by their names in files, with features only if `features`."""
        found = {
            names.EDGE_WEIGHT: self.weight,
            names.EDGE_FEATURES: self.features if features else None,
            names.EDGE_TIME: self.time,
            names.EDGE_LABELS: self.labels,
            names.RELATION: self.relation,
        }
        return {name: array for name, array in found.items() if array is not None}

    @property
    def row_bytes(self) -> int:
        """Bytes per edge."""
        return sum(
            array.dtype.itemsize * (array.shape[1] if array.ndim == 2 else 1) for array in self.arrays().values()
        )

    def attributes(self) -> Attributes:
        """Return the root attributes of a file that list the arrays; none without edge data."""
        found: Attributes = {}
        if self.weight is not None:
            found[names.HAS_EDGE_WEIGHT] = True
        if self.features is not None:
            found[names.EDGE_FEATURE_DIM] = int(self.features.shape[1])
        if self.time is not None:
            found[names.HAS_EDGE_TIME] = True
        if self.labels is not None:
            found[names.EDGE_CLASSES] = self.classes
        return found

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> EdgeData:
        """Return edge data of the same kinds with other `arrays`, by their names in files."""
        fields = {name.removeprefix("edge_"): array for name, array in arrays.items()}
        return EdgeData(**fields, classes=self.classes, relations=self.relations)


def edge_feature_dim(found: Attributes, path: Path) -> int:
    """Return the number of features of an edge from the root attributes `found` of `path`, 0 without."""
    return required({names.EDGE_FEATURE_DIM: 0, **found}, names.EDGE_FEATURE_DIM, int, path)


def edge_classes(found: Attributes, path: Path) -> int:
    """Return the number of classes of edge labels from the root attributes `found` of `path`, 0 without labels."""
    return required({names.EDGE_CLASSES: 0, **found}, names.EDGE_CLASSES, int, path)


def map_edge_data(file: OpenedFile, path: Path, found: Attributes, edges: int) -> EdgeData:
    """Map the arrays of `edges` edges listed by the attributes `found`. Raises DataError if they do not fit."""
    width, classes, arrays = edge_feature_dim(found, path), edge_classes(found, path), {}
    relations = required({names.RELATIONS: 0, **found}, names.RELATIONS, int, path)
    for name, there, shape in (
        (names.EDGE_WEIGHT, bool(found.get(names.HAS_EDGE_WEIGHT, False)), (edges,)),
        (names.EDGE_FEATURES, width > 0, (edges, width)),
        (names.EDGE_TIME, bool(found.get(names.HAS_EDGE_TIME, False)), (edges,)),
        (names.EDGE_LABELS, classes > 0, (edges,)),
        (names.RELATION, relations > 0, (edges,)),
    ):
        if there:
            arrays[name.removeprefix("edge_")] = map_array(file, name, DTYPES[name], shape)
    return EdgeData(**arrays, classes=classes, relations=relations)


def check_edge_outline(data: EdgeData, edges: int, where: str) -> None:
    """Raise DataError unless the arrays have a row per edge, and types that files hold."""
    for name, array in data.arrays().items():
        if array.ndim != (2 if name == names.EDGE_FEATURES else 1) or len(array) != edges or 0 in array.shape[1:]:
            raise DataError(f"{where}: {name} has shape {array.shape}, but {there_are(edges, 'edge')}")
        if array.dtype.newbyteorder("<").str not in DTYPES[name]:
            raise DataError(f"{where}: {name} has dtype {array.dtype}, expected {' or '.join(DTYPES[name])}")
    if (data.labels is None) != (data.classes == 0):
        raise DataError(f"{where}: {names.EDGE_CLASSES} is {data.classes}; it is 0 without labels of edges alone")
    if (data.relation is None) != (data.relations == 0):
        raise DataError(f"{where}: {names.RELATIONS} is {data.relations}; it is 0 in a plain graph alone")


def check_edge_values(name: str, block: np.ndarray, first: int, where: str, classes: int = 0) -> None:
    """Raise DataError naming the first value of `block` that is not finite; it is row `first` of array `name`.

    Labels are -1 or below `classes`.
    """
    if name == names.EDGE_LABELS:
        check_edge_labels(name, block, first, where, classes)
    if block.dtype.kind == "f" and not (finite := np.isfinite(block)).all():
        row = int(np.argmin(finite.reshape(len(block), -1).all(axis=1)))
        raise DataError(f"{where}: {name}, row {first + row} is {block[row]}; edge data must be finite")


def check_edge_labels(name: str, labels: np.ndarray, first: int, where: str, classes: int) -> None:
    """Raise DataError for the first of `labels` that is neither -1 nor a class; it is row `first` of `name`."""
    if len(bad := np.flatnonzero((labels < names.UNLABELLED) | (labels >= classes))):
        raise DataError(
            f"{where}: {name}, row {first + bad[0]} is {labels[bad[0]]}, expected -1 (unlabelled) or 0..{classes - 1}"
        )


def check_not_negative(weight: np.ndarray, where: str) -> None:
    """Raise DataError for a negative or undefined edge weight: sums of weights are divisors."""
    if len(bad := np.flatnonzero(~(weight >= 0) | np.isinf(weight))):
        raise DataError(
            f"{where}: {names.EDGE_WEIGHT}, row {bad[0]} is {weight[bad[0]]}; training takes weights that are finite "
            "and not negative: import the graph with others, or train without them (--edge-weights ignore)"
        )
