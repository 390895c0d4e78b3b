"""What each rank computes of every layer, and which rows it gets from and gives to others: made once, then kept.

From the last layer down: a rank computes some destinations (of the last layer its training vertices), and reads their
in-neighbours. Of the inputs whose home is elsewhere it *caches* some, that is, it computes them itself one layer below,
and has the others *communicated* by their homes. Any choice gives the same gradient (NeutronStar, SIGMOD 2022): all
communicated is DepComm, all cached is DepCache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Sampler
from leapmpi.system.counter_rng import TRAIN, DrawKey

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

Caches = Callable[[int, np.ndarray], np.ndarray]
"""Which remote inputs of a layer (0 is the first) a rank caches: bool[k], for distinct vertices int64[k]. Pure."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Where the input rows of a layer above the first come from. Positions are those of rows in the layer's input.

    local_positions, local_rows: int64[k], rows that this rank computed, and their numbers in the output of the layer
    below. received_positions: int64[m], rows that other ranks send, by rank; received_counts: int64[ranks].
    sent_rows: int64[n], numbers of rows of the output below that others read, by rank; sent_counts: int64[ranks].
    """

    local_positions: np.ndarray
    local_rows: np.ndarray
    received_positions: np.ndarray
    received_counts: np.ndarray
    sent_rows: np.ndarray
    sent_counts: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in vars(self).values())


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """What one rank computes of all layers.

    roots: int64[n], its training vertices, the first destinations of every block. blocks: from the last layer to the
    first. routes: of the layers above the first, by layer less one. cached: int64[k], vertices whose features are
    fetched once and kept.
    """

    roots: np.ndarray
    blocks: list[Block]
    routes: list[Routes]
    cached: np.ndarray


class GraphBuilder:
    """Builds the LayerGraph of one rank, from the last layer down.

    Call `needs` and `give` in turn for each layer above the first, then `graph`. All is local: what `needs` returns
    goes to the homes of the vertices, and what comes from others is passed to `give`.
    """

    def __init__(
        self, sampler: Sampler, roots: np.ndarray, rank_offsets: np.ndarray, rank: int, layers: int, caches: Caches
    ) -> None:
        """`sampler` draws all in-neighbours, one hop; `roots` int64[n] have their home on `rank`."""
        self.sampler, self.rank_offsets, self.rank, self.caches = sampler, rank_offsets, rank, caches
        self.roots, self.layers = roots, layers
        self._layer, self._destinations = layers - 1, roots
        self._blocks: list[Block] = []
        self._routes: list[Routes] = []

    def needs(self) -> tuple[np.ndarray, np.ndarray]:
        """The inputs of this layer that other ranks are to send: int64[k], by home rank, and int64[ranks]."""
        block = self._draw()
        home = home_of(block.src, self.rank_offsets)
        self._computed = home == self.rank
        remote = np.flatnonzero(~self._computed)
        self._computed[remote] = self.caches(self._layer, block.src[remote])
        communicated = np.flatnonzero(~self._computed)
        self._received = communicated[np.argsort(home[communicated], kind="stable")]
        self._counts = np.bincount(home[communicated], minlength=len(self.rank_offsets) - 1).astype(np.int64)
        return block.src[self._received], self._counts

    def give(self, requested: np.ndarray, counts: np.ndarray) -> None:
        """Compute what other ranks requested too (int64[n], by rank; int64[ranks]), one layer below."""
        block = self._blocks[-1]
        positions = np.flatnonzero(self._computed)
        wanted = np.concatenate((block.src[positions], requested))
        self._destinations, rows = _numbered(self.roots, wanted)
        mine, sent = rows[: len(positions)], rows[len(positions) :]
        self._routes.append(Routes(positions, mine, self._received, self._counts, sent, counts))
        self._layer -= 1

    def graph(self) -> LayerGraph:
        """The whole graph, when all layers above the first are done."""
        block = self._draw()
        remote = block.src[home_of(block.src, self.rank_offsets) != self.rank]
        cached = np.sort(remote[self.caches(0, remote)])
        return LayerGraph(self.roots, self._blocks, self._routes[::-1], cached)

    def block(self, hop: int, destinations: np.ndarray) -> Block:
        """All in-neighbours of `destinations` (int64[n], distinct)."""
        (found,) = self.sampler.sample(DrawKey(TRAIN, 0, 0, 0), destinations)
        return replace(found, hop=hop)

    def _draw(self) -> Block:
        """The block of this layer."""
        self._blocks.append(self.block(self.layers - 1 - self._layer, self._destinations))
        return self._blocks[-1]


class SampledGraphBuilder(GraphBuilder):
    """Builds the LayerGraph of a mini-batch: at each hop a rank draws for the destinations that it computes."""

    def __init__(self, key: DrawKey, batch: np.ndarray, *of_rank: Any) -> None:
        """`key` and `batch` (int64[B], all roots of the iteration) are those of the draws; the rest as GraphBuilder."""
        super().__init__(*of_rank)
        self.key, self.batch = key, batch

    def block(self, hop: int, destinations: np.ndarray) -> Block:
        return self.sampler.hop(self.key, hop, destinations, self.batch)


def _numbered(roots: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of `wanted` (int64[k]), `roots` first and the others ascending; int64[k]: the place of each."""
    vertices = np.concatenate((roots, np.setdiff1d(wanted, roots)))
    order = np.argsort(vertices)
    return vertices, order[np.searchsorted(vertices, wanted, sorter=order)]


def build_here(builder: GraphBuilder, communicator: Communicator) -> LayerGraph:
    """The graph of this rank. Collective."""
    codec = IdCodec.home_ranks(builder.rank_offsets)
    for _ in range(builder.layers - 1):
        builder.give(*communicator.exchange_ids(*builder.needs(), codec))
    return builder.graph()


def build_all(builders: Sequence[GraphBuilder]) -> list[LayerGraph]:
    """The graphs of all ranks, in one process."""
    for _ in range(builders[0].layers - 1):
        needs = [builder.needs() for builder in builders]
        for builder in builders:
            asked = [_part(*each, builder.rank) for each in needs]
            builder.give(np.concatenate(asked), np.array([len(each) for each in asked], np.int64))
    return [builder.graph() for builder in builders]


def _part(ids: np.ndarray, counts: np.ndarray, rank: int) -> np.ndarray:
    """Those of `ids` (by rank, `counts` each) that belong to `rank`."""
    first = int(counts[:rank].sum())
    return ids[first : first + int(counts[rank])]


def layers_of(graph: LayerGraph) -> Iterator[tuple[int, Block]]:
    """The number of each layer and its block, the first layer first."""
    return enumerate(reversed(graph.blocks))
