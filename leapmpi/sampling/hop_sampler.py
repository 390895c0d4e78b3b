"""Samplers that go hop by hop: each destination draws some sources, which become destinations of the next hop.

A sampler of this kind tells what destinations draw (`draw`); numbering, de-duplication and Blocks are done here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from leapmpi.sampling.block import Block
from leapmpi.sampling.frontier import Frontier
from leapmpi.sampling.node_wise import checked_fanouts
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.sampling.workers import SamplerThreads
from leapmpi.system.counter_rng import DrawKey


class HopSampler(Sampler):
    """Base of samplers that draw hop by hop. Keeps working memory of 4 bytes per vertex of the graph between calls."""

    def __init__(self, setup: Setup) -> None:
        self.topology, self.threads = setup.topology, setup.threads
        self.fanouts = checked_fanouts(setup.fanouts)
        self._team = SamplerThreads(setup.threads)
        self._frontier = Frontier(setup.topology, self._team)

    @abstractmethod
    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """What `vertices` (int64[n], with their original ids and in-degrees, int64[n]) draw at `hop`. Pure."""

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Get ready to draw for the iteration of `key`, whose roots over all ranks are `batch` (int64[B])."""

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """As of every sampler."""
        roots, frontier = self.checked_roots(roots), self._frontier
        self.begin(key, roots if batch is None else batch)
        drafts = []
        try:
            frontier.add(roots)
            if frontier.count < len(roots):
                raise ValueError("roots must be distinct")
            for hop in range(len(self.fanouts)):
                n_dst = frontier.count
                drawn = self.draw(key, hop, *frontier.first(n_dst))
                places = frontier.add(drawn.neighbours)
                drafts.append((hop, n_dst, frontier.count, drawn.indptr, places, drawn.weight))
            src, original, degree = (each.copy() for each in frontier.first(frontier.count))
        finally:
            frontier.clear()
        return [
            Block(hop, n_dst, src[:n_src], indptr, places, original[:n_src], degree[:n_src], weight)
            for hop, n_dst, n_src, indptr, places, weight in drafts
        ]

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """As of every sampler."""
        self.begin(key, vertices if batch is None else batch)
        return self.draw(key, hop, vertices, self.topology.original_id[vertices], self.topology.degree(vertices))

    def checked_roots(self, roots: np.ndarray) -> np.ndarray:
        """`roots` as int64[n]. Raises ValueError where they lie outside the graph."""
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.topology.vertices:
            raise ValueError(f"roots must lie in [0, {self.topology.vertices})")
        return roots

    def shared_out(self, cost: np.ndarray, work: Callable[[int, int], None]) -> None:
        """Call work(first, end) for ranges of destinations that together hold all, one a thread.

        `cost` int64[n] is what each destination takes, about. `work` must not hold the interpreter's lock for long.
        """
        self._team.share_by_cost(indptr_of(cost), lambda _, first, end: work(first, end))


def indptr_of(counts: np.ndarray) -> np.ndarray:
    """int64[n + 1]: where the edges of each destination start, given how many each has."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr
