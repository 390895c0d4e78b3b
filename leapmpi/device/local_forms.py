"""Forms of samplers whose draws depend only on the key, and on visible times."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from leapmpi.device import uniform_draws
from leapmpi.device.device_frontier import Destinations, DeviceFrontier, DeviceTopology, placed
from leapmpi.device.draw_form import DrawForm, hashed
from leapmpi.device.hashing import signed
from leapmpi.device.lists import Chosen, DeviceDrawn, Lists, drawn_at, drawn_from, from_lists, smallest_of_rows, starts
from leapmpi.device.uniform_draws import node_wise
from leapmpi.device.walk_draws import Walks, by_walks
from leapmpi.device.weighted_draws import by_weight, steps_of_edges
from leapmpi.nn.kernels.triton_choice import serves
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.samplers.labor_0 import Labor0
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.samplers.temporal import Temporal
from leapmpi.sampling.samplers.weighted import Weighted
from leapmpi.sampling.samplers.with_replacement import WithReplacement
from leapmpi.sampling.source_numbers import law_of
from leapmpi.system.counter_rng import DrawKey


def by_time(
    hashed: int,
    topology: DeviceTopology,
    edge_time: Tensor,
    seen: tuple[float, float],
    to: Destinations,
    fanout: int,
    latest: bool,
) -> DeviceDrawn:
    """Draw among edges with a time from seen[0] to seen[1]: the `latest` ones, or uniform ones."""

    def choose(found: Lists) -> Chosen:
        # Restrict the lists to visible edges.
        time = edge_time[found.numbers]
        mask = (seen[0] <= time) & (time <= seen[1])
        counts, numbers, _ = found.taken(mask)
        if fanout == ALL:
            return Chosen(counts, numbers)
        indptr = starts(counts)
        if latest:
            kept = smallest_of_rows(indptr, found.row[mask], time[mask], fanout, descending=True)
            return Chosen(counts.clamp(max=fanout), numbers[kept])
        drawn, positions = node_wise(hashed, found.to._replace(degree=counts), fanout)
        first = indptr[:-1].repeat_interleave(drawn.diff(), output_size=len(positions))
        return Chosen(drawn.diff(), numbers[first + positions])

    return from_lists(topology, to, choose)


_TRIED = 2000
"""Number of lists that Triton's kernel is tried on."""


class NodeWiseForm(DrawForm[NodeWiseSampler]):
    """Form by Triton's kernel if it applies, else by torch operations."""

    def __init__(self, sampler: NodeWiseSampler, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._most = 0
        """Largest fan-out of Triton's kernel."""
        if serves("draws", topology.device, partial(_tried, topology)):
            from leapmpi.device import draws_triton

            self._most, self._by_triton = draws_triton.MOST_DRAWN, draws_triton.node_wise

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        word, fanout = hashed(key, hop), self.fanout(hop)
        if 0 < fanout <= self._most:
            return drawn_from(topology, *self._by_triton(word, to, fanout))
        return drawn_at(topology, to, *uniform_draws.node_wise(word, to, fanout))


def _tried(topology: DeviceTopology) -> bool:
    """Return whether Triton and torch draw the same from the first lists of `topology`."""
    from leapmpi.device import draws_triton

    first = DeviceFrontier(topology)
    first.add(torch.arange(min(_TRIED, len(topology.original_id)), device=topology.device))
    to, word = first.reached, hashed(DrawKey(0, 0, 0, 0), 0)
    for fanout in (1, 5, 10, draws_triton.MOST_DRAWN):
        indptr, places = draws_triton.node_wise(word, to, fanout)
        expected, positions = uniform_draws.node_wise(word, to, fanout)
        if not torch.equal(indptr, expected):
            return False
        if not torch.equal(places, positions + to.start.repeat_interleave(expected.diff())):
            return False
    return True


class WithReplacementForm(DrawForm[WithReplacement]):
    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        return drawn_at(topology, to, *uniform_draws.with_replacement(hashed(key, hop), to, self.fanout(hop)))


class Labor0Form(DrawForm[Labor0]):
    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        options, fanout = self.sampler.options, self.fanout(hop)
        law = law_of(key, hop, options.same_in_layers, options.kept_batches)
        fixed = options.fixed_size or fanout == ALL
        kernel = uniform_draws.smallest_numbers if fixed else uniform_draws.numbers_below
        return from_lists(topology, to, lambda found: kernel(law, topology, found, fanout))


class WeightedForm(DrawForm[Weighted]):
    def __init__(self, sampler: Weighted, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        given = sampler.topology.edge_weight if sampler.by_edge else sampler.source_weight
        assert given is not None, "a sampler has the weights of sources, or of edges"
        self._weights = placed(given, topology.device)

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        assert isinstance(sampler, Weighted)
        return 4 * sampler.topology.edges if sampler.by_edge else 8 * sampler.topology.vertices

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        def rule(found: Lists) -> torch.Tensor:
            if self.sampler.by_edge:
                return steps_of_edges(self._weights, found)
            return self._weights[topology.indices[found.numbers].long()]

        fanout = self.fanout(hop)
        return by_weight(hashed(key, hop), topology, rule, to, fanout, self.sampler.row_normalise)


class RandomWalkForm(DrawForm[RandomWalk]):
    names_edges = False

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        options = self.sampler.options
        walks = Walks(options.walks, options.steps, signed(self.sampler.stop))
        return by_walks(hashed(key, hop), topology, walks, to, self.fanout(hop))


class TemporalForm(DrawForm[Temporal]):
    def __init__(self, sampler: Temporal, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        assert sampler.topology.edge_time is not None, "the sampler has seen that there are times"
        self._edge_time = placed(sampler.topology.edge_time, topology.device)

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        return 8 * sampler.topology.edges

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        low, high = (each.item() for each in self.sampler.seen)
        latest = self.sampler.options.draw == "latest"
        fanout = self.fanout(hop)
        return by_time(hashed(key, hop), topology, self._edge_time, (low, high), to, fanout, latest)
