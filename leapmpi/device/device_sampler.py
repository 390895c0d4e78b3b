"""Samplers that draw on a device, bit-identical to a sampler of the CPU, as Blocks in device memory.

The CPU's sampler serves draws by vertex (`neighbours`, `hop`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceFrontier, DeviceTopology, numbering_kernels, placed
from leapmpi.device.draw_form import DrawForm
from leapmpi.device.lists import DeviceDrawn, sums_in_order
from leapmpi.device.local_forms import (
    Labor0Form,
    NodeWiseForm,
    RandomWalkForm,
    TemporalForm,
    WeightedForm,
    WithReplacementForm,
)
from leapmpi.device.relation_draws import DeviceRelations
from leapmpi.device.table_forms import CountedSubgraphForm, FastGCNForm, LaborIForm, LadiesForm, SubgraphForm
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import BlockTensors, Edges, EdgeWeights
from leapmpi.sampling.block import Block, LateBlock
from leapmpi.sampling.edge_lookup import EdgeDataSampler
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.inclusion import CountedInclusion
from leapmpi.sampling.left_out import LeftOut
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Sampler, WrappingSampler
from leapmpi.sampling.samplers.cluster_gcn import ClusterGCN
from leapmpi.sampling.samplers.fast_gcn import FastGCN
from leapmpi.sampling.samplers.graph_saint import GraphSaint
from leapmpi.sampling.samplers.labor_0 import Labor0
from leapmpi.sampling.samplers.labor_i import LaborI
from leapmpi.sampling.samplers.ladies import Ladies
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.samplers.temporal import Temporal
from leapmpi.sampling.samplers.weighted import Weighted
from leapmpi.sampling.samplers.with_replacement import WithReplacement
from leapmpi.system.counter_rng import DrawKey


class DeviceBlock(LateBlock):
    """Block with `src` on the host, and the other arrays on the device, in `tensors`.

    The host copies an array when it first reads it. A copy with other arrays (dataclasses.replace) is the host's alone.
    """

    tensors: BlockTensors

    def __init__(self, *arrays: Any, **fields: Any) -> None:
        super().__init__(*arrays, **fields | {"tensors": None})

    @classmethod
    def of(cls, src: np.ndarray, tensors: BlockTensors) -> DeviceBlock:
        """Return the block of `tensors` with the sources `src` int64[n_src]."""
        edges, weights = tensors.edges, tensors.weights
        there = {
            "indptr": edges.indptr,
            "src_original": tensors.known_original,
            "src_degree": tensors.known_degree,
            "weight": tensors.weight,
            "edge_numbers": tensors.edge_numbers,
        }
        if weights is not None:
            there |= {"edge_weight": weights.edges, "drawn_weight": weights.drawn, "src_weight_sum": weights.src_sum}
        late = {name: partial(_on_host, each) for name, each in there.items() if each is not None}
        late["indices"] = partial(_narrow, edges.indices)
        if tensors.relation is not None:
            late["relation"] = partial(_unsigned, tensors.relation)
        return cls.made_of(late, hop=tensors.hop, n_dst=tensors.n_dst, src=src, tensors=tensors)

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        copied = vars(self).get("indices")
        return len(self.tensors.edges.indices if copied is None else copied)


def _on_host(array: Tensor) -> np.ndarray:
    return array.cpu().numpy()


def _narrow(indices: Tensor) -> np.ndarray:
    """Copy indices, 64 bits wide on the device, to 32 bits on the host."""
    return _on_host(indices.int())


def _unsigned(relation: Tensor) -> np.ndarray:
    """Copy relations, int32 on the device where a byte is too narrow, to the host."""
    found = _on_host(relation)
    return found if found.itemsize == 1 else found.astype(np.uint16)


class DeviceLeftOut:
    """Copies of `left_out` on the device, and the destinations that draw from them.

    The copies follow the lists of the topology, so that a hop is drawn at once, whichever destinations are affected.
    """

    def __init__(self, left_out: LeftOut, topology: DeviceTopology) -> None:
        self.of, self._whole = left_out, topology
        arrays = left_out.vertices, left_out.topology.indptr, left_out.scale, left_out.numbers
        self._vertices, indptr, self._scale, kept = (placed(array, topology.device) for array in arrays)
        self._start, self._degree = indptr[:-1] + len(topology.indices), indptr.diff()
        self.topology = topology.with_copies(kept)

    def lists(self, to: Destinations) -> tuple[Destinations, Tensor | None]:
        """Return `to` with the lists to draw from, and float64[n], old over new length; None without left-out edges."""
        if not len(self._vertices):
            return to, None
        number = torch.searchsorted(self._vertices, to.vertices).clamp(max=len(self._vertices) - 1)
        lost = self._vertices[number] == to.vertices
        start = torch.where(lost, self._start[number], to.start)
        degree = torch.where(lost, self._degree[number], to.degree)
        return to._replace(start=start, degree=degree), torch.where(lost, self._scale[number], 1.0)


_FORMS: dict[type, type[DrawForm]] = {
    NodeWiseSampler: NodeWiseForm,
    WithReplacement: WithReplacementForm,
    Labor0: Labor0Form,
    Weighted: WeightedForm,
    RandomWalk: RandomWalkForm,
    Temporal: TemporalForm,
    Ladies: LadiesForm,
    LaborI: LaborIForm,
    FastGCN: FastGCNForm,
    ClusterGCN: SubgraphForm,
    GraphSaint: CountedSubgraphForm,
}
"""Form on a device by type of sampler."""


def form_of(sampler: Sampler) -> type[DrawForm] | None:
    """Return the form of `sampler` on a device; None: the host draws."""
    drawing = sampler.drawing
    if sampler.sharded or (isinstance(drawing, GraphSaint) and not isinstance(drawing.inclusion, CountedInclusion)):
        return None
    if isinstance(drawing, Temporal) and drawing.by_root:
        return None
    form = _FORMS.get(type(drawing))
    # Edge data exist only for edges of the topology.
    return None if form is None or (sampler is not drawing and not form.names_edges) else form


class _Hop(NamedTuple):
    """Draws of a hop: numbers of destinations and sources, positions of sources, and the edges."""

    hop: int
    n_dst: int
    n_src: int
    indices: Tensor
    drawn: DeviceDrawn


class DeviceSampler(WrappingSampler):
    """Sampler with the draws of `inner`, made on the device of `topology`.

    If the blocks of `inner` carry edge data (EdgeDataSampler), so do these.
    """

    def __init__(self, inner: Sampler, topology: DeviceTopology) -> None:
        super().__init__(inner)
        form, drawing = form_of(inner), inner.drawing
        assert form is not None, "the caller has asked"
        assert isinstance(drawing, HopSampler), "all samplers that have a form go hop by hop"
        self._drawing, self._form, self._topology = drawing, form(drawing, topology), topology
        self._reached = DeviceFrontier(topology, numbering_kernels(topology.device))
        self._without: DeviceLeftOut | None = None
        self._carries = inner is not drawing
        self._relations = None
        if drawing.relations is not None and drawing.topology.relation is not None:
            self._relations = DeviceRelations(drawing.relations, drawing.topology.relation, topology.device)
        carried = inner.topology.edge_weight, inner.topology.weight_sum
        self._edge_weight, self._weight_sum = (
            None if each is None or not self._carries else placed(each, topology.device) for each in carried
        )

    @staticmethod
    def needed_bytes(inner: Sampler) -> int:
        """Return the bytes that drawing on a device takes there."""
        form, topology, drawing = form_of(inner), inner.topology, inner.drawing
        assert form is not None, "the caller has asked"
        assert isinstance(drawing, HopSampler), "all samplers that have a form go hop by hop"
        carried = () if inner is drawing else (topology.edge_weight, topology.weight_sum)
        of_edges = sum(each.nbytes for each in carried if each is not None)
        of_edges += 0 if topology.relation is None else DeviceRelations.needed_bytes(topology.relation)
        return DeviceTopology.needed_bytes(topology) + form.needed_bytes(drawing) + of_edges

    def forget(self) -> None:
        """Forget the tables of the last iteration too, on the host and on the device."""
        super().forget()
        self._form.forget()

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        return self.inner.hop(key, hop, destinations, batch)

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        roots = self.checked_roots(roots)
        if self._relations is not None and self._drawing.left_out(key) is not None:
            # Lists of relations without some edges are made on the host alone, which draws the same.
            return self.inner.sample(key, roots, batch)
        self._form.begin(key, roots if batch is None else batch)
        without, reached, hops = self._left_out(key), self._reached, []
        with reached.cleared():
            reached.begin(roots)
            for hop in range(len(self.fanouts)):
                n_dst = reached.count
                drawn = self._drawn(key, hop, reached.reached, without)
                indices = reached.add(drawn.sources)
                hops.append(_Hop(hop, n_dst, reached.count, indices, drawn))
            found = reached.reached
        src = found.vertices.cpu().numpy()
        return [self._block(each, src, found) for each in hops]

    def _left_out(self, key: DrawKey) -> DeviceLeftOut | None:
        """Return the left-out edges of draws with `key`, on the device; kept for all samples of an iteration."""
        left_out = self._drawing.left_out(key)
        if left_out is None:
            self._without = None
        elif self._without is None or self._without.of is not left_out:
            self._without = DeviceLeftOut(left_out, self._topology)
        return self._without

    def _drawn(self, key: DrawKey, hop: int, to: Destinations, without: DeviceLeftOut | None) -> DeviceDrawn:
        if self._relations is not None:
            return self._relations.draw(self._form, key, hop, self._topology, to)
        if without is None:
            return self._form.draw(key, hop, self._topology, to)
        lists, longer = without.lists(to)
        drawn = self._form.draw(key, hop, without.topology, lists)
        if drawn.weight is None or longer is None:
            return drawn
        # Scale up: weights estimate sums over the full in-degree.
        of_edges = longer.repeat_interleave(drawn.indptr.diff())
        return drawn._replace(weight=(drawn.weight * of_edges).float())

    def _block(self, found: _Hop, src: np.ndarray, reached: Destinations) -> Block:
        """Return the block of a hop. The host copies its arrays, except `src`, when it reads them."""
        hop, n_dst, n_src, indices, drawn = found
        numbers = indices if on_host(indices.device) else indices.long()
        names = reached.original[:n_src], reached.degree[:n_src]
        tensors = BlockTensors(
            *(hop, n_dst, Edges(drawn.indptr, numbers, n_src), *names, drawn.weight),
            weights=self._weights(drawn, reached.vertices[:n_src], n_dst),
            edge_numbers=drawn.numbers if self._carries else None,
            relation=drawn.relation,
        )
        return DeviceBlock.of(src[:n_src], tensors)

    def _weights(self, drawn: DeviceDrawn, sources: Tensor, n_dst: int) -> EdgeWeights | None:
        """Return the dataset's edge weights of a block with these `sources` (int64[n_src]), if used."""
        if self._edge_weight is None or self._weight_sum is None:
            return None
        weight, sums = self._edge_weight[drawn.numbers], self._weight_sum[sources]
        return EdgeWeights(weight, sums_in_order(drawn.indptr, weight), sums[:n_dst], sums)


def on_device(sampler: Sampler, device: torch.device, room: float) -> Sampler:
    """Return `sampler`, or its equivalent on `device` if it has a form there and fits `room` bytes."""
    if on_host(device) or not isinstance(sampler, HopSampler | EdgeDataSampler) or form_of(sampler) is None:
        return sampler
    if DeviceSampler.needed_bytes(sampler) > room:
        return sampler
    return DeviceSampler(sampler, DeviceTopology(sampler.topology, device))
