"""Vertices in place of one end of each edge of a batch: those of an edge alone, or a list that many edges share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Rows = slice | np.ndarray
"""Numbers of edges: a slice, or int64[k]."""


class ReplacedEnds(ABC):
    """The vertices in place of one end of each edge, by vertex or by another number of it."""

    @abstractmethod
    def of(self, rows: Rows) -> ReplacedEnds:
        """Return those of the edges `rows` alone. Pure."""

    @abstractmethod
    def vertices(self) -> np.ndarray:
        """Return all of them, int64[n]; a vertex may occur several times."""

    @abstractmethod
    def numbered(self, numbers: Callable[[np.ndarray], np.ndarray]) -> ReplacedEnds:
        """Return the same with other numbers: `numbers` maps int64 arrays of any shape. Pure."""


@dataclass(frozen=True, eq=False)
class OwnEnds(ReplacedEnds):
    """Vertices drawn for each edge: int64[edges, K]."""

    ends: np.ndarray

    def of(self, rows: Rows) -> OwnEnds:
        return OwnEnds(self.ends[rows])

    def vertices(self) -> np.ndarray:
        return self.ends.reshape(-1)

    def numbered(self, numbers: Callable[[np.ndarray], np.ndarray]) -> OwnEnds:
        return OwnEnds(numbers(self.ends))


@dataclass(frozen=True, eq=False)
class SharedEnds(ReplacedEnds):
    """Vertices that many edges share: `lists[g]`, int64[K of g], are those of edges with groups[e] = g, int64[edges].

    An edge's own ends may be among them. The replaced one is no negative, nor, in a plain graph, is the other.
    known: bool[edges, K], which of an edge's list make another edge of the graph, and are no negatives of it either;
    None if that is not checked.
    """

    lists: Sequence[np.ndarray]
    groups: np.ndarray
    known: np.ndarray | None = None

    def of(self, rows: Rows) -> SharedEnds:
        return SharedEnds(self.lists, self.groups[rows], None if self.known is None else self.known[rows])

    def vertices(self) -> np.ndarray:
        return np.concatenate([np.empty(0, np.int64), *(self.lists[group] for group in self._read)])

    def numbered(self, numbers: Callable[[np.ndarray], np.ndarray]) -> SharedEnds:
        read = self._read
        lists = [numbers(each) if group in read else each[:0] for group, each in enumerate(self.lists)]
        return SharedEnds(lists, self.groups, self.known)

    @property
    def _read(self) -> list[int]:
        """Groups that some edge belongs to."""
        return np.unique(self.groups).tolist()
