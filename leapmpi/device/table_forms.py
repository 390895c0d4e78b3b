"""Forms of samplers with tables per iteration, made on the device; the host draws subgraphs."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from leapmpi.device import table_draws
from leapmpi.device.device_frontier import (
    Destinations,
    DeviceFrontier,
    DeviceTopology,
    first_destinations,
    numbering_kernels,
    placed,
)
from leapmpi.device.draw_form import DrawForm, S, hashed
from leapmpi.device.lists import DeviceDrawn, normalised, same_draws
from leapmpi.device.table_draws import Counts, Norms
from leapmpi.nn.kernels.triton_choice import serves
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.inclusion import CountedInclusion
from leapmpi.sampling.layer_tables import TableSampler
from leapmpi.sampling.samplers.fast_gcn import FastGCN
from leapmpi.sampling.samplers.graph_saint import GraphSaint
from leapmpi.sampling.samplers.labor_i import LaborI
from leapmpi.sampling.samplers.ladies import Ladies
from leapmpi.sampling.source_numbers import law_of
from leapmpi.sampling.subgraph_sampler import SubgraphSampler
from leapmpi.system.counter_rng import DrawKey


class TableForm(DrawForm[S]):
    """Form with one table per hop, float64[n]: weights of sources, 0 for those not drawn."""

    def __init__(self, sampler: S, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._tables: list[Tensor] = []
        self._made_for: object = None
        self._draws: ModuleType = table_draws
        self._normalised = normalised
        if serves("draws from tables", topology.device, partial(_tried, topology)):
            from leapmpi.device import table_draws_triton

            self._draws, self._normalised = table_draws_triton, table_draws_triton.normalised

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        return 8 * (len(sampler.fanouts) + 3) * sampler.topology.vertices

    @abstractmethod
    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        """Write the tables of the iteration of `key` to `_tables`."""

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Make the tables of the iteration, unless they exist already."""
        assert isinstance(self.sampler, TableSampler)
        made_for = self.sampler.occasion(key, batch)
        if self._made_for != made_for:
            self._made_for, self._tables = None, []
            self.make_tables(key, batch)
            self._made_for = made_for

    def forget(self) -> None:
        self._made_for = None

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        assert isinstance(self.sampler, TableSampler)
        drawn = self._draws.from_table(topology, self._tables[hop], to, self.sampler.weighted)
        return self.row_normalised(drawn, to) if self.sampler.row_normalise else drawn

    def row_normalised(self, drawn: DeviceDrawn, to: Destinations) -> DeviceDrawn:
        """Scale the weights of `drawn` so that they add up to the in-degree of each of `to`."""
        assert drawn.weight is not None, "only weights are normalised"
        return drawn._replace(weight=self._normalised(drawn.indptr, drawn.weight, to.degree))


_TRIED = 100
"""Number of lists that kernels are tried on."""


def _tried(topology: DeviceTopology) -> bool:
    """Return whether Triton and torch draw the same from tables, and make the same ones, for the first vertices."""
    from leapmpi.device import table_draws_triton

    to, law, found = first_destinations(topology, _TRIED), law_of(DrawKey(0, 0, 0, 0), 0, False, 3), []
    order = torch.arange(len(topology.original_id), device=topology.device)
    norms = Norms((order + 1).double(), order, (order + 1).cumsum(0), len(order) * (len(order) + 1) // 2)
    for draws in (table_draws, table_draws_triton):
        table, importance = draws.by_frontier(7, topology, to, 50), draws.importance_of(topology, to, 5, 2)
        by_table, by_chance = (
            draws.from_table(topology, table, to),
            draws.by_importance(law, topology, importance, to, 5),
        )
        assert by_chance.weight is not None, "draws from tables have weights"
        scale = normalised if draws is table_draws else table_draws_triton.normalised
        weight = scale(by_chance.indptr, by_chance.weight, to.degree)
        found.append((table, importance, draws.by_norm(-7, norms, 50), by_table, by_chance._replace(weight=weight)))
    return all(map(torch.equal, found[0][:3], found[1][:3])) and all(map(same_draws, found[0][3:], found[1][3:]))


class FastGCNForm(TableForm[FastGCN]):
    """Form with tables drawn by column norms of the whole graph, whatever the batch."""

    def __init__(self, sampler: FastGCN, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        of = sampler.importance
        norms, order, up_to = (placed(each, topology.device) for each in (of.norms, of.order, of.up_to))
        self._norms = Norms(norms.clamp(min=1).double(), order, up_to, of.total)

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        for hop, size in enumerate(self.sampler.sizes):
            self._tables.append(self._draws.by_norm(hashed(key, hop), self._norms, size))


class FrontierForm(TableForm[S]):
    """Form with tables for the frontier of the whole batch, drawn on every rank."""

    def __init__(self, sampler: S, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._whole = DeviceFrontier(topology, numbering_kernels(topology.device))

    @abstractmethod
    def table(self, key: DrawKey, hop: int, to: Destinations) -> Tensor:
        """Return the table of `hop` for all its destinations."""

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        with self._whole.cleared():
            self._whole.add(placed(batch, self.topology.device))
            for hop in range(len(self.sampler.fanouts)):
                to = self._whole.reached
                self._tables.append(self.table(key, hop, to))
                if hop + 1 < len(self.sampler.fanouts):
                    self._whole.add(self.draw(key, hop, self.topology, to).sources)


class LadiesForm(FrontierForm[Ladies]):
    """Form with tables drawn by column norms of the lists of the whole batch's destinations."""

    def table(self, key: DrawKey, hop: int, to: Destinations) -> Tensor:
        return self._draws.by_frontier(hashed(key, hop), self.topology, to, self.sampler.sizes[hop])


class LaborIForm(FrontierForm[LaborI]):
    """Form with the importance of all sources as table."""

    def table(self, key: DrawKey, hop: int, to: Destinations) -> Tensor:
        fanout = self.sampler.fanouts[hop]
        return self._draws.importance_of(self.topology, to, fanout, 0 if fanout == ALL else self.sampler.options.rounds)

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        options, fanout = self.sampler.options, self.sampler.fanouts[hop]
        law = law_of(key, hop, options.same_in_layers, options.kept_batches)
        drawn = self._draws.by_importance(law, topology, self._tables[hop], to, fanout)
        return self.row_normalised(drawn, to) if options.row_normalise else drawn


class SubgraphForm(TableForm[SubgraphSampler]):
    """Form for subgraphs: the host draws the subgraph for the batch; the device draws from it."""

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        members = torch.from_numpy(np.flatnonzero(self.sampler.members(key))).to(self.topology.device)
        table = torch.zeros(len(self.topology.original_id), dtype=torch.float64, device=self.topology.device)
        table[members] = 1
        self._tables = [table] * len(self.sampler.fanouts)


class CountedSubgraphForm(SubgraphForm):
    """Form with edge weights from counts of subgraphs drawn in advance (inclusion.py)."""

    def __init__(self, sampler: GraphSaint, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        counted = sampler.inclusion
        assert isinstance(counted, CountedInclusion), "chances that are computed are the host's"
        arrays = counted.vertex_count, counted.edge_count
        self._counts = Counts(*(placed(each, topology.device) for each in arrays))

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        return TableForm.needed_bytes(sampler) + 4 * (sampler.topology.vertices + sampler.topology.edges)

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        return self._draws.from_table(topology, self._tables[hop], to, counts=self._counts)
