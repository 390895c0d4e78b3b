"""Layer-wise samplers: one table per hop over all vertices, with the weight of each drawn vertex.

A destination draws its in-neighbours in the hop's table. Other vertices of the table have no effect.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Protocol

import numpy as np

from leapmpi.errors import ConfigError, counted
from leapmpi.sampling.frontier import Frontier
from leapmpi.sampling.hop_sampler import HopSampler, normalise_rows
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, Drawn, Setup
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled


@compiled
def _pick_in_table(first, end, vertices, table, topology_indptr, topology_indices, indptr, out, weight):
    """Take the in-neighbours in the table (float64[n], 0: not drawn); see HopSampler.count_and_write."""
    counting = len(out) == 0
    for i in range(first, end):
        start, stop = topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]
        if counting:
            for e in range(start, stop):
                indptr[i + 1] += table[topology_indices[e]] > 0
            continue
        place = indptr[i]
        for e in range(start, stop):
            found = table[topology_indices[e]]
            if found > 0:
                out[place], weight[place] = topology_indices[e], found
                place += 1


class TableSampler(HopSampler):
    """Base of samplers with one table per hop: float64[n] weights, 0 for vertices not drawn."""

    weighted = True

    def __init__(self, setup: Setup, row_normalise: bool = False) -> None:
        super().__init__(setup)
        self.row_normalise = row_normalise
        self._tables = [np.empty(0)] * len(self.fanouts)
        self._made_for: tuple[DrawKey, bytes] | None = None

    def occasion(self, key: DrawKey, batch: np.ndarray) -> tuple[DrawKey, bytes]:
        """Return the identity of tables: iterations with equal ones have equal tables."""
        return key, batch.tobytes() if self.family == FRONTIER_GLOBAL else b""

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        """Write the tables of the iteration of `key` to `_tables`. Pure otherwise."""

    def forget(self) -> None:
        self._made_for = None

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Make the tables of the iteration, unless they exist already."""
        made_for = self.occasion(key, batch)
        if self._made_for != made_for:
            self._made_for = None
            self.make_tables(key, batch)
            self._made_for = made_for

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        graph = self.topology.indptr, self.topology.indices
        drawn = self.count_and_write(_pick_in_table, degree, vertices, self._tables[hop], *graph)
        if not self.weighted:
            return Drawn(drawn.indptr, drawn.neighbours)
        if self.row_normalise:
            normalise_rows(drawn.indptr, drawn.weight, degree)
        return drawn


class SharedFrontier(Protocol):
    """Exchange of a frontier between ranks that hold only their own lists (sharded/frontier_ranks.py)."""

    @property
    def vertices(self) -> int:
        """Number of vertices of all ranks."""

    def own(self, ids: np.ndarray) -> np.ndarray:
        """Return the own numbers, int64 ascending, of those of `ids` (int64[k]) that this rank owns. Local."""

    def gathered(self, numbers: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the `numbers` (int64[k]) of all ranks and their `columns`, eight bytes each. Collective."""

    def reached(self, frontier: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Return own numbers of `frontier` and of the vertices that all ranks have `drawn`. Collective."""


class FrontierSampler(TableSampler):
    """Base of frontier-global samplers: every rank draws the tables for the frontier of the whole batch.

    With a sharded topology each rank holds the frontier's vertices of its own, and `begin` is collective.
    """

    family = FRONTIER_GLOBAL

    def __init__(self, setup: Setup, row_normalise: bool = False) -> None:
        super().__init__(setup, row_normalise)
        self.ranks: SharedFrontier | None = None

    @cached_property
    def _whole(self) -> Frontier:
        return Frontier(self.topology, self._workers)

    def share(self, ranks: SharedFrontier) -> None:
        """Draw together with `ranks` from now on. Before the first batch all tables hold every source. Local."""
        self.ranks = ranks
        self._tables = [np.ones(self.topology.vertices) for _ in self.fanouts]

    @abstractmethod
    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        """Return the table of `hop` for all its destinations, `vertices` int64[n] in any order. Pure.

        With `ranks`, `vertices` are those of this rank, and the call is collective.
        """

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        if self.ranks is not None:
            self._make_shared_tables(key, batch, self.ranks)
            return

        # Each hop's table needs the frontier reached by the previous hops of the whole batch.
        try:
            self._whole.add(batch)
            for hop in range(len(self.fanouts)):
                frontier = self._whole.first(self._whole.count)
                self._tables[hop] = self.table(key, hop, frontier[0])
                if hop + 1 < len(self.fanouts):
                    self._whole.add(self.draw(key, hop, *frontier).neighbours)
        finally:
            self._whole.clear()

    def _make_shared_tables(self, key: DrawKey, batch: np.ndarray, ranks: SharedFrontier) -> None:
        """Make the tables for own vertices, and send their draws to the owners. Collective."""
        frontier, topology = ranks.own(batch), self.topology
        for hop in range(len(self.fanouts)):
            self._tables[hop] = self.table(key, hop, frontier)
            if hop + 1 < len(self.fanouts):
                drawn = self.draw(key, hop, frontier, topology.original_id[frontier], topology.degree(frontier))
                frontier = ranks.reached(frontier, drawn.neighbours)


def layer_sizes(given: tuple[int, ...], layers: int) -> tuple[int, ...]:
    """Return one size for each layer, from the root outward; a single size applies to all layers.

    Raises ConfigError for another number of sizes.
    """
    if len(given) not in (1, layers) or min(given) < 1:
        raise ConfigError(
            f"sampling.options: layer-size {','.join(map(str, given))} does not fit {counted(layers, 'layer')}; "
            "give one number of vertices, or one per layer"
        )
    return given * layers if len(given) == 1 else given
