"""Blocks: one hop of a sampled computation graph (message flow graph)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self

import numpy as np

from leapmpi.dataset.topology import Topology


@dataclass(frozen=True, eq=False)
class Block:
    """Bipartite graph in CSR form from `src` to its first `n_dst` entries, the destinations.

    Blocks of a sample are listed from the root outward: destinations of hop 0 are the roots, and the destinations of
    hop h + 1 are the sources of hop h. A model computes them in reverse order. Arrays are read-only: blocks of one
    sample may share them.
    """

    hop: int
    n_dst: int
    src: np.ndarray
    """int64[n_src]: distinct renumbered global ids, destinations first."""
    indptr: np.ndarray
    """int64[n_dst + 1]: first position in `indices` of the edges of each destination."""
    indices: np.ndarray
    """int32[edges]: positions in `src`; within a destination by ascending original id."""
    src_original: np.ndarray
    """int64[n_src]: original ids of `src`, which key all random draws.

    In the last block of a sample, this and the other arrays by `src` may cover only the destinations, if nothing reads
    more.
    """
    src_degree: np.ndarray
    """int64[n_src]: in-degrees of `src` in the whole graph."""
    weight: np.ndarray | None = None
    """float32[edges] for samplers that reweight edges, else None."""
    edge_numbers: np.ndarray | None = None
    """int64[edges]: positions of the edges in the topology if edge data are used, else None."""
    edge_weight: np.ndarray | None = None
    """float32[edges]: weights of the dataset's edges, if used. The next two arrays accompany it."""
    drawn_weight: np.ndarray | None = None
    """float64[n_dst]: sum of `edge_weight` of each destination."""
    src_weight_sum: np.ndarray | None = None
    """float64[n_src]: sum of the weights of all in-edges of each source in the whole graph."""
    relation: np.ndarray | None = None
    """uint8[edges] or uint16[edges]: relations of the edges of a typed graph, else None. Within a destination edges
    then ascend by (relation, original id)."""
    bound: np.ndarray | None = None
    """int64[n_src] or float64[n_src]: time of the roots for which each source is reached, where each root bounds its
    own draws (root_bounds.py), else None. `src` then lists a vertex once for each bound."""
    ages: np.ndarray | None = None
    """float32[n_src, AGES]: how recent each source is at its bound (ages.py), where vertices of a typed graph have
    times; else None."""

    tensors: Any = None
    """Same arrays as tensors on the device that drew the block (nn.tensors.BlockTensors), else None."""

    @property
    def n_src(self) -> int:
        """Number of sources, destinations included."""
        return len(self.src)

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        return int(self.indptr[-1])

    @property
    def neighbours(self) -> np.ndarray:
        """int64[edges]: renumbered global ids of the sources, edge by edge."""
        return self.src[self.indices]

    @cached_property
    def dst(self) -> np.ndarray:
        """int64[n_dst]: renumbered global ids of the destinations."""
        return self.src[: self.n_dst]

    @cached_property
    def dst_original(self) -> np.ndarray:
        """int64[n_dst]: original ids of the destinations."""
        return self.src_original[: self.n_dst]

    @cached_property
    def dst_degree(self) -> np.ndarray:
        """int64[n_dst]: in-degrees of the destinations in the whole graph."""
        return self.src_degree[: self.n_dst]

    @property
    def dst_weight_sum(self) -> np.ndarray | None:
        """float64[n_dst]: sum of the weights of all in-edges of the destinations, if weights are used."""
        return None if self.src_weight_sum is None else self.src_weight_sum[: self.n_dst]


class _Late:
    """Field of a LateBlock, made when it is first read; None without a maker."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, block: LateBlock | None, owner: type) -> Any:
        if block is None:
            return self
        make = vars(block)["late"].get(self._name)
        array = vars(block)[self._name] = None if make is None else make()
        return array


class LateBlock(Block):
    """Block with arrays that are made on first use."""

    src: Any = _Late()
    indptr: Any = _Late()
    indices: Any = _Late()
    src_original: Any = _Late()
    src_degree: Any = _Late()
    weight: Any = _Late()
    edge_numbers: Any = _Late()
    edge_weight: Any = _Late()
    drawn_weight: Any = _Late()
    src_weight_sum: Any = _Late()
    relation: Any = _Late()
    bound: Any = _Late()

    @classmethod
    def made_of(cls, late: Mapping[str, Callable[[], np.ndarray]], **present: Any) -> Self:
        """Return the block with the fields `present`; `late` maps the names of other fields to their makers."""
        block = object.__new__(cls)
        vars(block).update(present, late=late)
        return block


class DrawnBlock(LateBlock):
    """Last block of a sample, drawn but not numbered, for readers of rows by id.

    Destinations and `neighbours` are present; sources are numbered on first use.
    """

    @classmethod
    def of(
        cls, dst: np.ndarray, neighbours: np.ndarray, topology: Topology | None = None, **present: Any
    ) -> DrawnBlock:
        """Return the block of `neighbours`, int64[edges], with the fields and destination arrays `present`.

        topology: source of original ids and in-degrees, unless they are `present`.
        """
        numbered = cache(lambda: _numbered(dst, neighbours))
        late = {"src": lambda: numbered()[0], "indices": lambda: numbered()[1]}
        if topology is not None:
            late["src_original"] = lambda: topology.original_id[numbered()[0]]
            late["src_degree"] = lambda: topology.degree(numbered()[0])
        return cls.made_of(late, n_dst=len(dst), dst=dst, ids=neighbours, **present)

    @property
    def neighbours(self) -> np.ndarray:
        """int64[edges]: renumbered global ids of the sources, edge by edge."""
        ids = vars(self).get("ids")
        return super().neighbours if ids is None else ids


def _numbered(dst: np.ndarray, neighbours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the vertices: return int64[k], `dst` first, then by first appearance, and positions of `neighbours`."""
    every, first, places = np.unique(np.concatenate((dst, neighbours)), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    return every[order], number[places[len(dst) :]]


def indptr_of(counts: np.ndarray) -> np.ndarray:
    """Return the first edge of each destination, int64[n + 1], from their numbers of edges, integers[n]."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr
