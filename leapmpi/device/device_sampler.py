"""Samplers that draw on a device: the draws of a sampler of the CPU, to the bit, as Blocks that lie there.

The CPU's sampler stays at hand: it draws what is asked vertex by vertex (`neighbours`, `hop`), and for all keys from
which edges were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leapmpi.device import draws
from leapmpi.device.device_block import DeviceBlock
from leapmpi.device.device_frontier import Destinations, DeviceFrontier, DeviceTopology
from leapmpi.device.hashing import signed
from leapmpi.device.weighted_draws import DeviceDrawn, Walks, by_source_weight, by_walks
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.triton_choice import serves
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.sampling.block import Block
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.sampling.samplers.labor_0 import Labor0
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.samplers.weighted import Weighted
from leapmpi.sampling.samplers.with_replacement import WithReplacement
from leapmpi.sampling.source_numbers import law_of
from leapmpi.system.counter_rng import DrawKey, fold, key_hash

_TRIED = 2000
"""Lists on which Triton's kernel is tried."""

DeviceDraw = Callable[[DrawKey, int, Destinations], DeviceDrawn]


def _at_positions(
    kernel: Callable[[DrawKey, int, Destinations], draws.Positions], topology: DeviceTopology
) -> DeviceDraw:
    """The draw whose neighbours stand where `kernel` says, without weights."""

    def draw(key: DrawKey, hop: int, to: Destinations) -> DeviceDrawn:
        indptr, positions = kernel(key, hop, to)
        return DeviceDrawn(indptr, draws.sources_at(topology, to, indptr, positions))

    return draw


def _by_position(kernel: Callable[..., draws.Positions], sampler: HopSampler, topology: DeviceTopology) -> DeviceDraw:
    def positions(key: DrawKey, hop: int, to: Destinations) -> draws.Positions:
        return kernel(_hashed(key, hop), to, sampler.fanouts[hop])

    return _at_positions(positions, topology)


def _node_wise(sampler: NodeWiseSampler, topology: DeviceTopology) -> DeviceDraw:
    """By Triton's kernel where it serves, else in torch operations."""
    by_torch = _by_position(draws.node_wise, sampler, topology)
    if not serves("draws", topology.device, partial(_tried, topology)):
        return by_torch
    from leapmpi.device import draws_triton

    def draw(key: DrawKey, hop: int, to: Destinations) -> DeviceDrawn:
        fanout = sampler.fanouts[hop]
        if not 0 < fanout <= draws_triton.MOST_DRAWN:
            return by_torch(key, hop, to)
        return DeviceDrawn(*draws_triton.node_wise(_hashed(key, hop), topology, to, fanout))

    return draw


def _tried(topology: DeviceTopology) -> bool:
    """Whether Triton draws of the first lists of `topology` what torch draws."""
    from leapmpi.device import draws_triton

    first = DeviceFrontier(topology)
    first.add(torch.arange(min(_TRIED, len(topology.original_id)), device=topology.device))
    to = first.reached
    for fanout in (1, 5, 10, draws_triton.MOST_DRAWN):
        hashed = signed(fold(key_hash(DrawKey(0, 0, 0, 0)), fanout))
        indptr, sources = draws_triton.node_wise(hashed, topology, to, fanout)
        expected, positions = draws.node_wise(hashed, to, fanout)
        if not torch.equal(indptr, expected):
            return False
        if not torch.equal(sources, draws.sources_at(topology, to, indptr, positions)):
            return False
    return True


def _labor_0(sampler: Labor0, topology: DeviceTopology) -> DeviceDraw:
    options = sampler.options

    def positions(key: DrawKey, hop: int, to: Destinations) -> draws.Positions:
        fanout, law = sampler.fanouts[hop], law_of(key, hop, options.same_in_layers, options.kept_batches)
        fixed = options.fixed_size or fanout == ALL
        kernel = draws.smallest_numbers if fixed else draws.numbers_below
        return kernel(law, topology, to, fanout)

    return _at_positions(positions, topology)


def _weighted(sampler: Weighted, topology: DeviceTopology) -> DeviceDraw:
    assert sampler.source_weight is not None, "edges have no weights"
    weights = torch.from_numpy(sampler.source_weight).to(topology.device)

    def draw(key: DrawKey, hop: int, to: Destinations) -> DeviceDrawn:
        fanout = sampler.fanouts[hop]
        return by_source_weight(_hashed(key, hop), topology, weights, to, fanout, sampler.row_normalise)

    return draw


def _random_walk(sampler: RandomWalk, topology: DeviceTopology) -> DeviceDraw:
    walks = Walks(sampler.options.walks, sampler.options.steps, signed(sampler.stop))

    def draw(key: DrawKey, hop: int, to: Destinations) -> DeviceDrawn:
        return by_walks(_hashed(key, hop), topology, walks, to, sampler.fanouts[hop])

    return draw


def _hashed(key: DrawKey, hop: int) -> int:
    return signed(fold(key_hash(key), hop))


_DRAWS: dict[type, Callable[[Any, DeviceTopology], DeviceDraw]] = {
    NodeWiseSampler: _node_wise,
    WithReplacement: partial(_by_position, draws.with_replacement),
    Labor0: _labor_0,
    Weighted: _weighted,
    RandomWalk: _random_walk,
}
"""How destinations of a hop draw on the device what a sampler draws, by its type."""


class _Hop(NamedTuple):
    """What was drawn at a hop: numbers of destinations and sources, and arrays on the device as in a block."""

    hop: int
    n_dst: int
    n_src: int
    indptr: Tensor
    indices: Tensor
    weight: Tensor | None


class DeviceSampler(HopSampler):
    """Draws on the device of `topology` what `inner`, which has a form there, draws on the CPU."""

    def __init__(self, inner: HopSampler, topology: DeviceTopology) -> None:
        super().__init__(Setup(inner.topology, inner.fanouts, np.empty(0, np.int64), 0, inner.threads))
        self.inner, self.on_device = inner, topology
        self.family, self.weighted, self.leaves_edges_out = inner.family, inner.weighted, inner.leaves_edges_out
        self._draw = _DRAWS[type(inner)](inner, topology)
        self._reached = DeviceFrontier(topology)

    @property
    def drawing(self) -> Sampler:
        return self.inner

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        return self.inner.draw(key, hop, vertices, original, degree)

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        super().leave_out(key, edges)
        self.inner.leave_out(key, edges)

    def sample_unnumbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        return self.sample(key, roots, batch)

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
                drawn = self._draw(key, hop, reached.reached)
                indices = reached.add(drawn.sources)
                hops.append(_Hop(hop, n_dst, reached.count, drawn.indptr, indices, drawn.weight))
            found = reached.reached
        except BaseException:
            reached.forget_all()
            raise
        reached.clear()
        src = found.vertices.cpu().numpy()
        return [_block(each, src, found) for each in hops]


def _block(drawn: _Hop, src: np.ndarray, reached: Destinations) -> Block:
    """The block of a hop, of whose arrays but `src` the host gets copies when it reads them."""
    hop, n_dst, n_src, indptr, indices, weight = drawn
    numbers = indices if on_host(indices.device) else indices.long()
    names = reached.original[:n_src], reached.degree[:n_src]
    return DeviceBlock.of(src[:n_src], BlockTensors(hop, n_dst, Edges(indptr, numbers, n_src), *names, weight))


def on_device(sampler: Sampler, device: torch.device, room: float) -> Sampler:
    """`sampler`, or one that draws the same on `device`, where it has a form there and its topology fits `room`."""
    if on_host(device) or sampler.sharded or not isinstance(sampler, HopSampler):
        return sampler
    if type(sampler) not in _DRAWS or sampler.topology.edge_weight is not None:
        return sampler
    needed = DeviceTopology.needed_bytes(sampler.topology)
    if isinstance(sampler, Weighted):
        needed += 8 * sampler.topology.vertices
    if needed > room:
        return sampler
    return DeviceSampler(sampler, DeviceTopology(sampler.topology, device))
