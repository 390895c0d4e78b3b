"""Features in fewer bytes: float16, bfloat16, or int8 with a step and a middle for each column; and what that loses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data_prep.assembly.feature_rows import FeatureRows
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.graph import Graph, feature_dtype
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import ConfigError, DataError

_STEPS = 127
"""Steps of int8 on either side of the middle of a column's range."""

_EXACT = 1 << 24
"""Whole numbers up to here are exact in float32."""

_LARGEST_HALF = 65504.0
_LARGEST_BRAIN = np.uint32(0x7F7F)


@dataclass(frozen=True)
class StoredFeatures:
    """Features as they are written, rows [n, F], and the steps and middles of columns, float32[2, F], of int8."""

    rows: np.ndarray
    scale: np.ndarray | None
    largest_error: float
    """The largest error of an element, as a share of its column's range; of its magnitude in a column of one value."""
    column: int
    """Place of the error."""
    mean_error: float
    """The root mean square of all elements' errors, as such shares."""

    @property
    def attributes(self) -> Attributes:
        """Attributes of files that describe the errors."""
        return {"feature_error_largest": self.largest_error, "feature_error_rms": self.mean_error}

    def note(self, dtype: str) -> str:
        """Describe the loss for the tables of import and partition."""
        before = 4 * self.rows.shape[0] * self.rows.shape[1]
        return (
            f"features as {dtype}: {self.rows.nbytes:,} bytes instead of {before:,}; errors as shares of a column's "
            f"range: largest {self.largest_error:.2g} (column {self.column}), root mean square {self.mean_error:.2g}"
        )


class _Columns:
    """Ranges of the columns, found in a pass over the rows."""

    def __init__(self, width: int) -> None:
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.least, self.whole, self.zero = np.full(width, np.inf), np.ones(width, bool), np.zeros(width, bool)
        """The smallest magnitude but 0; whether all values are whole numbers; whether one is 0. By `see_values`."""
        self.largest, self.squares = np.zeros(width), np.zeros(width)

    def see(self, block: np.ndarray) -> None:
        """Take `block` float32[k, F] into the ranges."""
        np.minimum(self.low, block.min(axis=0), out=self.low)
        np.maximum(self.high, block.max(axis=0), out=self.high)

    def see_values(self, block: np.ndarray) -> None:
        """Take `block` into the ranges, and look for values that int8 can hold as they are."""
        self.see(block)
        is_zero = block == 0
        np.minimum(self.least, np.where(is_zero, np.inf, np.abs(block)).min(axis=0), out=self.least)
        self.whole &= (block == np.rint(block)).all(axis=0)
        self.zero |= is_zero.any(axis=0)

    def scale(self) -> np.ndarray:
        """Choose step and middle of each column, by which few values, or none, are rounded: float32[2, F].

        Values that are 0 or of one magnitude, and whole numbers in a range of at most 254, are held exactly; of other
        columns 0, where it is among the values. All else is spread over 254 steps, or 253 with 0 within.
        """
        low, high = self.low, self.high
        span, middle = high - low, (low + high) / 2
        step = span / (2 * _STEPS)

        # 0 at a whole number of steps: the last one, or the nearest.
        inside = self.zero & (low < 0) & (high > 0)
        step = np.where(inside, span / (2 * _STEPS - 1), step).astype(np.float32)
        zero = np.rint(np.divide(-middle, step, where=step > 0, out=np.zeros_like(middle))).astype(np.float32)
        middle = np.where(self.zero, -(np.clip(zero, -_STEPS, _STEPS) * step), middle)

        # Steps of 1, and of the one magnitude; a column of one value is its middle.
        largest = np.maximum(np.abs(low), np.abs(high))
        counts = self.whole & (span <= 2 * _STEPS) & (largest < _EXACT)
        two = self.least == largest
        step = np.where(counts, 1, np.where(two, largest, step))
        middle = np.where(counts, np.where(largest <= _STEPS, 0, np.rint((low + high) / 2)), np.where(two, 0, middle))
        return np.stack([np.where(span > 0, step, 0), np.where(span > 0, middle, low)]).astype(np.float32)

    def lose(self, lost: np.ndarray) -> None:
        """Add the errors `lost` float64[k, F]."""
        np.maximum(self.largest, np.abs(lost).max(axis=0), out=self.largest)
        self.squares += np.square(lost).sum(axis=0)

    @property
    def unit(self) -> np.ndarray:
        """float64[F]: what errors of each column are a share of."""
        span = self.high - self.low
        span = np.where(span > 0, span, np.maximum(np.abs(self.low), np.abs(self.high)))
        return np.where(span > 0, span, 1.0)


def as_stored(
    rows: np.ndarray | FeatureRows, dtype: str, where: str, workspace: Workspace, progress: Progress = SILENT
) -> StoredFeatures:
    """Write `rows` of float32 to a temporary file as `dtype`, one of FEATURE_DTYPES; round to nearest, ties to even.

    Reads the rows twice for int8, else once. int8 divides the range of each column into 253 or 254 steps: no element is
    off by more than half a step, 0 is kept, and bags of words stay exact. Raises DataError for a value beyond the range
    of float16; of bfloat16, it is the largest.
    """
    n, width = rows.shape
    ranges, columns, scale = list(row_ranges(n, 4 * 4 * width)), _Columns(width), None
    # The steps of int8 need the range of each column before the first row is written.
    if dtype == "int8":
        progress.start(n, "rows of features, for their ranges")
        for start, stop in ranges:
            columns.see_values(_block(rows, start, stop))
            progress.reach(stop)
        scale = columns.scale()

    progress.start(n, "rows of features")
    out = workspace.array("stored-features", (n, width), np.dtype(FEATURE_DTYPES[dtype]))
    for start, stop in ranges:
        block = _block(rows, start, stop)
        columns.see(block)
        if dtype == "float16":
            _check_half(block, where, start)
        out[start:stop] = _encoded(block, dtype, scale)
        columns.lose(decoded(out[start:stop], scale).astype(np.float64) - block)
        progress.reach(stop)

    # Errors in units of the columns' ranges.
    unit = columns.unit
    shares = columns.largest / unit
    worst = int(shares.argmax())
    mean = float(np.sqrt((columns.squares / unit**2).sum() / (n * width)))
    return StoredFeatures(out, scale, float(shares[worst]), worst, mean)


def check_dtype(graph: Graph, dtype: str | None, path: Path) -> None:
    """Raise ConfigError where the features of `graph`, from the file `path`, cannot be written as `dtype`."""
    if dtype is None:
        return
    flag, features = f"--feature-dtype {dtype}: {path}", graph.features
    if graph.types is not None:
        raise ConfigError(f"{flag} is a typed graph; import the source again with --feature-dtype TYPE=DTYPE,...")
    if features is None:
        raise ConfigError(f"{flag} has no features; leave the flag out")
    if isinstance(features, SparseFeatures):
        raise ConfigError(f"{flag} stores features sparse; leave the flag out, or import with --feature-storage dense")
    if (found := feature_dtype(features.dtype)) not in (dtype, "float32"):
        raise ConfigError(f"{flag} holds features as {found} already; import the source again for another type")


def changes_dtype(graph: Graph, dtype: str | None) -> bool:
    """Return whether dense features of `graph` are not of `dtype` already."""
    return dtype is not None and graph.features is not None and feature_dtype(graph.features.dtype) != dtype


def with_feature_dtype(
    graph: Graph, dtype: str, where: str, workspace: Workspace, progress: Progress
) -> tuple[Graph, StoredFeatures]:
    """Convert the float32 features of `graph` to `dtype`, and record the loss. Raises DataError as `as_stored`."""
    assert isinstance(graph.features, np.ndarray), "`check_dtype` has seen to it"
    small = as_stored(graph.features, dtype, where, workspace, progress)
    attributes = {**graph.attributes, **small.attributes}
    # Another content has another identity.
    return replace(graph, features=small.rows, feature_scale=small.scale, attributes=attributes, uuid=None), small


def decoded(stored: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """Decode `stored` rows: float32[k, F]."""
    if scale is not None:
        return stored.astype(np.float32) * scale[0] + scale[1]
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def _block(rows: np.ndarray | FeatureRows, start: int, stop: int) -> np.ndarray:
    return np.ascontiguousarray(rows[start:stop], np.float32)


def _check_half(block: np.ndarray, where: str, first: int) -> None:
    """Raise DataError for a value of `block`, whose first row is row `first`, that float16 cannot hold."""
    if len(beyond := np.argwhere(np.abs(block) > _LARGEST_HALF)):
        row, column = beyond[0]
        raise DataError(
            f"{where}: features, row {first + row}, column {column} is {block[row, column]}, beyond the largest "
            f"float16, {_LARGEST_HALF:.0f}; take --feature-dtype bfloat16 or int8"
        )


def _encoded(block: np.ndarray, dtype: str, scale: np.ndarray | None) -> np.ndarray:
    """Encode `block` float32[k, F] as it is stored."""
    if scale is not None:
        # A column of one value is its middle.
        step = np.where(scale[0] > 0, scale[0], 1).astype(np.float64)
        return np.clip(np.rint((block - scale[1].astype(np.float64)) / step), -_STEPS, _STEPS).astype(np.int8)
    if dtype == "bfloat16":
        # The upper half of the bits, to the nearest, ties to even.
        bits = block.view(np.uint32)
        upper = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        return np.where((upper & 0x7FFF) > _LARGEST_BRAIN, (upper & 0x8000) | _LARGEST_BRAIN, upper).astype(np.uint16)
    return block.astype(FEATURE_DTYPES[dtype])
