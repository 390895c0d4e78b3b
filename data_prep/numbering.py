"""Vertex ids of any kind, texts or sparse integers, mapped to 0 ... n-1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from leapmpi.errors import DataError

Ids = Sequence[str] | np.ndarray


def _plain(ids: Ids, place: Callable[[int], str]) -> Ids:
    """`ids` as a list of non-empty texts or an array of integers. Raises DataError naming the row of a missing one."""
    if isinstance(ids, np.ndarray):
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            raise DataError(
                f"{place(0)}: vertex ids are {ids.dtype} here; they must be texts or whole numbers, none missing"
            )
        return ids
    ids = [text.strip() for text in ids]
    if "" in ids:
        raise DataError(f"{place(ids.index(''))}: a vertex id is missing")
    return ids


class Numbering:
    """The numbers of vertices by their ids. `ids` are in the order of the numbers."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._number = {name: number for number, name in enumerate(map(str, ids))}

    @classmethod
    def of_table(cls, ids: Ids, place: Callable[[int], str]) -> Numbering:
        """Numbers in the order of `ids`. Raises DataError, naming the row by `place`, for one missing or repeated."""
        found = cls(_plain(ids, place))
        if len(found._number) < len(ids):
            seen = set()
            for row, name in enumerate(map(str, found.ids)):
                if name in seen:
                    raise DataError(f"{place(row)}: vertex {name!r} is listed twice")
                seen.add(name)
        return found

    @classmethod
    def of_edges(cls, ends: Sequence[Ids], place: Callable[[int], str]) -> Numbering:
        """Numbers in ascending order of the ids that occur in `ends`: by value if all are integers, else as texts."""
        plain = [_plain(ids, place) for ids in ends]
        if all(isinstance(ids, np.ndarray) for ids in plain):
            return cls(np.unique(np.concatenate(plain)))
        names = set().union(*(map(str, ids) for ids in plain))
        numeric = all(name.isascii() and name.isdigit() and len(name) <= 18 for name in names)
        return cls(sorted(names, key=(lambda name: (int(name), name)) if numeric else None))

    def numbers(self, ids: Ids, place: Callable[[int], str]) -> np.ndarray:
        """int64: the numbers of `ids`. Raises DataError, naming the row by `place`, for an id that is not known."""
        look_up = self._number.get
        found = np.fromiter((look_up(str(name), -1) for name in _plain(ids, place)), np.int64, len(ids))
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            raise DataError(f"{place(row)}: vertex {str(ids[row])[:60]!r} is not in the table of vertices")
        return found

    def names(self) -> Ids | None:
        """`ids`, or None when they are 0 ... n-1 already."""
        natural = all(str(name) == str(number) for number, name in enumerate(self.ids))
        return None if natural else self.ids
