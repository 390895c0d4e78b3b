"""Negatives: for each edge of a batch, further destinations that its source has no edge to.

Each is a pure function of (stream, seed, epoch, iteration, original ids of the edge's ends, number): the same on every
rank and partition, unless they are drawn at home. A candidate that is the source itself, or a training edge of it, is
drawn again, up to 16 times; then the last counts. Edges held back for validation and test are not looked at, which
would tell the model of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.registry import Registry
from leapmpi.system.counter_rng import DrawKey, fold, key_hash
from leapmpi.system.jit import compiled

NEGATIVES = Registry("negative sampler", "leapmpi.sampling.negatives")

ANY, HOME = "any", "home"
_TRIES = 16
_NEGATIVE = 0x6E656761  # keeps negatives apart from draws of neighbours


@dataclass(frozen=True)
class Candidates:
    """Where candidates are drawn from. `rank_offsets` int64[ranks + 1] where they are drawn at home, else None."""

    topology: Topology
    rank_offsets: np.ndarray | None = None

    def homes(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First vertex and end, int64[k] each, of the ranges that each of `sources` draws from."""
        if self.rank_offsets is None:
            return np.zeros(len(sources), np.int64), np.full(len(sources), self.topology.vertices)
        home = np.searchsorted(self.rank_offsets, sources, side="right") - 1
        return self.rank_offsets[home], self.rank_offsets[home + 1]

    def order(self) -> np.ndarray | None:
        """int64[n]: the vertices by original id, as they are drawn anywhere; None at home, where numbers serve."""
        return np.argsort(self.topology.original_id) if self.rank_offsets is None else None


class NegativeSampler(ABC):
    """One way to draw candidates."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates

    @abstractmethod
    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """A vertex int64[k] for each of `words` uint64[k], random words; `rows` int64[k] is the edge of each.

        `edges` int64[B, 2] are those of the whole batch, in an order that no partition changes. Pure.
        """

    def draw(self, key: DrawKey, edges: np.ndarray, count: int) -> np.ndarray:
        """`count` negative destinations of each of `edges` (int64[B, 2]): int64[B, count]. Pure."""
        topology = self.candidates.topology
        base = np.uint64(fold(key_hash(key), _NEGATIVE))
        words = _words(base, topology.original_id[edges], count).reshape(-1)
        rows = np.repeat(np.arange(len(edges)), count)
        found, open_ = np.zeros(len(rows), np.int64), np.arange(len(rows))
        for _ in range(_TRIES):
            found[open_] = self.pick(words[open_], rows[open_], edges)
            open_ = open_[_is_edge(edges[rows[open_], 0], found[open_], *_arrays(topology))]
            if not len(open_):
                break
            words[open_] = _next(words[open_])
        return found.reshape(len(edges), count)


def _arrays(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return topology.indptr, topology.indices, topology.original_id


@compiled
def _words(base, ends, count):
    out = np.empty((len(ends), count), np.uint64)
    for i in range(len(ends)):
        edge = fold(fold(base, ends[i, 0]), ends[i, 1])
        for j in range(count):
            out[i, j] = fold(edge, j)
    return out


@compiled
def _next(words):
    out = np.empty_like(words)
    for i in range(len(words)):
        out[i] = fold(words[i], 1)
    return out


@compiled
def _is_edge(sources, destinations, indptr, indices, original):
    """bool[k]: whether a candidate is no negative: its source itself, or an edge of the training graph."""
    out = np.empty(len(sources), np.bool_)
    for i in range(len(sources)):
        u, w = sources[i], destinations[i]
        out[i] = u == w or has_edge(u, w, indptr, indices, original)
    return out
