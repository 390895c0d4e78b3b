"""Vertices by time: of each type, and of each split, which shows where the splits cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from leapmpi.dataset.graph import VertexRows
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_ranges

BINS = 48
"""Equal periods from the first time to the last."""

_LIMITS = np.iinfo(np.int64)
_FIRST_DATE, _LAST_DATE = 300_000_000, 4_200_000_000
"""Times between these are taken for seconds since 1970: 1979 to 2103."""

_ALL = "vertices"


def rows_by_time(parts: Callable[[], Iterator[VertexRows]]) -> dict[str, Any]:
    """Count the vertices of all `parts` by time; nothing without times.

    Returns {"first", "last", "rows": {NAME: int[BINS] as a list}, "splits": {NAME: [first, last, count]}}. Those of the
    target are named by type and split. The least and the largest integer are no times: always seen, and never.
    """
    first, last = _LIMITS.max, _LIMITS.min
    ends: dict[str, list[int]] = {}
    for _, split, times in _runs(parts):
        low, high = int(times.min()), int(times.max())
        first, last = min(first, low), max(last, high)
        if split:
            known = ends.get(split, [low, high, 0])
            ends[split] = [min(known[0], low), max(known[1], high), known[2] + len(times)]
    if first > last:
        return {}
    rows: dict[str, np.ndarray] = {}
    for name, split, times in _runs(parts):
        # Python's integers, since the span of 64-bit times may exceed 64 bits.
        places = ((times - float(first)) * (BINS / max(1.0, float(last - first)))).astype(np.int64)
        key = f"{name}, {split}" if split else name
        rows[key] = rows.get(key, 0) + np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)
    splits = {name: ends[name] for name in names.SPLIT_NAMES.values() if name in ends}
    return {"first": first, "last": last, "rows": {key: each.tolist() for key, each in rows.items()}, "splits": splits}


def _runs(parts: Callable[[], Iterator[VertexRows]]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield type, split (empty outside of one) and times int64[k] of all vertices with a time, some at once; k > 0."""
    for rows in parts():
        if rows.time is None:
            return
        offsets, of_types = [0, rows.vertices], [_ALL]
        if rows.typed is not None:
            offsets, of_types = rows.typed.offsets.tolist(), [each.name for each in rows.typed.types.vertices]
        for name, low, high in zip(of_types, offsets, offsets[1:], strict=False):
            for start, stop in row_ranges(high - low, 16):
                place = slice(low + start, low + stop)
                times = np.asarray(rows.time[place])
                codes = np.zeros(len(times), np.int8) if rows.split is None else np.asarray(rows.split[place])
                known = (times != _LIMITS.min) & (times != _LIMITS.max)
                for code in np.unique(codes[known]).tolist():
                    yield name, names.SPLIT_NAMES.get(code, ""), times[known & (codes == code)]


def are_dates(found: Mapping[str, Any]) -> bool:
    """Return whether the times of `rows_by_time` look like seconds since 1970."""
    return found["first"] >= _FIRST_DATE and found["last"] <= _LAST_DATE


def time_text(time: int, dates: bool) -> str:
    """Return a time in words: a day and, unless it is midnight, the minute in UTC."""
    if not dates:
        return f"{time:,}"
    return datetime.fromtimestamp(time, UTC).isoformat(" ", "minutes")[:16].removesuffix(" 00:00")
