"""Random walks over the lists of all ranks: a destination's owner keeps its walks, owners of visited vertices step.

All walks of a draw take a step at once. The first step is from the destination itself. For each further one the vertex
and the random word go to the vertex's owner, which replies with the next vertex and its original id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.sampling.candidates import range_of
from leapmpi.sampling.sampler import Drawn
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.sharded.answer_format import NUMBER, AnswerFormat, pack, unpack
from leapmpi.sampling.sharded.owner_draws import OwnerDraws
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import DrawKey, bounded, fold
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

KIND = "topology"


@compiled
def _folded(words, number):
    """Return fold(word, number) for each of `words` (uint64[k])."""
    out = np.empty_like(words)
    for i in range(len(words)):
        out[i] = fold(words[i], number)
    return out


@compiled
def _words(hashed, original, walks):
    """Return the word of each walk of each destination: uint64[n * walks]."""
    out = np.empty(len(original) * walks, np.uint64)
    for i in range(len(original)):
        base = fold(hashed, original[i])
        for walk in range(walks):
            out[i * walks + walk] = fold(base, walk)
    return out


@compiled
def _next(numbers, words, indptr, indices):
    """Return the in-neighbour of each of `numbers` drawn by its word, int64[k]; -1 if there is none."""
    out = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        start = indptr[numbers[i]]
        degree = indptr[numbers[i] + 1] - start
        out[i] = np.int64(indices[start + np.int64(bounded(words[i], degree))]) if degree > 0 else -1
    return out


class SharedWalks(OwnerDraws):
    """Draws of `sampler`, whose walks cross ranks. Takes 32 bytes for each step of a walk while it draws."""

    collective = True

    def __init__(
        self,
        sampler: RandomWalk,
        shard: TopologyShard,
        communicator: Communicator,
        rank_offsets: np.ndarray,
        answers: AnswerFormat,
    ) -> None:
        """Take rank_offsets: int64[ranks + 1]; the sources of `shard` are named."""
        super().__init__(sampler, shard)
        self._walker, self._communicator, self._answers = sampler, communicator, answers
        self._rank_offsets, self._id_codec = rank_offsets, IdCodec.home_ranks(rank_offsets)

    def draw(self, key: DrawKey, hop: int, numbers: np.ndarray, alone: bool) -> Drawn:
        """Draw; see OwnerDraws.draw. Neighbours are given by id. Collective, unless alone."""
        own, options = self.shard.own, self._walker.options
        size = len(numbers) * options.walks
        visited, names = np.full((size, options.steps), -1), np.empty((size, options.steps), np.int64)

        # Compact the active walks after each step; `walk` keeps their numbers.
        start = np.repeat(numbers + self.shard.first, options.walks)
        words = _words(self._walker.hashed(key, hop), own.original_id[numbers], options.walks)
        walk, here = np.arange(size), start
        for step in range(options.steps):
            drawing = _folded(words, 2 * step)
            found, named = self._stepped(here, drawing, step == 0 or alone)
            there = np.flatnonzero(found >= 0)
            walk, words, here = walk[there], words[there], found[there]
            away = here != start[walk]
            visited[walk[away], step], names[walk[away], step] = here[away], named[there][away]
            goes_on = _folded(words, 2 * step + 1) >= self._walker.stop
            walk, words, here = walk[goes_on], words[goes_on], here[goes_on]

        rows = len(numbers), options.walks * options.steps
        return self._walker.draw_visited(hop, visited.reshape(rows), names.reshape(rows), own.degree(numbers))

    def ids_of(self, neighbours: np.ndarray) -> np.ndarray:
        return neighbours

    def _stepped(self, here: np.ndarray, words: np.ndarray, alone: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the next vertex from each of `here` (ids int64[k]) by `words`, -1 for none, and its original id.

        alone: this rank owns all of them, or they do not move. Collective, unless alone.
        """
        home, network = range_of(here, self._rank_offsets), self._communicator
        found, names = np.full(len(here), -1), np.full(len(here), -1)
        mine = home == network.rank
        found[mine], names[mine] = self._step(self.shard.own_numbers(here[mine]), words[mine])
        if alone:
            return found, names

        # Vertices and words go to the owners, by owner.
        order = np.argsort(home, kind="stable")
        order = order[home[order] != network.rank]
        counts = np.bincount(home[order], minlength=network.size).astype(np.int64)
        theirs = network.exchange_counts(counts)
        asked, with_words = self._id_codec.empty(int(theirs.sum())), np.empty(int(theirs.sum()), np.int64)
        network.exchange(self._id_codec.encode(here[order], counts), counts, asked, theirs, KIND)
        network.exchange(words[order].view(np.int64), counts, with_words, theirs, KIND)

        # In replies, a number beyond all vertices encodes none.
        none, word = self.shard.vertices, self._answers.word
        numbers = self.shard.own_numbers(self._id_codec.decode(asked, network.rank))
        reached, named = self._step(numbers, with_words.view(np.uint64))
        reached, named = np.where(reached < 0, none, reached), np.maximum(named, 0)
        bounds = np.concatenate(([0], np.cumsum(theirs)))
        send = np.empty(2 * len(reached), word)
        start = 0
        for rank in range(network.size):
            start = pack([NUMBER, NUMBER], [reached, named], slice(bounds[rank], bounds[rank + 1]), send, start)
        received = np.empty(2 * len(order), word)
        network.exchange(send, 2 * theirs, received, 2 * counts, KIND)
        start, first = 0, 0
        for count in counts.tolist():
            (ids, originals), start = unpack([NUMBER, NUMBER], count, received, start)
            places = order[first : first + count]
            found[places], names[places] = np.where(ids == none, -1, ids), originals
            first += count
        return found, names

    def _step(self, numbers: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and original ids of the successors of own vertices `numbers`; -1 for none. Local."""
        own = self.shard.own
        found = _next(numbers, words, own.indptr, own.indices)
        reached = found >= 0
        ids, names = np.full(len(found), -1), np.full(len(found), -1)
        ids[reached], names[reached] = self.shard.ids_of(found[reached]), own.original_id[found[reached]]
        return ids, names
