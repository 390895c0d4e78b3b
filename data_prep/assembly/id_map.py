"""Vertex ids of any kind, texts or integers, mapped to 0 ... n-1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from data_prep.edges.edge_keys import distinct
from data_prep.workspace import Workspace, gibibytes
from leapmpi.dataset.topology import places_among
from leapmpi.errors import DataError, ResourceError, counted

Ids = Sequence[str] | np.ndarray
Place = Callable[[int], str]

BYTES_PER_TEXT = 250
"""Bytes per distinct text id while ids are numbered; measured: 165 to 190 for 10 to 19 characters."""


def plain(ids: Ids, place: Place) -> Ids:
    """Return `ids` as a list of texts, none empty, or an int64 array.

    Raises DataError naming the row of a missing id.
    """
    if isinstance(ids, np.ndarray):
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            # Parquet gives whole numbers with missing ones as floats with NaN.
            row = int(np.argmax(np.isnan(ids))) if ids.dtype.kind == "f" and ids.ndim == 1 else 0
            raise DataError(
                f"{place(row)}: vertex ids are {ids.dtype} here; they must be texts or whole numbers, none missing"
            )
        if ids.dtype.kind == "u" and len(ids) and ids.max() >= 2**63:
            row = int(np.argmax(ids))
            raise DataError(f"{place(row)}: vertex id {ids[row]} is too large; ids are below 2**63")
        return ids.astype(np.int64, copy=False)
    ids = [text.strip() for text in ids]
    if "" in ids:
        raise DataError(f"{place(ids.index(''))}: a vertex id is missing")
    return ids


def names_of(ids: Ids) -> Ids | None:
    """Return `ids`, or None when they are 0 ... n-1."""
    if isinstance(ids, np.ndarray):
        return None if np.array_equal(ids, np.arange(len(ids))) else ids
    return None if all(name == str(number) for number, name in enumerate(ids)) else ids


class Numbering:
    """The numbers of vertices by their ids, which are given in the order of the numbers.

    Raises DataError, naming the row by `place`, for an id that is missing or repeated.
    """

    def __init__(self, ids: Ids, place: Place) -> None:
        self.ids = plain(ids, place)
        if len(self._by_text if isinstance(self.ids, list) else distinct(self.ids)) < len(self.ids):
            seen = set()
            for row, name in enumerate(map(str, self.ids)):
                if name in seen:
                    raise DataError(f"{place(row)}: vertex {name!r} is listed twice")
                seen.add(name)

    def __contains__(self, name: str) -> bool:
        return name.strip() in self._by_text

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(map(str, self.ids))}

    @cached_property
    def _ascending(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.ids, kind="stable")
        return self.ids[order], order

    def numbers(self, ids: Ids, place: Place) -> np.ndarray:
        """Return the numbers int64 of `ids`. Raises DataError, naming the row by `place`, for an unknown id."""
        ids = plain(ids, place)
        if isinstance(ids, np.ndarray) and isinstance(self.ids, np.ndarray) and len(self.ids):
            ascending, order = self._ascending
            at = places_among(ids, ascending)
            found = np.where(at < 0, -1, order[at])
        else:
            look_up = self._by_text.get
            found = np.fromiter((look_up(str(name), -1) for name in ids), np.int64, len(ids))
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            raise DataError(f"{place(row)}: vertex {str(ids[row])[:60]!r} is not in the table of vertices")
        return found


class TextNumbering:
    """Numbers of ids that become known while edges stream by: provisional ones first, final ones at the end.

    Every distinct id is held as a text, within the memory of `workspace`, if any.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._number: dict[str, int] = {}
        self._final = np.empty(0, np.int64)
        self._capacity = workspace.capacity(0.8) if workspace else None

    def provisional(self, ids: Ids, place: Place) -> np.ndarray:
        """Return the numbers int64 of `ids` in the order of their first appearance.

        Raises DataError, naming the row by `place`, for a missing id, ResourceError when there are too many.
        """
        number = self._number
        texts = map(str, plain(ids, place))
        found = np.fromiter((number.setdefault(text, len(number)) for text in texts), np.int64, len(ids))
        need = len(number) * BYTES_PER_TEXT
        if self._capacity is not None and need > self._capacity:
            raise ResourceError(
                f"{place(len(ids) - 1)}: {counted(len(number), 'vertex')} up to here, whose ids are held as texts, "
                "need "
                f"{gibibytes(need)} of memory, but may use {gibibytes(self._capacity)} (--max-mem); allow more, or "
                "number the vertices before and import the edges as --format snap or edge-list"
            )
        return found

    @property
    def count(self) -> int:
        """Number of distinct ids so far."""
        return len(self._number)

    def finish(self) -> Ids | None:
        """Number all ids by value if all are whole numbers, else as texts.

        Returns the ids in that order, or None if they are 0 ... n-1.
        """
        ids = sorted(self._number)
        if all(name.isascii() and name.isdigit() and len(name) <= 18 for name in ids):
            order = np.argsort(np.fromiter(map(int, ids), np.int64, len(ids)), kind="stable")
            ids = [ids[place] for place in order]

        # From the order of appearance to the final order.
        first = np.fromiter(map(self._number.__getitem__, ids), np.int64, len(ids))
        self._final = np.empty(len(ids), np.int64)
        self._final[first] = np.arange(len(ids))
        self._number.clear()
        return names_of(ids)

    def final(self, numbers: np.ndarray) -> np.ndarray:
        """Return the final numbers (int64) of provisional ones; after `finish`."""
        return self._final[numbers]
