"""Interface of samplers: pure functions from a key and roots to Blocks, in one of three families.

local             draws of a vertex depend only on its key
iteration-global  a table or a subgraph is drawn per iteration, the same on every rank; vertices draw from it
frontier-global   draws of a hop depend on the frontier of the whole batch: all its destinations on all ranks

In all three, every rank computes the same draws without communication if the topology is on every node. Ranks get all
roots of the batch, but for local samplers, whose draws may not read other roots. Most samplers also support a sharded
topology (sharded/). `sample` returns the part of the sample reached by some of the batch's roots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block
from leapmpi.sampling.epoch_order import batches, epoch_order
from leapmpi.system.counter_rng import ORDER, DrawKey

if TYPE_CHECKING:
    from leapmpi.sampling.training_edges import TrainingEdges

LISTS, NAMED_LISTS = "lists", "named lists"
"""Values of `SamplerMember.sharded` of samplers that support sharded topologies.

A draw reads only the list of the destination, or also original ids and in-degrees of the vertices on it.
"""

LOCAL, ITERATION_GLOBAL, FRONTIER_GLOBAL = "local", "iteration-global", "frontier-global"


@dataclass(frozen=True)
class Setup:
    """Inputs of the construction of a sampler."""

    topology: Topology
    fanouts: tuple[int, ...]
    """Fan-outs from the root outward."""
    train: np.ndarray
    """int64[t]: training vertices, renumbered ids."""
    seed: int
    threads: int = 1
    """Number of drawing threads."""
    relation_fanouts: np.ndarray | None = None
    """int64[hops, R] of a typed graph: fan-outs by hop and relation (relation_lists.py); None: `fanouts` for each."""


class Drawn(NamedTuple):
    """Edges drawn by destinations at one hop, destination by destination."""

    indptr: np.ndarray
    """int64[n + 1]: first edge of each destination."""
    neighbours: np.ndarray
    """int64[edges]: renumbered global ids; within a destination by ascending (relation, original id)."""
    weight: np.ndarray | None = None
    """float32[edges]: as in Block."""
    relation: np.ndarray | None = None
    """uint8[edges] or uint16[edges] of a typed graph: as in Block."""


class Sampler(ABC):
    """Base of all samplers. One thread at a time may call it; it draws with `threads` threads."""

    family = LOCAL
    weighted = False
    """Whether blocks carry weights."""
    leaves_edges_out = False
    """Whether `leave_out` works: draws of a vertex depend only on its list of in-neighbours."""
    by_root = False
    """Whether each root bounds by its own time what is drawn for it (root_bounds.py)."""
    supplies_roots = False
    """Whether the sampler makes the batches, in place of slices of the shuffled training vertices."""

    sharded = False
    """Whether each rank holds only the lists of its own vertices, which makes `sample` and `neighbours` collective."""

    topology: Topology
    fanouts: tuple[int, ...]
    threads: int

    @abstractmethod
    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Return the blocks of the joint computation graph of `roots`, one per fan-out, from the root outward.

        roots: int64[n], distinct renumbered ids in any order, possibly none; batch: int64[B], all roots of the
        iteration over all ranks, in any order; None stands for `roots`. Local samplers may get fewer roots.

        The first destinations are the roots in the given order; new sources follow in order of first appearance.

        Raises ValueError if roots repeat or are outside the graph.
        """

    def sample_unnumbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample as `sample` does, possibly faster, for readers of source ids rather than numbers in the last block."""
        return self.sample(key, roots, batch)

    def sample_here(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample as `sample` does, but locally: vertices with remote lists draw nothing.

        Used to compile and to examine.
        """
        return self.sample(key, roots, batch)

    def forget(self) -> None:  # noqa: B027
        """Drop state of the last iteration, so that the next one draws and sends like any other."""

    @property
    def types(self) -> GraphTypes | None:
        """Schema of the graph; None for a plain one."""
        return self.topology.types

    def original_ids(self, vertices: np.ndarray) -> np.ndarray:
        """Return the original ids of `vertices` (int64[n]) owned by this rank: int64[n]. Local."""
        return self.topology.original_id[vertices]

    @abstractmethod
    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """Draw for `vertices` (int64[n], repeats allowed) at `hop` as `sample` does, on any rank and in any order."""

    def bounded_neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, bounds: np.ndarray) -> Drawn:
        """Draw for `vertices` (int64[n]) with their `bounds` (times [n]) as `sample` does, where roots bound draws."""
        raise NotImplementedError(f"{type(self).__name__} has no bounds by root")

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        """Return the block of one hop: the draws of `destinations` (int64[n], distinct) at `hop`, equal to `sample`'s.

        Raises ConfigError for a sampler that does not go hop by hop.
        """
        raise ConfigError(
            f"this strategy needs a sampler that goes hop by hop, and {type(self).__name__} does not; use leap or pull"
        )

    @property
    def drawing(self) -> Sampler:
        """Sampler that draws: this one, unless it wraps another."""
        return self

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        """Draw with `key` as if the edges int64[k, 2] (sources, destinations) did not exist, in either direction.

        In a typed graph they are int64[k, 3], with relations, and the other direction is that of the reverse relation.
        Training draws with another key raise ValueError until its edges are registered.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot leave edges out")

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        """Return the number of batches of every epoch."""
        return -(-len(train) // batch_size)

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """Return the roots of each iteration of an epoch: all of `train` (int64[t]) once, in shuffled order."""
        order = epoch_order(train, self.topology.original_id[train], seed, epoch, stream)
        return self.cut(order, seed, epoch, batch_size, stream)

    def cut(
        self, order: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """Cut `order` (int64[t]), the shuffled roots of an epoch, into batches."""
        return batches(order, batch_size)

    def edge_batches(
        self, edges: TrainingEdges, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """Return the batches of an epoch with `edges` as roots: each once, in shuffled order."""
        return edges.batches(seed, epoch, batch_size, stream)

    def root_edges(self, key: DrawKey, edges: np.ndarray) -> None:  # noqa: B027
        """Register `edges`, as `leave_out` has them, as the roots of the iteration of `key`, before their ends draw."""

    def edge_groups(self, times: np.ndarray, batch_size: int) -> Sequence[np.ndarray] | None:
        """Return the groups (positions int64) in which edges of `times` must be scored; None if any grouping works.

        Register the times of a group by `root_times` before it draws.
        """
        return None

    def root_times(self, key: DrawKey, times: np.ndarray) -> None:  # noqa: B027
        """Register the times of the roots of the iteration of `key`, for edges that the topology lacks."""

    def for_scoring(
        self,
        fanouts: tuple[int, ...],
        splits: Mapping[int, np.ndarray],
        batch_size: int,
        relation_fanouts: np.ndarray | None = None,
    ) -> Sampler | None:
        """Return the sampler that scores runs of this one; None: node-wise.

        relation_fanouts: of typed graphs, as in Setup. splits: vertices of each split (integers) by the stream of its
        draws; empty if edges are scored.
        """
        return None

    def scoring_groups(self, stream: int) -> Sequence[np.ndarray] | None:
        """Return the groups of a split, drawn by keys of iteration 0, 1, ...; None: any grouping, with key 0."""
        return None

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> float | np.ndarray:
        """Return the weight of each root's loss (rule: loss = sum of weight x loss): a number, or float64[roots].

        `batch_size` is the number of roots of the iteration over all ranks.
        """
        return 1.0 / max(1, batch_size)

    def checked_roots(self, roots: np.ndarray) -> np.ndarray:
        """Return `roots` as int64[n]. Raises ValueError for roots outside the graph."""
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.topology.vertices:
            raise ValueError(f"roots must be in [0, {self.topology.vertices})")
        return roots


class WrappingSampler(Sampler):
    """Base of samplers that add to the blocks of `inner` or draw elsewhere; everything else is inner's."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.topology, self.fanouts, self.threads = inner.topology, inner.fanouts, inner.threads
        self.family, self.weighted, self.supplies_roots = inner.family, inner.weighted, inner.supplies_roots
        self.leaves_edges_out = inner.leaves_edges_out

    @property
    def drawing(self) -> Sampler:
        return self.inner.drawing

    def forget(self) -> None:
        self.inner.forget()

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        return self.inner.neighbours(key, hop, vertices, batch)

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        self.inner.leave_out(key, edges)

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        return self.inner.iterations(train, batch_size)

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        return self.inner.batches(train, seed, epoch, batch_size, stream)

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> float | np.ndarray:
        return self.inner.root_weights(key, roots, batch_size)
