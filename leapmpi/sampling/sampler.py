"""The interface of samplers: pure functions from a key and roots to Blocks, in one of three families.

local             what a vertex draws depends on its key only
iteration-global  a table or a subgraph is drawn for the iteration, the same on every rank; vertices draw from it
frontier-global   what a hop draws depends on all its destinations over all ranks: the frontier of the whole batch

In all three, every rank computes the same draws without communication where the topology is on every node: the schedule
has the whole batch. Most samplers draw from a sharded topology too (sharded/). `sample` returns the part of the
sample that some of the batch's roots reach.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block
from leapmpi.sampling.epoch_order import batches, epoch_order
from leapmpi.system.counter_rng import ORDER, DrawKey

if TYPE_CHECKING:
    from leapmpi.sampling.training_edges import TrainingEdges

LISTS, NAMED_LISTS = "lists", "named lists"
"""What a sampler that can draw from a sharded topology says in its module as SHARDED: whether a draw reads the list of
the destination alone, or original ids and in-degrees of the vertices on it too."""

LOCAL, ITERATION_GLOBAL, FRONTIER_GLOBAL = "local", "iteration-global", "frontier-global"


@dataclass(frozen=True)
class Setup:
    """What a sampler is made from."""

    topology: Topology
    fanouts: tuple[int, ...]
    """From the root outward."""
    train: np.ndarray
    """int64[t]: the training vertices, renumbered ids."""
    seed: int
    threads: int = 1
    """Threads that draw."""


class Drawn(NamedTuple):
    """The edges that destinations drew at one hop, destination by destination."""

    indptr: np.ndarray
    """int64[n + 1]: where the edges of each destination start."""
    neighbours: np.ndarray
    """int64[edges]: renumbered global ids; within a destination by ascending original id."""
    weight: np.ndarray | None = None
    """float32[edges]: as in Block."""


class Sampler(ABC):
    """Base of all samplers. One thread at a time may call it; inside, `threads` of them draw."""

    family = LOCAL
    weighted = False
    """Whether blocks carry weights."""
    leaves_edges_out = False
    """Whether `leave_out` works: what a vertex draws depends on the list of its in-neighbours alone."""
    supplies_roots = False
    """Whether the sampler makes the batches, instead of slices of the shuffled training vertices."""

    sharded = False
    """Whether each rank holds the lists of its own vertices alone, so that `sample` and `neighbours` are collective."""

    topology: Topology
    fanouts: tuple[int, ...]
    threads: int

    @abstractmethod
    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """The blocks of the joint computation graph of `roots`, one per fan-out, from the root outward.

        roots: int64[n], distinct renumbered ids in any order, possibly none; batch: int64[B], all roots of the
        iteration over all ranks, in any order; `roots` themselves when None. The first destinations are the roots in
        the given order; new sources follow in order of first appearance.

        Raises ValueError when roots repeat or lie outside the graph.
        """

    def sample_unnumbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """As `sample`, for who reads ids of the last block's sources and seldom their numbers; may take less time."""
        return self.sample(key, roots, batch)

    def sample_here(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """As `sample`, but always local: vertices whose lists are elsewhere draw nothing. To compile and to examine."""
        return self.sample(key, roots, batch)

    def forget(self) -> None:  # noqa: B027
        """Forget what is kept of the last iteration, so that the next one draws, and moves, what any other does."""

    def original_ids(self, vertices: np.ndarray) -> np.ndarray:
        """int64[n]: the original ids of `vertices` (int64[n]), whose home is this rank. Local."""
        return self.topology.original_id[vertices]

    @abstractmethod
    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """What `sample` draws for `vertices` (int64[n], repeats allowed) at `hop`, on any rank and in any order."""

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        """The block of one hop: what `destinations` (int64[n], distinct) draw at `hop`, wherever `sample` meets them.

        Raises ConfigError for a sampler that does not go hop by hop.
        """
        raise ConfigError(
            f"this strategy needs a sampler that goes hop by hop, and {type(self).__name__} does not; use leap or pull"
        )

    @property
    def drawing(self) -> Sampler:
        """The sampler that draws: this one, unless it adds something to the draws of another."""
        return self

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        """From now on draw with `key` as if the edges int64[k, 2] (sources, destinations) were not there, either way.

        Draws of training with another key are refused until its edges are named.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot leave edges out")

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        """The number of batches of every epoch."""
        return -(-len(train) // batch_size)

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """The roots of each iteration of an epoch: all of `train` (int64[t]) once, in shuffled order."""
        order = epoch_order(train, self.topology.original_id[train], seed, epoch, stream)
        return self.cut(order, seed, epoch, batch_size, stream)

    def cut(
        self, order: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """The batches of an epoch whose roots are shuffled into `order` (int64[t])."""
        return batches(order, batch_size)

    def edge_batches(
        self, edges: TrainingEdges, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """The batches of an epoch where the roots are `edges`: each once, in shuffled order."""
        return edges.batches(seed, epoch, batch_size, stream)

    def root_edges(self, key: DrawKey, edges: np.ndarray) -> None:  # noqa: B027
        """Hear that the roots of the iteration of `key` are `edges` (int64[k, 2]), before their ends draw."""

    def edge_groups(self, times: np.ndarray, batch_size: int) -> Sequence[np.ndarray] | None:
        """The groups, positions int64, into which edges of `times` have to be cut where they are scored; None: any.

        Their times are then to be told by `root_times`, before a group draws.
        """
        return None

    def root_times(self, key: DrawKey, times: np.ndarray) -> None:  # noqa: B027
        """Hear the times of the roots of the iteration of `key`, edges that the topology lacks, before they draw."""

    def for_scoring(
        self, fanouts: tuple[int, ...], splits: Mapping[int, np.ndarray], batch_size: int
    ) -> Sampler | None:
        """The sampler by which runs of this one are scored; None: node-wise.

        splits: the vertices of each split (integers) by the stream of its draws, none where edges are scored.
        """
        return None

    def scoring_groups(self, stream: int) -> Sequence[np.ndarray] | None:
        """The groups into which a split has to be cut, drawn by keys of iteration 0, 1, ...; None: any, with key 0."""
        return None

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> float | np.ndarray:
        """The weight of each root's loss (rule: loss = sum of weight x loss), one for all or float64[roots].

        `batch_size` is the number of roots of the iteration over all ranks.
        """
        return 1.0 / max(1, batch_size)

    def checked_roots(self, roots: np.ndarray) -> np.ndarray:
        """`roots` as int64[n]. Raises ValueError where they lie outside the graph."""
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.topology.vertices:
            raise ValueError(f"roots must lie in [0, {self.topology.vertices})")
        return roots


class WrappingSampler(Sampler):
    """Base of samplers that make the draws of `inner` elsewhere, or add to its blocks; all else is that of `inner`."""

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
