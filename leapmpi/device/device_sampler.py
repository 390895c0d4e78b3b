"""Samplers that draw on a device: the draws of a sampler of the CPU, to the bit, as Blocks that lie on both sides.

The CPU's sampler stays at hand: it draws what is asked vertex by vertex (`neighbours`, `hop`), and for all keys from
which edges were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leapmpi.device import draws
from leapmpi.device.device_frontier import DeviceFrontier, DeviceTopology
from leapmpi.device.hashing import signed
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.sampling.block import Block
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.sampling.samplers.labor_0 import Labor0
from leapmpi.sampling.samplers.with_replacement import WithReplacement
from leapmpi.sampling.source_numbers import law_of
from leapmpi.system.counter_rng import DrawKey, fold, key_hash


class Destinations(NamedTuple):
    """Those of a hop, int64[n] each: vertices, original ids, in-degrees."""

    vertices: Tensor
    original: Tensor
    degree: Tensor


DeviceDraw = Callable[[DrawKey, int, Destinations], draws.Positions]


def device_draw(sampler: Sampler, topology: DeviceTopology) -> DeviceDraw | None:
    """How destinations of a hop draw on the device what `sampler` draws; None for one without such a form."""
    if type(sampler) is Labor0:
        return partial(_labor_0, sampler, topology)
    kernels = {NodeWiseSampler: draws.node_wise, WithReplacement: draws.with_replacement}
    kernel = kernels.get(type(sampler))
    if kernel is None or not isinstance(sampler, HopSampler):
        return None
    fanouts = sampler.fanouts

    def draw(key: DrawKey, hop: int, to: Destinations) -> draws.Positions:
        return kernel(signed(fold(key_hash(key), hop)), to.original, to.degree, fanouts[hop])

    return draw


def _labor_0(sampler: Labor0, topology: DeviceTopology, key: DrawKey, hop: int, to: Destinations) -> draws.Positions:
    options, fanout = sampler.options, sampler.fanouts[hop]
    law = law_of(key, hop, options.same_in_layers, options.kept_batches)
    fixed = options.fixed_size or fanout == ALL
    kernel = draws.smallest_numbers if fixed else draws.numbers_below
    return kernel(law, topology, to.vertices, to.degree, fanout)


class DeviceSampler(HopSampler):
    """Draws on the device of `topology` what `inner`, which has a form there, draws on the CPU."""

    def __init__(self, inner: HopSampler, topology: DeviceTopology) -> None:
        super().__init__(Setup(inner.topology, inner.fanouts, np.empty(0, np.int64), 0, inner.threads))
        self.inner, self.on_device = inner, topology
        self.family, self.weighted, self.leaves_edges_out = inner.family, inner.weighted, inner.leaves_edges_out
        found = device_draw(inner, topology)
        assert found is not None, "the sampler has a form on the device"
        self._positions = found
        self._reached = DeviceFrontier(topology)

    @property
    def drawing(self) -> Sampler:
        return self.inner

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        return self.inner.draw(key, hop, vertices, original, degree)

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        super().leave_out(key, edges)
        self.inner.leave_out(key, edges)

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        if self._left_out is not None:
            return self.inner.sample(key, roots, batch)
        reached, hops = self._reached, []
        try:
            reached.add(torch.from_numpy(self.checked_roots(roots)).to(self.on_device.device))
            if reached.count < len(roots):
                raise ValueError("roots must be distinct")
            for hop in range(len(self.fanouts)):
                n_dst = reached.count
                to = Destinations(reached.src, reached.original, reached.degree)
                indptr, positions = self._positions(key, hop, to)
                start = self.on_device.indptr[to.vertices].repeat_interleave(indptr.diff())
                indices = reached.add(self.on_device.indices[start + positions])
                hops.append((hop, n_dst, reached.count, indptr, indices))
            src, original, degree = reached.src, reached.original, reached.degree
        finally:
            reached.clear()
        host = [each.cpu().numpy() for each in (src, original, degree)]
        return [_block(each, host, (original, degree)) for each in hops]


def _block(found: tuple[int, int, int, Tensor, Tensor], host: list[np.ndarray], names: tuple[Tensor, Tensor]) -> Block:
    """The block of a hop: its arrays on the host, and the same on the device."""
    hop, n_dst, n_src, indptr, indices = found
    numbers = indices if on_host(indices.device) else indices.long()
    original, degree = (each[:n_src] for each in names)
    tensors = BlockTensors(hop, n_dst, Edges(indptr, numbers, n_src), original, degree, None)
    src, of_original, of_degree = (each[:n_src] for each in host)
    arrays = indptr.cpu().numpy(), indices.cpu().numpy(), of_original, of_degree
    return Block(hop, n_dst, src, *arrays, tensors=tensors)


def on_device(sampler: Sampler, device: torch.device, room: float) -> Sampler:
    """`sampler`, or one that draws the same on `device`, where it has a form there and its topology fits `room`."""
    if on_host(device) or sampler.sharded or not isinstance(sampler, HopSampler):
        return sampler
    if sampler.topology.edge_weight is not None or DeviceTopology.needed_bytes(sampler.topology) > room:
        return sampler
    if type(sampler) not in (NodeWiseSampler, WithReplacement, Labor0):
        return sampler
    return DeviceSampler(sampler, DeviceTopology(sampler.topology, device))
