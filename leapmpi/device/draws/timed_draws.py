"""What destinations draw by the times of their edges, in torch operations: the edges of temporal.py, to the bit."""

from __future__ import annotations

from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.draws.lists import Chosen, DeviceDrawn, Lists, from_lists, smallest_of_rows, starts
from leapmpi.device.draws.uniform_draws import node_wise
from leapmpi.sampling.hop_sampler import ALL


def by_time(
    hashed: int,
    topology: DeviceTopology,
    edge_time: Tensor,
    seen: tuple[float, float],
    to: Destinations,
    fanout: int,
    latest: bool,
) -> DeviceDrawn:
    """Of edges with a time from seen[0] to seen[1]: the `latest` ones, or uniform ones."""

    def choose(found: Lists) -> Chosen:
        # The lists of what can be seen.
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
