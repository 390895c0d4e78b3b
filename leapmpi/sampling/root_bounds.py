"""Bounds of draws by root: a vertex reached from roots of several times is a destination for each of them.

The bound of a root is its time. A vertex with a bound draws edges that are earlier, and so do all vertices reached from
it, with the same bound. Roots of equal times share what they reach. The key of a draw holds the bound, so it is the
same in any batch and on any rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.ages import ages
from leapmpi.sampling.block import Block
from leapmpi.sampling.hash_frontier import HashFrontier
from leapmpi.sampling.sampler import Drawn

Draw = Callable[[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray], Drawn]
"""Draws for a hop: its number, times of the bounds, vertices, original ids and in-degrees, all by destination."""


class BoundedFrontier:
    """Frontier of a sample whose entries are vertices with bounds."""

    def __init__(self, topology: Topology, span: float) -> None:
        """Sample from `topology`. span: that of the times of training roots, for ages."""
        self._topology, self._span = topology, span
        self._frontier = HashFrontier()

    def sample(self, roots: np.ndarray, times: np.ndarray, hops: int, draw: Draw) -> list[Block]:
        """Return the blocks of `hops` hops from `roots` (int64[n], distinct) with their `times` (numbers[n]).

        Raises ValueError if roots repeat.
        """
        topology, frontier, n = self._topology, self._frontier, self._topology.vertices
        # An entry is one word: the number of its bound among those of the roots, and the vertex.
        times, bounds = np.unique(times, return_inverse=True)
        found = []
        try:
            frontier.add(bounds * n + roots)
            if frontier.count < len(roots):
                raise ValueError("roots must be distinct")
            for hop in range(hops):
                n_dst = frontier.count
                bound, vertices = np.divmod(frontier.src, n)
                drawn = draw(hop, times[bound], vertices, topology.original_id[vertices], topology.degree(vertices))
                of_edges = np.repeat(bound, np.diff(drawn.indptr))
                positions = frontier.add(of_edges * n + drawn.neighbours)
                found.append((hop, n_dst, frontier.count, positions, drawn))
            bound, src = np.divmod(frontier.src, n)
        finally:
            frontier.clear()
        original, degree = topology.original_id[src], topology.degree(src)
        aged = None
        if topology.relation is not None and topology.vertex_time is not None:
            aged = ages(times[bound], topology.vertex_time[src], self._span)
        return [
            Block(
                hop,
                n_dst,
                *(src[:n_src], drawn.indptr, positions, original[:n_src], degree[:n_src]),
                relation=drawn.relation,
                bound=times[bound[:n_src]],
                ages=None if aged is None else aged[:n_src],
            )
            for hop, n_dst, n_src, positions, drawn in found
        ]


def intervals(times: np.ndarray, window: float, *, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last time of edges that bounds of `times` (numbers[n]) see, in their type.

    window: largest age of an edge, 0 for any. strict: whether edges of the bound's own time are too late. An empty
    interval ends before it begins.
    """
    if times.dtype.kind == "f":
        last = np.nextafter(times, -math.inf) if strict else times.copy()
        return (times - window if window else np.full_like(times, -math.inf)), last
    # Integers must not overflow.
    least = np.iinfo(times.dtype).min
    age = math.floor(window)
    first = np.full_like(times, least)
    if window:
        first = np.where(times >= least + age, times - age, least)
    nothing = times == least if strict else np.zeros(len(times), bool)
    last = np.where(nothing, least, times - 1 if strict else times)
    return np.where(nothing, least + 1, first), last
