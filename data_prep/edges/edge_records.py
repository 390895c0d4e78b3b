"""Edges with what they carry: records beside the edges of a stream, from arrays or from the source itself.

A record has some of the fields `weight` (float32), `features` (Fe numbers), `time` (int64 or float64) and `labels`
(int64); there is one for each edge as read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from leapmpi.errors import DataError, counted

Chunk = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Edges, integers [2, k], or these and their records, structured [k]."""

_ROWS_AT_ONCE = 1 << 20


def record_type(
    features: np.dtype | None = None, width: int = 0, *, weight: bool = False, time: str = "", labels: bool = False
) -> np.dtype:
    """Return the record type: a weight and a label or not, `width` features of type `features`, a time of `time`."""
    fields: list[tuple] = [("weight", "<f4")] if weight else []
    fields += [("features", features, (width,))] if width else []
    fields += [("time", time)] if time else []
    fields += [("labels", "<i8")] if labels else []
    return np.dtype(fields)


class EdgeArrays:
    """Edge data as arrays in the order of the edges of the source, which may be mapped.

    weight: [E] or [E, 1]; features: [E, Fe] or [E]; time: [E] or [E, 1]; labels: [E] or [E, 1], whole numbers; None
    where there is none. `name` is what messages call them. Raises DataError when they do not hold a row of numbers per
    edge.
    """

    def __init__(
        self,
        name: str,
        weight: np.ndarray | None = None,
        features: np.ndarray | None = None,
        time: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        self.name = name
        self.arrays = {
            field: self._shaped(field, array)
            for field, array in (("weight", weight), ("features", features), ("time", time), ("labels", labels))
            if array is not None
        }

        # Types: numbers of eight bytes only where four do not suffice.
        held = self.arrays.get("features")
        self.dtype = record_type(
            None if held is None else _feature_type(held),
            0 if held is None else held.shape[1],
            weight="weight" in self.arrays,
            time="" if "time" not in self.arrays else "<f8" if self.arrays["time"].dtype.kind == "f" else "<i8",
            labels="labels" in self.arrays,
        )

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def _shaped(self, field: str, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind not in "biuf":
            raise DataError(f"{self.name}: {field} of edges must be numbers, but their type is {array.dtype}")
        if field == "features":
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2 or array.shape[1] == 0:
                raise DataError(f"{self.name}: features of edges must be [edges, features], not {array.shape}")
            return array
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise DataError(f"{self.name}: {field} of edges must be one number per edge, not of shape {array.shape}")
        return array

    def check_length(self, edges: int) -> None:
        """Raise DataError unless there is a row for each of `edges` edges."""
        for field, array in self.arrays.items():
            if len(array) != edges:
                raise DataError(
                    f"{self.name}: {field} of edges have {counted(len(array), 'row')}, for {counted(edges, 'edge')}"
                )

    def records(self, start: int, stop: int) -> np.ndarray:
        """Return the records of the edges start ... stop - 1."""
        found = np.empty(max(0, min(stop, *map(len, self.arrays.values())) - start), self.dtype)
        for field, array in self.arrays.items():
            rows = array[start : start + len(found)]
            fill(found, field, rows, lambda row, what: f"{self.name}: {what} of edge {start + row} (counted from 0)")
        return found


def narrowed(values: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Return `values` as `dtype`, and the flat place of the first that this type does not hold; -1 where it holds all.

    An integer type holds numbers that stay the same. A float type holds all but finite numbers that become infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(dtype, copy=False)
        if found.dtype.kind == "f":
            infinite = ~np.isfinite(found)
            lost = infinite & np.isfinite(values) if infinite.any() else infinite
        elif values.dtype.kind == "f":
            lost = (values != np.trunc(values)) | ~(np.abs(values, dtype=np.float64) < 2.0**63)
        else:
            lost = (found < 0) & (values > 0)
    return found, int(np.argmax(lost)) if lost.any() else -1


def whole_values(values: np.ndarray, name: Callable[[int], str], wanted: str) -> np.ndarray:
    """Return `values` [n] as int64; `name` names that of a row.

    Raises DataError, saying what is `wanted`, for a value that is not whole or takes more than 64 bits.
    """
    found, lost = narrowed(values, np.dtype(np.int64))
    if lost >= 0:
        raise DataError(f"{name(lost)} is {values[lost]}; {wanted}")
    return found


def fill(records: np.ndarray, field: str, values: np.ndarray, place: Callable[[int, str], str]) -> None:
    """Set one field of `records` [k] to `values` [k] or [k, Fe]. An unlabelled edge, of label NaN, gets -1.

    place: names a row, and the field, in messages. Raises DataError for a value that the field does not hold.
    """
    given, kind = values, records.dtype[field].base
    if field == "labels" and values.dtype.kind == "f":
        given = np.where(np.isnan(values), -1, values)
    found, lost = narrowed(given, kind)
    if lost >= 0:
        row, value = lost // max(1, values[0].size), values.reshape(-1)[lost]
        name = {"labels": "the label"}.get(field, field)
        verb = "are" if field == "features" else "is"
        hint = "; labels of edges are classes, whole numbers" if field == "labels" else f", which {kind} does not hold"
        raise DataError(f"{place(row, name)} {verb} {value}{hint}")
    records[field] = found


def _feature_type(array: np.ndarray) -> np.dtype:
    """Choose the stored type: float16 stays, other floats become float32; whole numbers int32 where they fit."""
    if array.dtype.kind == "f":
        return np.dtype("<f2" if array.dtype.itemsize == 2 else "<f4")
    if array.dtype.itemsize <= 4 and array.dtype.kind != "u":
        return np.dtype("<i4")
    rows = max(1, _ROWS_AT_ONCE // array.shape[1])
    blocks = (array[start : start + rows] for start in range(0, len(array), rows))
    fits = all(block.min() >= -(2**31) and block.max() < 2**31 for block in blocks)
    return np.dtype("<i4" if fits else "<i8")


def with_records(chunks: Iterator[Chunk]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield the edges of `chunks` (int64[2, k]), and their records or None."""
    for chunk in chunks:
        yield chunk if isinstance(chunk, tuple) else (chunk, None)
