"""Samplers made from a user's class: every transit draws by itself, or all of a step draw together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.sampling.custom import compile
from leapmpi.sampling.custom.api import OwnSampler
from leapmpi.sampling.custom.compile import REPEATS, STRANGER, picker, refused, sizes_of
from leapmpi.sampling.hop_sampler import HopSampler, indptr_of
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.node_wise import ALL
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey, fold, key_hash

if TYPE_CHECKING:
    from leapmpi.config.sections import SamplingConfig

_PROBED = 64
"""Vertices that draw twice before training, to see whether they draw the same."""


class _Own:
    """What both kinds know of the user's class."""

    def __init__(self, setup: Setup, own: type[OwnSampler], named: str) -> None:
        super().__init__(setup)
        self.named, self.unique = named, bool(own.unique)
        self.fanouts = sizes_of(own, setup.fanouts, named)
        self._pick = picker(own)
        self._transits = _transits_kernel(own.transit) if own.transit else None

    def transits(self, hop: int, original: np.ndarray, degree: np.ndarray) -> np.ndarray:
        """bool[n]: which vertices draw at `hop`."""
        mask = np.ones(len(original), bool)
        if self._transits:
            self.asked(lambda: self._transits(hop, original, degree, mask))
        return mask

    def asked(self, code: Callable[[], Any]) -> Any:
        """What `code`, the user's, gives. Raises ConfigError for what it raises."""
        try:
            return code()
        except Exception as error:
            raise refused(self.named, error) from error

    def complain(self, outcome: int, vertex: int, size: int, of: str) -> None:
        """Raise ConfigError for what `pick` found."""
        if outcome == STRANGER:
            raise ConfigError(f"--sampler {self.named}: next returned {vertex}, which is not an in-neighbour of {of}")
        if outcome == REPEATS:
            raise ConfigError(
                f"--sampler {self.named}: next keeps returning {vertex}, which is drawn already, where {size} distinct "
                f"in-neighbours of {of} are wanted; use its word, or set unique = False"
            )


class OwnIndividual(_Own, HopSampler):
    """Local: every transit draws from its own in-neighbours."""

    def __init__(self, setup: Setup, own: type[OwnSampler], named: str) -> None:
        super().__init__(setup, own, named)
        self._draw_rows = _rows_kernel(self._pick)

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """As of every HopSampler."""
        size, topology = self.fanouts[hop], self.topology
        size = int(degree.max(initial=0)) if size == ALL else size
        room = np.minimum(degree, size) if self.unique else np.where(degree > 0, size, 0)
        room[~self.transits(hop, original, degree)] = 0
        starts, hashed = indptr_of(room), np.uint64(fold(key_hash(key), hop))
        counts, out, troubles = np.zeros(len(vertices), np.int64), np.empty(starts[-1], np.int64), []
        graph = topology.indptr, topology.indices, topology.original_id

        def work(first: int, end: int) -> None:
            arrays = vertices, original, *graph, starts, counts, out
            outcome, vertex, i = self._draw_rows(first, end, hashed, size, self.unique, *arrays)
            if outcome < 0:
                troubles.append((outcome, vertex, i))

        self.asked(lambda: self.shared_out(degree, work))
        if troubles:
            outcome, vertex, i = min(troubles, key=lambda each: each[2])
            self.complain(outcome, vertex, size, f"vertex {original[i]}")
        if (counts == room).all():
            return Drawn(starts, out)
        kept = np.arange(len(out)) - np.repeat(starts[:-1], room) < np.repeat(counts, room)
        return Drawn(indptr_of(counts), out[kept])


class OwnCollective(_Own, FrontierSampler):
    """Frontier-global: the transits of a step draw together; `table` marks what they drew."""

    weighted = False

    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        """As of every FrontierSampler."""
        topology, table = self.topology, np.zeros(self.topology.vertices)
        original, degree = topology.original_id[vertices], topology.degree(vertices)
        transits = vertices[self.transits(hop, original, degree)]
        rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in transits]
        found = np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int64)
        found = found[np.argsort(topology.original_id[found])]
        names, size = topology.original_id[found], self.fanouts[hop]
        size = len(found) if size == ALL else size
        positions = np.empty(max(size, 1), np.int64)
        hashed = np.uint64(fold(key_hash(key), hop))
        outcome, vertex = self.asked(lambda: self._pick(names, size, self.unique, hashed, positions))
        self.complain(outcome, vertex, size, "the step's transits")
        table[found[positions[:outcome]]] = 1
        return table

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """What the step drew of each transit's in-neighbours."""
        drawn = super().draw(key, hop, vertices, original, degree)
        mask = self.transits(hop, original, degree)
        if mask.all():
            return drawn
        counts = np.diff(drawn.indptr)
        return Drawn(indptr_of(counts * mask), drawn.neighbours[np.repeat(mask, counts)])


def custom_sampler(setup: Setup, own: type[OwnSampler], config: SamplingConfig) -> Sampler:
    """The sampler that a user's class declares. Raises ConfigError for one that cannot be used."""
    named = config.sampler
    if config.options:
        raise ConfigError(f"sampling.options: sampler {named} has none")
    if own.collective and not own.unique:
        raise ConfigError(f"--sampler {named}: transits that draw together draw distinct vertices; leave unique = True")
    kind = OwnCollective if own.collective else OwnIndividual
    sampler = kind(setup, own, named)
    _check_repeats(sampler)
    return sampler


def _check_repeats(sampler: OwnIndividual | OwnCollective) -> None:
    """Raise ConfigError when vertices draw otherwise at a second time, in another order."""
    degree = np.diff(sampler.topology.indptr)
    vertices = np.argsort(-degree, kind="stable")[:_PROBED]
    key, original = DrawKey(PRESAMPLE, 0, 0, 0), sampler.topology.original_id
    for hop in range(len(sampler.fanouts)):
        drawn = []
        for order in (vertices, vertices[::-1].copy()):
            if isinstance(sampler, OwnCollective):
                drawn.append([np.flatnonzero(sampler.table(key, hop, order))])
            else:
                found = sampler.draw(key, hop, order, original[order], degree[order])
                drawn.append(np.split(found.neighbours, found.indptr[1:-1]))
        second = drawn[1][::-1]
        if any(a.tolist() != b.tolist() for a, b in zip(drawn[0], second, strict=True)):
            raise ConfigError(
                f"--sampler {sampler.named}: asked again, it draws other vertices; all that is random must come from "
                "word"
            )


@functools.cache
def _rows_kernel(pick: Callable) -> Callable:
    @compile.fresh
    def draw_rows(
        first, end, hashed, size, unique, vertices, original, indptr, indices, original_id, starts, counts, out
    ):
        """Draw for destinations first..end-1; returns (0, 0, 0), or what is wrong, the vertex and the destination."""
        names, positions = np.empty(0, np.int64), np.empty(size, np.int64)
        for i in range(first, end):
            if starts[i] == starts[i + 1]:
                continue
            start, degree = indptr[vertices[i]], indptr[vertices[i] + 1] - indptr[vertices[i]]
            if len(names) < degree:
                names = np.empty(2 * degree, np.int64)
            for j in range(degree):
                names[j] = original_id[indices[start + j]]
            taken, vertex = pick(names[:degree], size, unique, fold(hashed, original[i]), positions)
            if taken < 0:
                return taken, vertex, i
            counts[i] = taken
            for j in range(taken):
                out[starts[i] + j] = indices[start + positions[j]]
        return 0, 0, 0

    return draw_rows


def _transits_kernel(transit: Callable) -> Callable:
    draws = compile.careful(transit)

    @compile.fresh
    def mark(step, original, degree, mask):
        for i in range(len(mask)):
            mask[i] = draws(step, original[i], degree[i])

    return mark
