"""Copies of what this rank requests most from other ranks: facts about their vertices, and lists to draw from.

The first samples of a job observe how many bytes each request takes. What spares the most of them for each byte of
memory is then fetched from its owners, once: facts alone (original id and in-degree) of vertices that are sources and
never draw, or also their lists. Draws are the same, since a list draws by its original id. Sun et al., "Legion:
automatically pushing the envelope of multi-GPU system for billion-scale GNN training" (USENIX ATC 2023, section 4),
keep lists that are read often in the same way, by a count before training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.sampler import Drawn
from leapmpi.system.counter_rng import DrawKey

OBSERVED = 16
"""Samples whose requests choose the copies."""

_FACTS, _LIST = 24, 24
"""Bytes of the facts about a vertex with its id; and of a list, beside its edges: id, original id and first edge."""

_NONE = np.empty(0, np.int64)

_Noted = list[tuple[np.ndarray, np.ndarray]]
"""Ids or items int64[k] with a number of each, int64[k]."""


class ListCopies:
    """Copies of facts and lists in at most `room` bytes; none before `hold`."""

    def __init__(self, room: int, edge_bytes: int, sampler: HopSampler) -> None:
        """Draw by `sampler`, which draws from copies, from lists of at most `edge_bytes` bytes an edge."""
        self._room, self._edge_bytes, self._sampler = room, edge_bytes, sampler
        self.known, self.lists = _NONE, _NONE
        """int64[k], ascending: the vertices whose facts, and those whose lists, are copied."""
        self.spared = 0.0
        """Estimated share of the bytes of requests."""
        self.nbytes = 0
        self.forget()
        self._facts: Sequence[np.ndarray] = (_NONE, _NONE)
        self._lists: Topology | None = None
        self._sources: np.ndarray | None = None

    def forget(self) -> None:
        """Forget what was observed: samples so far belong to no iteration of training."""
        self._samples = 0
        self._noted: tuple[_Noted, _Noted] = ([], [])
        self._degrees: _Noted = []

    def sample_begins(self) -> bool:
        """Count a sample; returns whether copies are to be chosen now: once, at the same sample on all ranks."""
        if self.observes:
            self._sum_up()
        self._samples += 1
        return self._samples == OBSERVED + 1

    @property
    def observes(self) -> bool:
        """Whether requests are still observed."""
        return self._samples <= OBSERVED

    def note_draws(self, ids: np.ndarray, nbytes: np.ndarray) -> None:
        """Note the bytes (int64[k]) that draws of remote vertices `ids` (int64[k]) took."""
        self._note(2 * ids + 1, nbytes)

    def note_degrees(self, ids: np.ndarray, degrees: np.ndarray) -> None:
        """Note the in-degrees (int64[k]) of remote vertices `ids` (int64[k]) that draw."""
        self._degrees.append((ids, degrees))

    def note_descriptions(self, ids: np.ndarray, nbytes: int) -> None:
        """Note that facts about each of the remote vertices `ids` (int64[k]) took `nbytes`."""
        self._note(2 * ids, np.full(len(ids), nbytes))

    def _note(self, items: np.ndarray, nbytes: np.ndarray) -> None:
        """Note the bytes of `items`, int64[k]: twice the id for facts, and one more for a list."""
        self._noted[self._samples % 2].append((items, nbytes))

    def _sum_up(self) -> None:
        """Add up what was noted, so that it takes memory by vertex, not by request."""
        for half in self._noted:
            if len(half) != 1:
                half[:] = [_sums(half)]
        known, degrees = _joined(self._degrees)
        known, first = np.unique(known, return_index=True)
        self._degrees = [(known, degrees[first])]

    def chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """Choose the vertices whose facts, and those whose lists, are to be copied: int64, ascending each."""
        self._sum_up()
        items = np.union1d(*(half[0][0] for half in self._noted))
        first, second = np.zeros(len(items)), np.zeros(len(items))
        for spared, ((found, nbytes),) in zip((first, second), self._noted, strict=True):
            spared[np.searchsorted(items, found)] = nbytes
        ids, of_list = items // 2, items % 2 == 1
        ((known, degrees),) = self._degrees
        sizes = np.full(len(items), _FACTS)
        sizes[of_list] += _LIST + self._edge_bytes * degrees[np.searchsorted(known, ids[of_list])]
        self._noted, self._degrees = ([], []), []

        # What every other sample would choose is tried on the others, since it looks better on its own.
        self.spared = float(second[self._most_sparing(first, sizes)].sum() / max(1.0, second.sum()))
        taken = self._most_sparing(first + second, sizes)
        return np.unique(ids[taken]), ids[taken & of_list]

    def _most_sparing(self, spared: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return bool[k]: the items that have room, by the bytes that they spare for each byte of memory."""
        order = np.argsort(-spared / sizes, kind="stable")
        taken = np.zeros(len(order), bool)
        taken[order[np.cumsum(sizes[order]) <= self._room]] = True
        return taken & (spared > 0)

    def hold_facts(self, ids: np.ndarray, original: np.ndarray, degree: np.ndarray) -> None:
        """Keep the original ids and in-degrees (int64[k] each) of the vertices `ids` (int64[k], ascending)."""
        self.known, self._facts = ids, (original, degree)
        self.nbytes += _FACTS * len(ids)

    def hold_lists(self, ids: np.ndarray, lists: Topology, sources: np.ndarray | None) -> None:
        """Draw for the vertices `ids` (int64[k], ascending) from `lists`, in their order, from now on.

        sources: integers, the vertices whose numbers `lists` holds, if it does not hold vertices.
        """
        self.lists, self._lists, self._sources = ids, lists, sources
        self.nbytes += lists.nbytes + ids.nbytes + (0 if sources is None else sources.nbytes)

    def about(self, ids: np.ndarray) -> list[np.ndarray]:
        """Return original ids and in-degrees of known vertices `ids` (int64[k]): int64[k] each."""
        places = np.searchsorted(self.known, ids)
        return [column[places] for column in self._facts]

    def draw(self, key: DrawKey, hop: int, ids: np.ndarray) -> Drawn:
        """Draw for vertices `ids` (int64[n]) with copied lists; neighbours are ids in the dataset. Local."""
        assert self._lists is not None, "lists are held"
        sampler = self._sampler.drawing_from(self._lists)
        drawn = sampler.drawn(key, hop, np.searchsorted(self.lists, ids), *self.about(ids))
        # The sampler draws from other lists next, and reuses its memory.
        found = drawn.neighbours if self._sources is None else self._sources[drawn.neighbours]
        return drawn._replace(neighbours=found.astype(np.int64))


def _joined(pairs: _Noted) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate pairs of arrays int64[k]."""
    return np.concatenate([_NONE, *(ids for ids, _ in pairs)]), np.concatenate([_NONE, *(of for _, of in pairs)])


def _sums(pairs: _Noted) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct items of `pairs`, int64[n] ascending, and the sum of the numbers of each: int64[n]."""
    items, numbers = _joined(pairs)
    found, places = np.unique(items, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, places, numbers)
    return found, sums
