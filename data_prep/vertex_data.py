"""Features and labels brought into the form a Graph holds: dense floats, class numbers or 0/1 columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.raw_graph import SparseRows
from leapmpi.dataset.validation import check_finite
from leapmpi.errors import DataError

NORMALISATIONS = ("none", "row")
FEATURE_DTYPES = ("float32", "float16")
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Labels:
    """Labels as a Graph holds them (int64[n] or float32[n, C]), the number of classes, and notes for the user."""

    values: np.ndarray
    classes: int
    notes: list[str]


def make_features(raw: np.ndarray | SparseRows, vertices: int, dtype: str, normalise: str, where: str) -> np.ndarray:
    """Features [n, F] of `dtype`, dense and C-ordered; with `normalise` "row" each row's absolute sum is one.

    Raises DataError when there are not `vertices` rows, or when a value is no finite number of `dtype`.
    """
    if len(raw.shape) != 2:
        raise DataError(f"{where}: features must be [vertices, features], but their shape is {tuple(raw.shape)}")
    if raw.shape[0] != vertices:
        raise DataError(f"{where}: features have {raw.shape[0]:,} rows, but the graph has {vertices:,} vertices")
    kind = (raw.data if isinstance(raw, SparseRows) else raw).dtype
    if kind.kind not in "biuf":
        raise DataError(f"{where}: features must be numbers, but their type is {kind}")
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is found below
        dense = raw.dense(np.dtype(dtype)) if isinstance(raw, SparseRows) else np.ascontiguousarray(raw, dtype)
    check_finite(dense, where)
    return _row_normalised(dense) if normalise == "row" else dense


def _row_normalised(features: np.ndarray) -> np.ndarray:
    out = np.empty_like(features)
    for start in range(0, len(features), _ROWS_AT_ONCE):
        rows = features[start : start + _ROWS_AT_ONCE].astype(np.float32, copy=False)
        total = np.abs(rows).sum(axis=1, keepdims=True, dtype=np.float64)
        out[start : start + _ROWS_AT_ONCE] = rows / np.where(total == 0, 1, total)
    return out


def make_labels(raw: np.ndarray, vertices: int, classes: int | None, where: str) -> Labels:
    """Class numbers from [n] or [n, 1]; 0/1 columns from [n, C], unless every row is one-hot: then class numbers.

    `classes` is the number of classes where it is known. Raises DataError naming row and value of a bad label.
    """
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim not in (1, 2) or raw.dtype.kind not in "biuf":
        raise DataError(f"{where}: labels must be numbers [n] or [n, classes], not {raw.dtype} of shape {raw.shape}")
    if len(raw) != vertices:
        raise DataError(f"{where}: there are {len(raw):,} labels, but the graph has {vertices:,} vertices")
    if raw.ndim == 1:
        return _single(raw, classes, where)
    if len(raw) and np.all((raw == 0) | (raw == 1)) and np.all(raw.sum(axis=1) == 1):
        note = f"labels: every row has a single 1, so the {raw.shape[1]} columns were read as classes (not multi-label)"
        return Labels(raw.argmax(axis=1).astype(np.int64), raw.shape[1], [note])
    return _multiple(raw, where)


def _single(raw: np.ndarray, classes: int | None, where: str) -> Labels:
    if raw.dtype.kind == "f":
        known = ~np.isnan(raw)
        bad = known & (raw != np.trunc(np.where(np.isfinite(raw), raw, 0)))
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{where}: the label of vertex {row} is {raw[row]}; classes are whole numbers from 0 on")
        raw = np.where(known, raw, -1)
    values = raw.astype(np.int64)
    # More classes than vertices are a wrong column or a stray id, not classes.
    limit = len(values) if classes is None else classes
    bad = (values < -1) | (values >= limit)
    if bad.any():
        row = int(np.argmax(bad))
        most = f"more than the graph has vertices ({limit})" if classes is None else f"but there are {limit} classes"
        fault = most if values[row] >= 0 else "expected -1 (unlabelled) or a class from 0 on"
        raise DataError(f"{where}: the label of vertex {row} is {values[row]}, out of range: {fault}")
    found = int(values.max(initial=-1)) + 1
    if found == 0:
        raise DataError(f"{where}: no vertex has a label; leave the labels out to import the graph without")
    return Labels(values, found if classes is None else classes, [])


def _multiple(raw: np.ndarray, where: str) -> Labels:
    values = raw.astype(np.float32)
    bad = ~(np.isnan(values) | (values == 0) | (values == 1))
    if bad.any():
        row, column = (int(axis[0]) for axis in np.nonzero(bad))
        raise DataError(f"{where}: label {column} of vertex {row} is {raw[row, column]}; expected 0, 1 or NaN")
    return Labels(values, values.shape[1], [])


def labelled(labels: np.ndarray) -> np.ndarray:
    """bool[n]: which vertices have a label (at least one of several)."""
    return labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
