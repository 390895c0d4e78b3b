"""One hop of a sampled computation graph (block, message flow graph): which sources each destination aggregates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Block:
    """A bipartite graph from `src` to its own first `n_dst` entries, the destinations, in CSR form.

    Blocks of a sample are listed from the root outward: destinations of hop 0 are the roots, and the destinations
    of hop h + 1 are the sources of hop h. A model computes them in reverse order. Arrays are to be read only: blocks of
    one sample may share them.
    """

    hop: int
    n_dst: int
    src: np.ndarray
    """int64[n_src]: distinct renumbered global ids, destinations first."""
    indptr: np.ndarray
    """int64[n_dst + 1]: where the edges of each destination start in `indices`."""
    indices: np.ndarray
    """int32[edges]: positions in `src`; within a destination by ascending original id."""
    src_original: np.ndarray
    """int64[n_src]: original ids of `src`, by which vertices are named in all random draws. In the last block of a
    sample these, and the other arrays by `src`, may be those of the destinations alone, where nobody reads more."""
    src_degree: np.ndarray
    """int64[n_src]: in-degrees of `src` in the whole graph."""
    weight: np.ndarray | None = None
    """float32[edges] for samplers that reweight edges, else None."""
    edge_numbers: np.ndarray | None = None
    """int64[edges]: positions of the edges in the topology, where what edges carry is used, else None."""
    edge_weight: np.ndarray | None = None
    """float32[edges]: the weights of the dataset's edges, where they are used; the three arrays go together."""
    drawn_weight: np.ndarray | None = None
    """float64[n_dst]: the sum of `edge_weight` of each destination."""
    src_weight_sum: np.ndarray | None = None
    """float64[n_src]: the sums of the weights of all in-edges of `src` in the whole graph."""

    tensors: Any = None
    """The same arrays as tensors on the device where the block was drawn (nn.tensors.BlockTensors), else None."""

    @property
    def n_src(self) -> int:
        """Number of sources, destinations included."""
        return len(self.src)

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        return len(self.indices)

    @property
    def dst(self) -> np.ndarray:
        """int64[n_dst]: renumbered global ids of the destinations."""
        return self.src[: self.n_dst]


def indptr_of(counts: np.ndarray) -> np.ndarray:
    """Where the edges of each destination start: int64[n + 1], from how many each has, integers[n]."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr
