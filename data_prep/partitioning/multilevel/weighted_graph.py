"""An undirected graph with weights, in memory: the coarse levels, and small graphs as a whole.

Chunk, VertexWeights and PartLoads are named tuples because compiled kernels take such.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NO_WEIGHTS = np.empty(0, np.int32)
"""Stands for weights that are all 1, or for training vertices where there are none."""


class Chunk(NamedTuple):
    """Consecutive rows of a graph; the arrays are overwritten by the next chunk.

    The neighbours of vertex first + i are neighbours[indptr[i]:indptr[i + 1]]. indptr is int64 from 0, neighbours
    uint32 (uint64 from 2**31 vertices on), and weights int32, or int32[0] where each edge weighs 1.
    """

    first: int
    indptr: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray

    @property
    def vertices(self) -> int:
        """The number of rows."""
        return len(self.indptr) - 1


class VertexWeights(NamedTuple):
    """Vertices of the graph, and training vertices among them, for each vertex of a level.

    Both int32[n]; int32[0] where all sizes are 1, or where there are no training vertices.
    """

    size: np.ndarray
    training: np.ndarray

    def total(self, n: int) -> tuple[int, int]:
        """Sum the weights over the n vertices of the level."""
        size = int(self.size.sum(dtype=np.int64)) if len(self.size) else n
        return size, int(self.training.sum(dtype=np.int64))


@dataclass(frozen=True)
class WeightedGraph:
    """Every edge in the rows of both ends: indptr int64[n + 1], neighbours uint32[entries], weights int32[entries]."""

    indptr: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    vertex_weights: VertexWeights

    @property
    def vertices(self) -> int:
        """The number of vertices n."""
        return len(self.indptr) - 1

    @property
    def entries(self) -> int:
        """Twice the number of edges."""
        return len(self.neighbours)

    def degrees(self) -> np.ndarray:
        """Count the neighbours of each vertex: int32[n]."""
        return np.diff(self.indptr).astype(np.int32)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the whole graph as one chunk: levels in memory are treated as streams are."""
        yield Chunk(0, self.indptr, self.neighbours, self.weights)
