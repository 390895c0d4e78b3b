"""Features and labels brought into the form a Graph holds: floats; class numbers, 0/1 columns or targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.assembly.feature_rows import FeatureRows
from data_prep.edges.edge_records import whole_values
from data_prep.edges.raw_graph import SparseRows
from leapmpi.dataset.hdf5.names import MULTI_LABEL, REGRESSION
from leapmpi.errors import DataError, counted, there_are

_LABELS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Labels:
    """Labels as a Graph holds them (int64[n] or float32[n, C]), the number of classes, and notes for the user.

    regression: whether they are targets of a regression.
    """

    values: np.ndarray
    classes: int
    notes: list[str]
    regression: bool = False


def make_features(raw: np.ndarray | SparseRows, vertices: int, dtype: str, normalise: str, where: str) -> FeatureRows:
    """Make features [n, F] of `dtype`, dense and C-ordered; with `normalise` "row" each row's absolute sum is one.

    Raises DataError when there are not `vertices` rows of one or more numbers; values are checked as rows are taken.
    """
    if len(raw.shape) != 2:
        raise DataError(f"{where}: features must be [vertices, features], but their shape is {tuple(raw.shape)}")
    if raw.shape[0] != vertices:
        raise DataError(
            f"{where}: features have {counted(raw.shape[0], 'row')}, but the graph has {counted(vertices, 'vertex')}"
        )
    if raw.shape[1] == 0:
        raise DataError(f"{where}: features have no columns; leave them out, or give some by --features")
    kind = (raw.data if isinstance(raw, SparseRows) else raw).dtype
    if kind.kind not in "biuf":
        raise DataError(f"{where}: features must be numbers, but their type is {kind}")
    return FeatureRows(raw, dtype, normalise == "row", where)


def make_labels(raw: np.ndarray, vertices: int, classes: int | None, where: str, task: str | None = None) -> Labels:
    """Return int64 class numbers, or float32 columns of 0, 1 and NaN from [n, C] that are not one-hot.

    Floats that are neither are float32 targets of a regression. `task` (one of names.LABEL_KINDS) says what labels are,
    where it is not to be found out. `classes` is the number of classes where it is known.

    Raises DataError naming row and value of a bad label.
    """
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim not in (1, 2) or raw.dtype.kind not in "biuf":
        raise DataError(f"{where}: labels must be numbers [n] or [n, classes], not {raw.dtype} of shape {raw.shape}")
    if len(raw) != vertices:
        raise DataError(f"{where}: {there_are(len(raw), 'label')}, but the graph has {counted(vertices, 'vertex')}")
    # Targets: as stated, or where floats can be nothing else.
    if task == REGRESSION:
        return _targets(raw, [], where)
    if task is None and (found := _first_number(raw)):
        note = f"labels: {found}, so they were read as targets of a regression; --task multi-class refuses them"
        return _targets(raw, [note], where)

    # One class per vertex; columns with a single 1 in each row are that too.
    if raw.ndim == 1 and task != MULTI_LABEL:
        return _single(raw, classes, where)
    raw = raw.reshape(len(raw), -1)
    if task != MULTI_LABEL and len(raw) and np.all((raw == 0) | (raw == 1)) and np.all(raw.sum(axis=1) == 1):
        note = f"labels: every row has a single 1, so the {raw.shape[1]} columns were read as classes (not multi-label)"
        return Labels(raw.argmax(axis=1).astype(np.int64), raw.shape[1], [note])

    # Any number of classes per vertex.
    values = raw.astype(np.float32)
    bad = ~(np.isnan(values) | (values == 0) | (values == 1))
    if bad.any():
        row, column = (int(axis[0]) for axis in np.nonzero(bad))
        hint = "" if task else "; --task regression takes labels as numbers"
        raise DataError(f"{where}: label {column} of vertex {row} is {raw[row, column]}; expected 0, 1 or NaN{hint}")
    return Labels(values, values.shape[1], [])


def _first_number(raw: np.ndarray) -> str | None:
    """Find the first float of [n] or [n, C] that is neither a class nor 0, 1 or NaN, in words; None without."""
    if raw.dtype.kind != "f":
        return None
    for start in range(0, len(raw), _LABELS_AT_ONCE):
        block = raw[start : start + _LABELS_AT_ONCE]
        known = np.isfinite(block)
        odd = known & ((block != np.trunc(np.where(known, block, 0))) if raw.ndim == 1 else (block != 0) & (block != 1))
        if odd.any():
            at = tuple(int(axis[0]) for axis in np.nonzero(odd))
            column = f", column {at[1]}," if raw.ndim == 2 else ""
            return f"that of vertex {start + at[0]}{column} is {block[at]}"
    return None


def _targets(raw: np.ndarray, notes: list[str], where: str) -> Labels:
    """Convert to float32 columns of finite numbers and NaN.

    Raises DataError naming one that is infinite or too large.
    """
    with np.errstate(over="ignore"):
        values = raw.reshape(len(raw), -1).astype(np.float32)
    if (bad := np.isinf(values)).any():
        row, column = (int(axis[0]) for axis in np.nonzero(bad))
        value = raw.reshape(len(raw), -1)[row, column]
        raise DataError(f"{where}: target {column} of vertex {row} is {value}; expected a finite float32 or NaN")
    if np.isnan(values).all():
        raise DataError(f"{where}: no vertex has a label; leave the labels out to import the graph without")
    return Labels(values, values.shape[1], notes, regression=True)


def _single(raw: np.ndarray, classes: int | None, where: str) -> Labels:
    """Check labels of one class per vertex. Raises DataError naming a class out of range."""
    # More classes than vertices are a wrong column or a stray id, not classes.
    limit = len(raw) if classes is None else classes
    most = f"more than the graph has vertices ({limit})" if classes is None else f"but there are {limit} classes"

    # Block by block: labels may be mapped from a file.
    values = np.empty(len(raw), np.int64)
    found = 0
    for start in range(0, len(raw), _LABELS_AT_ONCE):
        block = _whole(raw[start : start + _LABELS_AT_ONCE], start, where)
        bad = (block < -1) | (block >= limit)
        if bad.any():
            row = int(np.argmax(bad))
            fault = most if block[row] >= 0 else "expected -1 (unlabelled) or a class from 0 on"
            raise DataError(f"{where}: the label of vertex {start + row} is {block[row]}, out of range: {fault}")
        values[start : start + len(block)] = block
        found = max(found, int(block.max(initial=-1)) + 1)
    if found == 0:
        raise DataError(f"{where}: no vertex has a label; leave the labels out to import the graph without")
    return Labels(values, found if classes is None else classes, [])


def _whole(labels: np.ndarray, first: int, where: str) -> np.ndarray:
    """Return `labels` [k] of the vertices from `first` on as int64, -1 where they are NaN."""
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
    wanted = "classes are whole numbers from 0 on, and --task regression takes other numbers"
    return whole_values(labels, lambda row: f"{where}: the label of vertex {first + row}", wanted)


def make_times(raw: np.ndarray, vertices: int, where: str) -> np.ndarray:
    """Return times int64[n] from numbers [n] or [n, 1]. Raises DataError for a wrong count, or one not whole."""
    raw = np.asarray(raw)
    if raw.shape not in ((vertices,), (vertices, 1)) or raw.dtype.kind not in "iuf":
        raise DataError(
            f"{where}: times of vertices are {raw.dtype} of shape {raw.shape}; expected a whole number for each of "
            f"{counted(vertices, 'vertex')}"
        )
    wanted = "times of vertices are whole numbers of 64 bits"
    return whole_values(raw.reshape(-1), lambda row: f"{where}: the time of vertex {row} (counted from 0)", wanted)


def labelled(labels: np.ndarray) -> np.ndarray:
    """Mark the vertices with a label (at least one of several): bool[n]."""
    return labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
