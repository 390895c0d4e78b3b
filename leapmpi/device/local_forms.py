"""Forms of samplers whose draws depend only on the key, and on visible times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from leapmpi.device import uniform_draws
from leapmpi.device.device_frontier import Destinations, DeviceTopology, first_destinations, placed
from leapmpi.device.draw_form import DrawForm, hashed
from leapmpi.device.hashing import signed
from leapmpi.device.lists import (
    MOST_AT_ONCE,
    Chosen,
    DeviceDrawn,
    Lists,
    drawn_at,
    drawn_from,
    from_lists,
    normalised,
    same_draws,
    smallest_of_rows,
    starts,
)
from leapmpi.device.uniform_draws import node_wise
from leapmpi.device.walk_draws import MOST_VISITS, Walks, by_walks
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


def ordered(times: Tensor) -> Tensor:
    """Return int64 that compare as `times` do, in the same memory; times: int64[n], or float64[n] without NaN."""
    if times.dtype == torch.int64:
        return times
    bits = times.add_(0.0).view(torch.int64)
    for part in bits.split(MOST_AT_ONCE):
        part.bitwise_xor_((part >> 63) & torch.iinfo(torch.int64).max)
    return bits


def by_time(
    hashed: int,
    topology: DeviceTopology,
    times: Tensor,
    seen: tuple[int, int],
    to: Destinations,
    fanout: int,
    latest: bool,
) -> DeviceDrawn:
    """Draw among edges with `times` (int64[edges]) from seen[0] to seen[1]: the `latest` ones, or uniform ones."""

    def choose(found: Lists) -> Chosen:
        # Restrict the lists to visible edges.
        time = times[found.numbers]
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
        self._kernels = None
        if serves("draws", topology.device, partial(_tried, topology)):
            from leapmpi.device import draws_triton

            self._kernels = draws_triton

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        word, fanout = hashed(key, hop), self.fanout(hop)
        if self._kernels is not None:
            return drawn_from(topology, *self._kernels.uniform_places(word, to, fanout))
        return drawn_at(topology, to, *uniform_draws.node_wise(word, to, fanout))


def _tried(topology: DeviceTopology) -> bool:
    """Return whether Triton and torch draw the same from the first lists of `topology`."""
    from leapmpi.device import draws_triton

    to, word = first_destinations(topology, _TRIED), hashed(DrawKey(0, 0, 0, 0), 0)
    for fanout in (1, 5, 10, draws_triton.MOST_DRAWN):
        indptr, places = draws_triton.node_wise(word, to, fanout)
        expected, positions = uniform_draws.node_wise(word, to, fanout)
        if not torch.equal(indptr, expected):
            return False
        if not torch.equal(places, positions + to.start.repeat_interleave(expected.diff())):
            return False
    return True


class WithReplacementForm(DrawForm[WithReplacement]):
    """Form by Triton's kernel up to its largest fan-out, else by torch operations."""

    def __init__(self, sampler: WithReplacement, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._most = 0
        """Largest fan-out of Triton's kernel."""
        if serves("draws with replacement", topology.device, partial(_again_tried, topology)):
            from leapmpi.device import draws_triton

            self._most, self._by_triton = draws_triton.MOST_DRAWN, draws_triton.with_replacement

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        word, fanout = hashed(key, hop), self.fanout(hop)
        if 0 < fanout <= self._most:
            return drawn_from(topology, *self._by_triton(word, to, fanout))
        return drawn_at(topology, to, *uniform_draws.with_replacement(word, to, fanout))


def _again_tried(topology: DeviceTopology) -> bool:
    """Return whether Triton and torch draw the same with replacement from the first lists of `topology`."""
    from leapmpi.device import draws_triton

    to, word = first_destinations(topology, _TRIED), hashed(DrawKey(0, 0, 0, 0), 0)
    return all(
        same_draws(
            drawn_from(topology, *draws_triton.with_replacement(word, to, fanout)),
            drawn_at(topology, to, *uniform_draws.with_replacement(word, to, fanout)),
        )
        for fanout in (1, 10, draws_triton.MOST_DRAWN)
    )


_LISTS_TRIED = 100
"""Number of lists that kernels are tried on that read whole lists."""


class Labor0Form(DrawForm[Labor0]):
    """Form that takes the smallest numbers of sources, or those below the fan-out's share."""

    def __init__(self, sampler: Labor0, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        self._kernels = None
        if serves("draws by numbers of sources", topology.device, partial(_numbers_tried, topology)):
            from leapmpi.device import list_draws_triton

            self._kernels = list_draws_triton

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        options, fanout = self.sampler.options, self.fanout(hop)
        law = law_of(key, hop, options.same_in_layers, options.kept_batches)
        fixed = options.fixed_size or fanout == ALL
        if self._kernels is not None:
            by_triton = self._kernels.smallest_numbers if fixed else self._kernels.numbers_below
            return by_triton(law, topology, to, fanout)
        kernel = uniform_draws.smallest_numbers if fixed else uniform_draws.numbers_below
        return from_lists(topology, to, lambda found: kernel(law, topology, found, fanout))


def _numbers_tried(topology: DeviceTopology) -> bool:
    """Return whether Triton and torch draw the same by numbers of sources from the first lists of `topology`."""
    from leapmpi.device import list_draws_triton

    to = first_destinations(topology, _LISTS_TRIED)
    for kept in (1, 3):
        law = law_of(DrawKey(0, 0, 0, 0), 0, False, kept)
        for name in ("smallest_numbers", "numbers_below"):
            by_torch, by_triton = getattr(uniform_draws, name), getattr(list_draws_triton, name)
            expected = from_lists(topology, to, partial(by_torch, law, topology, fanout=5))
            if not same_draws(by_triton(law, topology, to, 5), expected):
                return False
    return True


class WeightedForm(DrawForm[Weighted]):
    """Form with the weights of sources (int64[n]) or of edges (float32[m]) on the device."""

    def __init__(self, sampler: Weighted, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        given = sampler.topology.edge_weight if sampler.by_edge else sampler.source_weight
        assert given is not None, "a sampler has the weights of sources, or of edges"
        self._weights = placed(given, topology.device)
        self._normalised = normalised
        self._by_triton: Callable[..., DeviceDrawn] | None = None
        if serves("draws by weights", topology.device, self._tried):
            from leapmpi.device import list_draws_triton, table_draws_triton

            self._by_triton, self._normalised = list_draws_triton.by_weight, table_draws_triton.normalised

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        assert isinstance(sampler, Weighted)
        return 4 * sampler.topology.edges if sampler.by_edge else 8 * sampler.topology.vertices

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        word, fanout, scaled = hashed(key, hop), self.fanout(hop), self.sampler.row_normalise
        if self._by_triton is None:
            return self._by_torch(word, topology, to, fanout, scaled)
        drawn = self._by_triton(word, topology, self._weights, to, fanout, self.sampler.by_edge)
        assert drawn.weight is not None, "draws by weights have some"
        return drawn._replace(weight=self._normalised(drawn.indptr, drawn.weight, to.degree)) if scaled else drawn

    def _by_torch(
        self, word: int, topology: DeviceTopology, to: Destinations, fanout: int, scaled: bool
    ) -> DeviceDrawn:
        def rule(found: Lists) -> torch.Tensor:
            if self.sampler.by_edge:
                return steps_of_edges(self._weights, found)
            return self._weights[topology.indices[found.numbers].long()]

        return by_weight(word, topology, rule, to, fanout, scaled)

    def _tried(self) -> bool:
        """Return whether Triton and torch draw the same by weights from the first lists of the topology."""
        from leapmpi.device import list_draws_triton, table_draws_triton

        to, by_edge = first_destinations(self.topology, _LISTS_TRIED), self.sampler.by_edge
        for word, fanout in ((7, 3), (-7, 10)):
            found = list_draws_triton.by_weight(word, self.topology, self._weights, to, fanout, by_edge)
            if not same_draws(found, self._by_torch(word, self.topology, to, fanout, scaled=False)):
                return False
            assert found.weight is not None, "draws by weights have some"
            both = (each(found.indptr, found.weight, to.degree) for each in (normalised, table_draws_triton.normalised))
            if not torch.equal(*both):
                return False
        return True


class RandomWalkForm(DrawForm[RandomWalk]):
    """Form that counts visits of walks; sources need not be in-neighbours, so draws name no edges."""

    names_edges = False

    def __init__(self, sampler: RandomWalk, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        options = sampler.options
        self._walks, self._by_walks = Walks(options.walks, options.steps, signed(sampler.stop)), by_walks
        if self._walks.visits <= MOST_VISITS and serves("draws by walks", topology.device, self._tried):
            from leapmpi.device import walk_draws_triton

            self._by_walks = walk_draws_triton.by_walks

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        return self._by_walks(hashed(key, hop), topology, self._walks, to, self.fanout(hop))

    def _tried(self) -> bool:
        """Return whether Triton and torch draw the same by walks from the first vertices of the topology."""
        from leapmpi.device import walk_draws_triton

        of = 7, self.topology, self._walks, first_destinations(self.topology, _LISTS_TRIED)
        return all(same_draws(walk_draws_triton.by_walks(*of, most), by_walks(*of, most)) for most in (3, ALL))


class TemporalForm(DrawForm[Temporal]):
    """Form with the times of edges on the device, as int64[m] in their order."""

    def __init__(self, sampler: Temporal, topology: DeviceTopology) -> None:
        super().__init__(sampler, topology)
        assert sampler.topology.edge_time is not None, "the sampler has seen that there are times"
        self._times, self._by_time = ordered(placed(sampler.topology.edge_time, topology.device)), by_time
        if serves("draws by times", topology.device, self._tried):
            from leapmpi.device import list_draws_triton

            self._by_time = list_draws_triton.by_time

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        return 8 * sampler.topology.edges

    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        low, high = ordered(torch.from_numpy(np.array(self.sampler.seen))).tolist()
        latest = self.sampler.options.draw == "latest"
        return self._by_time(hashed(key, hop), topology, self._times, (low, high), to, self.fanout(hop), latest)

    def _tried(self) -> bool:
        """Return whether Triton and torch draw the same by times from the first lists of the topology."""
        from leapmpi.device import list_draws_triton

        first = self._times[:_TRIED]
        seen = (int(first.min()), int(first.float().mean())) if len(first) else (0, 0)
        of = 7, self.topology, self._times, seen, first_destinations(self.topology, _LISTS_TRIED)
        ways = ((5, True), (5, False), (100, False), (ALL, False))
        return all(same_draws(list_draws_triton.by_time(*of, *way), by_time(*of, *way)) for way in ways)
