"""Samplers with one table per hop over all vertices: which were drawn, and with which weight (layer-wise sampling).

A destination draws those of its in-neighbours that are in the hop's table. Other vertices of the table have no effect.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.sampling.frontier import Frontier
from leapmpi.sampling.hop_sampler import HopSampler, normalise_rows
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, Drawn, Setup
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled


@compiled
def _pick_in_table(first, end, vertices, table, topology_indptr, topology_indices, indptr, out, weight):
    """Take the in-neighbours in the table (float64[n], 0: not drawn), as HopSampler.count_and_write asks."""
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
    """Base of samplers with one table per hop. `table` of `draw` is float64[n]: weights, 0 for what was not drawn."""

    weighted = True

    def __init__(self, setup: Setup, row_normalise: bool = False) -> None:
        super().__init__(setup)
        self.row_normalise = row_normalise
        self._tables = [np.empty(0)] * len(self.fanouts)
        self._made_for: tuple[DrawKey, bytes] | None = None

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        """Write the tables of the iteration of `key` to `_tables`. Pure, but for that."""

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Make the tables of the iteration, unless they were made already."""
        made_for = key, batch.tobytes() if self.family == FRONTIER_GLOBAL else b""
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


class FrontierSampler(TableSampler):
    """Base of frontier-global samplers: every rank draws the tables for the frontier of the whole batch."""

    family = FRONTIER_GLOBAL

    def __init__(self, setup: Setup, row_normalise: bool = False) -> None:
        super().__init__(setup, row_normalise)
        self._whole = Frontier(setup.topology, self._workers)

    @abstractmethod
    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        """The table of `hop` for all its destinations over all ranks, `vertices` int64[n] in any order. Pure."""

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        # Draw the whole batch's sample: each hop's table needs the frontier that the hops before it reach.
        try:
            self._whole.add(batch)
            for hop in range(len(self.fanouts)):
                frontier = self._whole.first(self._whole.count)
                self._tables[hop] = self.table(key, hop, frontier[0])
                if hop + 1 < len(self.fanouts):
                    self._whole.add(self.draw(key, hop, *frontier).neighbours)
        finally:
            self._whole.clear()


def layer_sizes(given: tuple[int, ...], layers: int) -> tuple[int, ...]:
    """One size for each layer, from the root outward; a single size is that of all layers.

    Raises ConfigError for another number of sizes.
    """
    if len(given) not in (1, layers) or min(given) < 1:
        raise ConfigError(
            f"sampling.options: layer-size {','.join(map(str, given))} does not fit {layers} layers; "
            "give one number of vertices, or one per layer"
        )
    return given * layers if len(given) == 1 else given
