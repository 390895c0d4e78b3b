"""Negatives: destinations for each edge of a batch that its source has no edge to.

Each is a pure function of (stream, seed, epoch, iteration, original ids of the edge's ends, number). It is the same on
every rank and partition, unless candidates are restricted to the source's owner. A candidate that is the source itself
or a training edge is redrawn up to 16 times; then the last counts. Edges held back for validation and test are not
checked, which would leak them to the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from leapmpi.registry import Member, Registry
from leapmpi.sampling.candidates import Candidates, HardLists
from leapmpi.system.counter_rng import DrawKey, fold, key_hash
from leapmpi.system.jit import compiled

_TRIES = 16
_NEGATIVE = 0x6E656761  # keeps negatives apart from draws of neighbours


class NegativeSampler(ABC):
    """Base of the ways to draw candidates."""

    shared = False
    """Whether all edges have the same candidates, in a typed graph all ends of a type."""

    takes_all = False
    """Whether these are all vertices, whatever number is requested."""

    reads_lists = False
    """Whether draws are from the lists of a file."""

    def __init__(self, candidates: Candidates, lists: HardLists | None = None) -> None:
        """Draw from `candidates`; `lists` are those of a file, for samplers that read them."""
        self.candidates = candidates

    @abstractmethod
    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Draw a vertex int64[k] for each of `words` uint64[k], random words; `rows` int64[k] is the edge of each.

        `edges` int64[B, 2] are those of the whole batch, in an order independent of the partition. Pure.
        """

    def draw(self, key: DrawKey, edges: np.ndarray, count: int, names: np.ndarray | None = None) -> np.ndarray:
        """Draw `count` negative destinations for each of `edges` (int64[B, 2]): int64[B, count]. Pure.

        names: int64[B, 2], original ids of their ends, required with a sharded topology. Draws are then collective, and
        all ranks pass the same edges.
        """
        candidates, base = self.candidates, self._base(key)
        names = candidates.names(edges) if names is None else names
        words = _words(base, names, count).reshape(-1)
        rows = np.repeat(np.arange(len(edges)), count)
        # Each pair redraws alone, from its own words, so that the draws of one do not depend on the others (rule R1).
        # After _TRIES an edge is accepted as a negative: a source may be joined to all vertices.
        found, open_ = np.zeros(len(rows), np.int64), np.arange(len(rows))
        for _ in range(_TRIES):
            found[open_] = self.pick(words[open_], rows[open_], edges)
            named = rows[open_]
            open_ = open_[candidates.are_edges(edges[named, 0], found[open_], names[named, 0])]
            if not len(open_):
                break
            words[open_] = _next(words[open_])
        return found.reshape(len(edges), count)

    def draw_shared(self, key: DrawKey, count: int) -> np.ndarray:
        """Draw `count` vertices for all edges of a batch: int64[K]. Pure; collective with a sharded topology.

        Edges among them are not redrawn.
        """
        words = _words(self._base(key), np.zeros((1, 2), np.int64), count)[0]
        return self.pick(words, np.zeros(count, np.int64), np.empty((0, 2), np.int64))

    def _base(self, key: DrawKey) -> np.uint64:
        base = np.uint64(fold(key_hash(key), _NEGATIVE))
        return base if self.candidates.salt is None else np.uint64(fold(base, self.candidates.salt))


def negatives_named(name: str) -> type[NegativeSampler]:
    """Return the sampler called `name`."""
    return NEGATIVES.load(name).sampler


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


@dataclass(frozen=True)
class NegativesMember(Member):
    """A negative sampler."""

    sampler: type[NegativeSampler]


NEGATIVES = Registry("negative sampler", "leapmpi.sampling.negatives", NegativesMember)
