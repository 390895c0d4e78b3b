"""Lists that destinations draw from, entry by entry, and the drawn entries.

No table exceeds MOST_AT_ONCE numbers: lists are read in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.nn.kernels.csr_torch import segment_sums
from leapmpi.sampling.hop_sampler import ALL

MOST_AT_ONCE = 1 << 25
"""Numbers (int64) of the largest table; a draw holds some ten of these."""


class DeviceDrawn(NamedTuple):
    """Draws on a device: first edge of each destination (int64[n + 1]), sources as stored, weights, numbers, relations.

    weight: float32[edges], or None; numbers: int64[edges], positions in the topology, or None if sources may be no
    in-neighbours; relation: uint8[edges] or int32[edges] of a typed graph, or None.
    """

    indptr: Tensor
    sources: Tensor
    weight: Tensor | None = None
    numbers: Tensor | None = None
    relation: Tensor | None = None


def same_draws(found: DeviceDrawn, expected: DeviceDrawn) -> bool:
    """Return whether all arrays that both have are equal to the bit."""
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(a, b) for a, b in pairs if a is not None and b is not None)


class Chosen(NamedTuple):
    """Draws of some destinations: numbers of edges, int64[n], positions of these edges and, or None, weights."""

    counts: Tensor
    numbers: Tensor
    weight: Tensor | None = None


class Lists(NamedTuple):
    """All list entries of `to`: first of each, int64[n + 1]; rows and numbers, int64[entries]."""

    to: Destinations
    indptr: Tensor
    row: Tensor
    numbers: Tensor

    @classmethod
    def of(cls, topology: DeviceTopology, to: Destinations) -> Lists:
        """Return the lists of `to`."""
        indptr = starts(to.degree)
        row = rows_of(indptr)
        return cls(to, indptr, row, topology.numbers(to.start[row] + numbers_within(indptr)))

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of the values int64[entries] of each row: int64[n]."""
        return torch.zeros_like(self.to.degree).index_add_(0, self.row, values)

    def smallest(self, key: Tensor, most: int) -> Tensor:
        """Return bool[entries]: the `most` of each row with the smallest keys; of equal ones the first."""
        return smallest_of_rows(self.indptr, self.row, key, most)

    def taken(self, mask: Tensor, weight: Tensor | None = None) -> Chosen:
        """Return the entries of `mask` (bool[entries])."""
        counts = torch.bincount(self.row[mask], minlength=len(self.to.degree))
        return Chosen(counts, self.numbers[mask], None if weight is None else weight[mask])


def from_lists(topology: DeviceTopology, to: Destinations, choose: Callable[[Lists], Chosen]) -> DeviceDrawn:
    """Draw for `to` by `choose`, which is called for some of their lists at a time."""
    parts = [choose(Lists.of(topology, to.part(part))) for part in parts_of_lists(to.degree)]
    counts, numbers = torch.cat([each.counts for each in parts]), torch.cat([each.numbers for each in parts])
    weights = [each.weight for each in parts if each.weight is not None]
    return DeviceDrawn(starts(counts), topology.indices[numbers], torch.cat(weights) if weights else None, numbers)


def drawn_at(topology: DeviceTopology, to: Destinations, indptr: Tensor, positions: Tensor) -> DeviceDrawn:
    """Return the edges at `positions` (int64[edges]) of the lists of `to`; indptr: int64[n + 1]."""
    start = to.start.repeat_interleave(indptr.diff(), output_size=len(positions))
    return drawn_from(topology, indptr, start + positions)


def drawn_from(topology: DeviceTopology, indptr: Tensor, places: Tensor) -> DeviceDrawn:
    """Return the edges at `places` (int64[edges]); indptr: int64[n + 1]."""
    numbers = topology.numbers(places)
    return DeviceDrawn(indptr, topology.indices.index_select(0, numbers), numbers=numbers)


def all_of_short_lists(to: Destinations, fanout: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return indptr and positions (int64) of first neighbours, and the numbers of destinations with longer lists."""
    if fanout == ALL:
        indptr = starts(to.degree)
        return indptr, numbers_within(indptr), to.degree[:0]
    indptr = starts(to.degree.clamp(max=fanout))
    return indptr, numbers_within(indptr), torch.nonzero(to.degree > fanout).flatten()


def parts_of_lists(counts: Tensor) -> Iterator[slice]:
    """Return slices of lists with int64[n] entries: at most MOST_AT_ONCE entries, or one longer list; at least one."""
    ends, first, done = counts.cumsum(0), 0, 0
    while first < len(counts) or not first:
        end = max(first + 1, int(torch.searchsorted(ends, done + MOST_AT_ONCE, right=True)))
        yield slice(first, end)
        first, done = end, int(ends[end - 1]) if len(counts) else 0


def starts(counts: Tensor) -> Tensor:
    """Return the first entry of each row from numbers of entries: int64[n + 1]."""
    indptr = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def rows_of(indptr: Tensor) -> Tensor:
    """Return the destination of each edge: int64[edges]."""
    return torch.arange(len(indptr) - 1, device=indptr.device).repeat_interleave(indptr.diff())


def numbers_within(indptr: Tensor) -> Tensor:
    """Return the number of each edge within its destination: int64[edges]."""
    edges = int(indptr[-1])
    first = indptr[:-1].repeat_interleave(indptr.diff(), output_size=edges)
    return torch.arange(edges, device=indptr.device) - first


def smallest_of_rows(indptr: Tensor, row: Tensor, key: Tensor, most: int, descending: bool = False) -> Tensor:
    """Return bool[edges]: the `most` of each row with the smallest (or largest) keys; of equal ones the first.

    row: int64[edges], ascending; indptr: int64[n + 1], first edge of each row.
    """
    order = key.argsort(stable=True, descending=descending)
    order = order[row[order].argsort(stable=True)]
    kept = torch.empty_like(row, dtype=torch.bool)
    kept[order] = numbers_within(indptr) < most
    return kept


def sums_in_order(indptr: Tensor, values: Tensor) -> Tensor:
    """Return the sum of the values (float[edges]) of each row, float64[n], added in the order of kernels."""
    # torch adds a table of one column row by row, on a GPU too, but not a vector.
    return segment_sums(indptr, values.double().unsqueeze(1)).squeeze(1)


def normalised(indptr: Tensor, weight: Tensor, degree: Tensor) -> Tensor:
    """Return `weight`, float32[edges], scaled as by hop_sampler.normalise_rows."""
    scale = degree / sums_in_order(indptr, weight)
    return (weight.double() * scale.repeat_interleave(indptr.diff(), output_size=len(weight))).float()
