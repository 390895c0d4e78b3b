"""EdgeData: what the edges of a graph or a part carry, in the order of `indices`: weights, features, times, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, required
from leapmpi.errors import DataError

DTYPES = {
    names.EDGE_WEIGHT: ("<f4",),
    names.EDGE_FEATURES: ("<f4", "<f2", "<i4", "<i8"),
    names.EDGE_TIME: ("<i8", "<f8"),
    names.EDGE_LABELS: ("<i4",),
}
"""The types of each array."""


@dataclass(frozen=True)
class EdgeData:
    """weight: float32[m]; features: [m, Fe], float32, float16, int32 or int64; time: int64[m] or float64[m].

    labels: int32[m], of `classes` classes, or -1: unlabelled. Each is None where edges do not carry it, and `classes`
    then 0. All values are finite.
    """

    weight: np.ndarray | None = None
    features: np.ndarray | None = None
    time: np.ndarray | None = None
    labels: np.ndarray | None = None
    classes: int = 0

    def arrays(self, *, features: bool = True) -> dict[str, np.ndarray]:
        """The arrays that there are, those of features if `features`, by their names in files."""
        found = {
            names.EDGE_WEIGHT: self.weight,
            names.EDGE_FEATURES: self.features if features else None,
            names.EDGE_TIME: self.time,
            names.EDGE_LABELS: self.labels,
        }
        return {name: array for name, array in found.items() if array is not None}

    @property
    def row_bytes(self) -> int:
        """Bytes that an edge carries."""
        return sum(
            array.dtype.itemsize * (array.shape[1] if array.ndim == 2 else 1) for array in self.arrays().values()
        )

    def attributes(self) -> Attributes:
        """The root attributes of a file that say which arrays there are; none where edges carry nothing."""
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
        """Other `arrays` of the same kinds, by their names in files, in place of these."""
        fields = {name.removeprefix("edge_"): array for name, array in arrays.items()}
        return EdgeData(**fields, classes=self.classes)


def edge_feature_dim(found: Attributes, path: Path) -> int:
    """The number of features of an edge by the root attributes `found` of `path`, 0 without."""
    return required({names.EDGE_FEATURE_DIM: 0, **found}, names.EDGE_FEATURE_DIM, int, path)


def edge_classes(found: Attributes, path: Path) -> int:
    """The number of classes of the labels of edges by the root attributes `found` of `path`, 0 without labels."""
    return required({names.EDGE_CLASSES: 0, **found}, names.EDGE_CLASSES, int, path)


def map_edge_data(file: OpenedFile, path: Path, found: Attributes, edges: int) -> EdgeData:
    """The arrays of `edges` edges that the attributes `found` list, mapped. Raises DataError where they do not fit."""
    width, classes, arrays = edge_feature_dim(found, path), edge_classes(found, path), {}
    for name, there, shape in (
        (names.EDGE_WEIGHT, bool(found.get(names.HAS_EDGE_WEIGHT, False)), (edges,)),
        (names.EDGE_FEATURES, width > 0, (edges, width)),
        (names.EDGE_TIME, bool(found.get(names.HAS_EDGE_TIME, False)), (edges,)),
        (names.EDGE_LABELS, classes > 0, (edges,)),
    ):
        if there:
            arrays[name.removeprefix("edge_")] = map_array(file, name, DTYPES[name], shape)
    return EdgeData(**arrays, classes=classes)


def check_edge_outline(data: EdgeData, edges: int, where: str) -> None:
    """Raise DataError unless the arrays have a row per edge, and types that files hold."""
    for name, array in data.arrays().items():
        if array.ndim != (2 if name == names.EDGE_FEATURES else 1) or len(array) != edges or 0 in array.shape[1:]:
            raise DataError(f"{where}: {name} has shape {array.shape}, but there are {edges} edges")
        if array.dtype.newbyteorder("<").str not in DTYPES[name]:
            raise DataError(f"{where}: {name} has dtype {array.dtype}, expected {' or '.join(DTYPES[name])}")
    if (data.labels is None) != (data.classes == 0):
        raise DataError(f"{where}: {names.EDGE_CLASSES} is {data.classes}; it is 0 without labels of edges alone")


def check_edge_values(name: str, block: np.ndarray, first: int, where: str, classes: int = 0) -> None:
    """Raise DataError naming the first value of `block` that is not finite; it is row `first` of array `name`.

    Labels are -1 or below `classes`.
    """
    if name == names.EDGE_LABELS:
        check_edge_labels(name, block, first, where, classes)
    if block.dtype.kind == "f" and not (finite := np.isfinite(block)).all():
        row = int(np.argmin(finite.reshape(len(block), -1).all(axis=1)))
        raise DataError(f"{where}: {name}, row {first + row} is {block[row]}; what edges carry must be finite")


def check_edge_labels(name: str, labels: np.ndarray, first: int, where: str, classes: int) -> None:
    """Raise DataError naming the first of `labels` that is neither -1 nor a class; it is row `first` of `name`."""
    if len(bad := np.flatnonzero((labels < names.UNLABELLED) | (labels >= classes))):
        raise DataError(
            f"{where}: {name}, row {first + bad[0]} is {labels[bad[0]]}, expected -1 (unlabelled) or 0..{classes - 1}"
        )


def check_not_negative(weight: np.ndarray, where: str) -> None:
    """Raise DataError where an edge weight is negative or no number: sums of weights are divided by."""
    if len(bad := np.flatnonzero(~(weight >= 0) | np.isinf(weight))):
        raise DataError(
            f"{where}: {names.EDGE_WEIGHT}, row {bad[0]} is {weight[bad[0]]}; training takes weights that are finite "
            "and not negative: import the graph with others, or train without them (--edge-weights ignore)"
        )
