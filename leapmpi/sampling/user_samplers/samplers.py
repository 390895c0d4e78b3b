"""Samplers made from a user's class: draws per transit, or per step for all its transits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.errors import ConfigError, Interrupted
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.sampling.user_samplers.api import OwnSampler
from leapmpi.sampling.user_samplers.compile import (
    NO_NEIGHBOUR,
    REPEATS,
    compile_checked,
    compile_uncached,
    picker,
    refused,
    sizes_of,
)
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey, fold, key_hash

if TYPE_CHECKING:
    from leapmpi.config.sections import SamplingConfig

_CHECKED_VERTICES = 64
"""Vertices that draw twice before training, to check for equal draws."""


class _CustomSampler(HopSampler):
    """Base of both kinds: the compiled functions of the user's class, and errors in them."""

    def __init__(self, setup: Setup, custom: type[OwnSampler], named: str) -> None:
        super().__init__(setup)
        self.named, self._custom = named, custom
        self.unique = bool(custom.unique)
        self.fanouts = sizes_of(custom, setup.fanouts, named)
        self._pick = picker(custom)  # type: ignore[arg-type]  # mypy asks the instances for __hash__, not the class
        self._transits = _transits_kernel(custom.transit) if custom.transit else None

    def transits(self, hop: int, original: np.ndarray, degree: np.ndarray) -> np.ndarray:
        """Return bool[n]: which vertices draw at `hop`."""
        mask = np.ones(len(original), bool)
        if mark := self._transits:
            self.run_user_code(lambda: mark(hop, original, degree, mask), "transit")
        return mask

    def run_user_code(self, code: Callable[[], Any], function: str = "next") -> Any:
        """Return the result of `code`, which calls `function` of the class.

        Raises ConfigError for any exception in it but that of a signal.
        """
        try:
            return code()
        except Interrupted:
            raise
        except Exception as error:
            raise refused(self.named, error, self._custom, function) from error

    def check_outcome(self, outcome: int, vertex: int, size: int, of: str) -> None:
        """Raise ConfigError if `pick` returned NO_NEIGHBOUR or REPEATS."""
        if outcome == NO_NEIGHBOUR:
            raise ConfigError(f"--sampler {self.named}: next returned {vertex}, which is not an in-neighbour of {of}")
        if outcome == REPEATS:
            raise ConfigError(
                f"--sampler {self.named}: next keeps returning {vertex}, which is drawn already; {size} distinct "
                f"in-neighbours of {of} are required; use its word, or set unique = False"
            )


class IndividualSampler(_CustomSampler):
    """Local sampler: every transit draws from its in-neighbours."""

    draws_from_copies = True

    def __init__(self, setup: Setup, custom: type[OwnSampler], named: str) -> None:
        super().__init__(setup, custom, named)
        self._draw_rows = _rows_kernel(self._pick)

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        topology = self.topology
        graph = topology.indptr, topology.indices, topology.original_id
        hashed = np.uint64(fold(key_hash(key), hop))

        # Reserve space for the most draws of each vertex.
        size = self.fanouts[hop]
        size = int(degree.max(initial=0)) if size == ALL else size
        room = np.minimum(degree, size) if self.unique else np.where(degree > 0, size, 0)
        room[~self.transits(hop, original, degree)] = 0
        starts = indptr_of(room)

        # Threads collect errors; report that of the first destination, whatever the number of threads.
        counts, out = np.zeros(len(vertices), np.int64), np.empty(starts[-1], np.int64)
        troubles = []

        def work(first: int, end: int) -> None:
            arrays = vertices, original, *graph, starts, counts, out
            outcome, vertex, i = self._draw_rows(first, end, hashed, size, self.unique, *arrays)
            if outcome < 0:
                troubles.append((outcome, vertex, i))

        self.run_user_code(lambda: self.share_work(degree, work))
        if troubles:
            outcome, vertex, i = min(troubles, key=lambda each: each[2])
            self.check_outcome(outcome, vertex, size, f"vertex {original[i]}")

        # Remove unused space.
        if (counts == room).all():
            return Drawn(starts, out)
        kept = np.arange(len(out)) - np.repeat(starts[:-1], room) < np.repeat(counts, room)
        return Drawn(indptr_of(counts), out[kept])


class CollectiveSampler(_CustomSampler, FrontierSampler):
    """Frontier-global sampler: a step draws once for all its transits; `table` marks the draws."""

    weighted = False

    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        topology, table = self.topology, np.zeros(self.topology.vertices)

        # Order the union of in-neighbours by original id, which no partition changes.
        original, degree = topology.original_id[vertices], topology.degree(vertices)
        transits = vertices[self.transits(hop, original, degree)]
        rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in transits]
        found = np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int64)
        found = found[np.argsort(topology.original_id[found])]
        names = topology.original_id[found]

        size = self.fanouts[hop]
        size = len(found) if size == ALL else size
        positions = np.empty(max(size, 1), np.int64)
        hashed = np.uint64(fold(key_hash(key), hop))
        outcome, vertex = self.run_user_code(lambda: self._pick(names, size, self.unique, hashed, positions))
        self.check_outcome(outcome, vertex, size, "the step's transits")
        table[found[positions[:outcome]]] = 1
        return table

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Return the drawn in-neighbours of each transit."""
        drawn = super().draw(key, hop, vertices, original, degree)
        mask = self.transits(hop, original, degree)
        if mask.all():
            return drawn
        counts = np.diff(drawn.indptr)
        return Drawn(indptr_of(counts * mask), drawn.neighbours[np.repeat(mask, counts)])


def custom_sampler(setup: Setup, custom: type[OwnSampler], config: SamplingConfig) -> Sampler:
    """Return the sampler declared by a user's class. Raises ConfigError for an unusable class."""
    named = config.sampler
    if config.options:
        raise ConfigError(f"sampling.options: sampler {named} has none")
    if custom.collective and not custom.unique:
        raise ConfigError(f"--sampler {named}: collective transits draw distinct vertices; keep unique = True")
    kind = CollectiveSampler if custom.collective else IndividualSampler
    sampler = kind(setup, custom, named)
    _check_same_again(sampler)
    return sampler


def _check_same_again(sampler: IndividualSampler | CollectiveSampler) -> None:
    """Raise ConfigError if vertices draw differently a second time, in another order."""
    degree = np.diff(sampler.topology.indptr)
    vertices = np.argsort(-degree, kind="stable")[:_CHECKED_VERTICES]
    key, original = DrawKey(PRESAMPLE, 0, 0, 0), sampler.topology.original_id
    for hop in range(len(sampler.fanouts)):
        # Draw in two orders, and compare vertex by vertex.
        drawn = []
        for order in (vertices, vertices[::-1].copy()):
            if isinstance(sampler, CollectiveSampler):
                drawn.append([np.flatnonzero(sampler.table(key, hop, order))])
            else:
                found = sampler.draw(key, hop, order, original[order], degree[order])
                drawn.append(np.split(found.neighbours, found.indptr[1:-1]))
        second = drawn[1][::-1]
        if any(a.tolist() != b.tolist() for a, b in zip(drawn[0], second, strict=True)):
            raise ConfigError(
                f"--sampler {sampler.named}: a second call draws other vertices; all randomness must come from word"
            )


@functools.cache
def _rows_kernel(pick: Callable) -> Callable:
    """Return a compiled function that draws for a range of destinations by `pick`."""

    @compile_uncached
    def draw_rows(
        first, end, hashed, size, unique, vertices, original, indptr, indices, original_id, starts, counts, out
    ):
        """Draw for destinations first..end-1; return (0, 0, 0), or pick's outcome, the vertex and the destination."""
        names, positions = np.empty(0, np.int64), np.empty(size, np.int64)
        for i in range(first, end):
            if starts[i] == starts[i + 1]:
                continue
            start, degree = indptr[vertices[i]], indptr[vertices[i] + 1] - indptr[vertices[i]]
            if len(names) < degree:
                names = np.empty(2 * degree, np.int64)
            for j in range(degree):
                names[j] = original_id[indices[start + j]]

            # Positions in the list of in-neighbours; then the neighbours there.
            taken, vertex = pick(names[:degree], size, unique, fold(hashed, original[i]), positions)
            if taken < 0:
                return taken, vertex, i
            counts[i] = taken
            for j in range(taken):
                out[starts[i] + j] = indices[start + positions[j]]
        return 0, 0, 0

    return draw_rows


def _transits_kernel(transit: Callable) -> Callable:
    """Return a compiled function that marks the vertices that draw at a step, by the user's `transit`."""
    draws = compile_checked(transit)

    @compile_uncached
    def mark(step, original, degree, mask):
        for i in range(len(mask)):
            mask[i] = draws(step, original[i], degree[i])

    return mark
