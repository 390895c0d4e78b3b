"""Forms of samplers with tables per iteration, made on the device; the host draws subgraphs."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceFrontier, DeviceTopology, placed
from leapmpi.device.draw_form import DrawForm, S, hashed
from leapmpi.device.labor_draws import by_importance, importance_of
from leapmpi.device.lists import DeviceDrawn, Lists, normalised
from leapmpi.device.table_draws import by_frontier, by_norm, from_table, weight_in_table
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
        drawn = from_table(topology, self._tables[hop], to, weight_in_table if self.sampler.weighted else None)
        return row_normalised(drawn, to) if self.sampler.row_normalise else drawn


def row_normalised(drawn: DeviceDrawn, to: Destinations) -> DeviceDrawn:
    """Scale the weights of `drawn` so that they add up to the in-degree of each of `to`."""
    assert drawn.weight is not None, "only weights are normalised"
    return drawn._replace(weight=normalised(drawn.indptr, drawn.weight, to.degree))


class FastGCNForm(TableForm[FastGCN]):
    def __init__(self, sampler: FastGCN, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        of = sampler.importance
        self._norms, self._order, self._up_to = (
            placed(each, topology.device) for each in (of.norms, of.order, of.up_to)
        )

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        for hop, size in enumerate(self.sampler.sizes):
            self._tables.append(by_norm(hashed(key, hop), self._norms, self._order, self._up_to, size))


class FrontierForm(TableForm[S]):
    """Form with tables for the frontier of the whole batch, drawn on every rank."""

    def __init__(self, sampler: S, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._whole = DeviceFrontier(topology)

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
    def table(self, key: DrawKey, hop: int, to: Destinations) -> Tensor:
        return by_frontier(hashed(key, hop), self.topology, to, self.sampler.sizes[hop])


class LaborIForm(FrontierForm[LaborI]):
    """Form with the importance of all sources as table."""

    def table(self, key: DrawKey, hop: int, to: Destinations) -> Tensor:
        fanout = self.sampler.fanouts[hop]
        return importance_of(self.topology, to, fanout, 0 if fanout == ALL else self.sampler.options.rounds)

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        options, fanout = self.sampler.options, self.sampler.fanouts[hop]
        law = law_of(key, hop, options.same_in_layers, options.kept_batches)
        drawn = by_importance(law, topology, self._tables[hop], to, fanout)
        return row_normalised(drawn, to) if options.row_normalise else drawn


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
        self._of_vertex, self._of_edge = (placed(each, topology.device) for each in arrays)

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        return TableForm.needed_bytes(sampler) + 4 * (sampler.topology.vertices + sampler.topology.edges)

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        def weight(found: Lists, _: Tensor) -> Tensor:
            counts = self._of_vertex[found.to.vertices[found.row]], self._of_edge[found.numbers]
            of_vertex, of_edge = (each.clamp(min=1).double() for each in counts)
            return of_vertex / of_edge

        return from_table(topology, self._tables[hop], to, weight)
