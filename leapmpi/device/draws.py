"""What destinations draw, in torch operations: positions in their lists, those of the CPU's kernels to the bit.

Each function takes the word of key and hop and the destinations. It returns indptr int64[n + 1] and positions
int64[edges], which ascend within a destination. No table of more than MOST_AT_ONCE numbers is made.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded, fold, in_order, multiple_of_share, signed
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.source_numbers import Law

Positions = tuple[Tensor, Tensor]

MOST_AT_ONCE = 1 << 25
"""Numbers (int64) of the largest table; a draw holds some ten of these."""


def node_wise(hashed: int, to: Destinations, fanout: int) -> Positions:
    """Distinct positions, as node_wise.py draws them (Floyd's algorithm)."""
    indptr, positions, some = all_of_short_lists(to, fanout)
    draw = torch.arange(max(0, fanout), device=to.degree.device)
    for part in some.split(max(1, MOST_AT_ONCE // max(1, fanout))) if len(some) else ():
        words = fold(fold(hashed, to.original[part]).unsqueeze(1), draw)
        first = (to.degree[part] - fanout).unsqueeze(1)
        chosen = bounded(words, first + draw + 1)
        chosen = torch.where(_drawn_before(chosen, first, draw), first + draw, chosen)
        place = indptr[part].unsqueeze(1) + draw
        positions[place.flatten()] = chosen.sort(dim=1).values.flatten()
    return indptr, positions


def _drawn_before(drawn: Tensor, first: Tensor, draw: Tensor) -> Tensor:
    """bool[n, k]: whether position drawn[:, j] is taken by a draw before j, so that j gets the last one it may have.

    Draw j of a row chooses among the positions below first + j + 1; the last of these, first + j, is what it gets if
    what it has drawn is taken. A position is taken if an earlier draw has drawn it too, or has got it as its last.
    """
    # By value, then by number: what was drawn before stands just before.
    value, number = drawn.sort(dim=1, stable=True)
    again = torch.zeros_like(drawn, dtype=torch.bool)
    again.scatter_(1, number[:, 1:], value[:, 1:] == value[:, :-1])

    # Whose last position it is: that one has got it if it has not got what it has drawn. Ways are halved until all
    # such chains have ended.
    owner = drawn - first
    owner = torch.where(owner >= 0, owner, draw)
    for _ in range(max(0, len(draw) - 1).bit_length()):
        again |= again.gather(1, owner)
        owner = owner.gather(1, owner)
    return again


def with_replacement(hashed: int, to: Destinations, fanout: int) -> Positions:
    """Independent positions, as with_replacement.py draws them."""
    degree = to.degree
    if fanout == ALL:
        indptr = starts(degree)
        return indptr, numbers_within(indptr)
    drawing = torch.nonzero(degree > 0).flatten()
    draw = torch.arange(fanout, device=degree.device)
    positions = torch.empty(len(drawing), fanout, dtype=torch.int64, device=degree.device)
    rows = max(1, MOST_AT_ONCE // max(1, fanout))
    for part, found in zip(drawing.split(rows), positions.split(rows), strict=True):
        words = fold(fold(hashed, to.original[part]).unsqueeze(1), draw)
        found.copy_(bounded(words, degree[part].unsqueeze(1)).sort(dim=1).values)
    return starts((degree > 0) * fanout), positions.flatten()


def smallest_numbers(law: Law, topology: DeviceTopology, to: Destinations, fanout: int) -> Positions:
    """The positions of the sources with the smallest numbers, as labor_0.py draws them with `fixed-size`."""
    indptr, positions, some = all_of_short_lists(to, fanout)
    draw = torch.arange(max(0, fanout), device=to.degree.device)
    for part in parts_of_lists(to.degree[some]):
        rows = some[part]
        of_part = to.part(rows)
        lists = starts(of_part.degree)
        within, row = numbers_within(lists), rows_of(lists)
        number = in_order(_source_numbers(law, topology, of_part, within, row))

        # By number within each row; the first ones, by position.
        order = torch.argsort(number, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        chosen = within[order[(lists[:-1].unsqueeze(1) + draw).flatten()]].view(len(rows), fanout)
        place = indptr[rows].unsqueeze(1) + draw
        positions[place.flatten()] = chosen.sort(dim=1).values.flatten()
    return indptr, positions


def numbers_below(law: Law, topology: DeviceTopology, to: Destinations, fanout: int) -> Positions:
    """The positions of the sources whose number is below fan-out / degree, as labor_0.py draws them without."""
    counts, positions = [to.degree[:0]], [to.degree[:0]]
    for part in parts_of_lists(to.degree):
        of_part = to.part(part)
        degree, lists = of_part.degree, starts(of_part.degree)
        within, row = numbers_within(lists), rows_of(lists)
        number = in_order(_source_numbers(law, topology, of_part, within, row))
        limit = in_order(multiple_of_share(degree.clamp(min=1), degree.clamp(max=fanout)))
        taken = (degree <= fanout)[row] | (number < limit[row])
        counts.append(torch.bincount(row[taken], minlength=len(degree)))
        positions.append(within[taken])
    return starts(torch.cat(counts)), torch.cat(positions)


def _source_numbers(law: Law, topology: DeviceTopology, to: Destinations, within: Tensor, row: Tensor) -> Tensor:
    """int64[edges]: the numbers (source_numbers.py) of the sources at positions `within` of the lists of rows `row`."""
    source = topology.indices[to.start[row] + within].long()
    name = fold(signed(law.hashed), topology.original_id[source])
    if law.kept == 1:
        return name
    turn = bounded(fold(name, torch.zeros_like(name)), law.kept)
    return fold(name, 1 + (law.iteration + turn) // law.kept)


def all_of_short_lists(to: Destinations, fanout: int) -> tuple[Tensor, Tensor, Tensor]:
    """indptr and positions as if every destination drew its first neighbours; and who has more than it may draw."""
    if fanout == ALL:
        indptr = starts(to.degree)
        return indptr, numbers_within(indptr), to.degree[:0]
    indptr = starts(to.degree.clamp(max=fanout))
    return indptr, numbers_within(indptr), torch.nonzero(to.degree > fanout).flatten()


def sources_at(topology: DeviceTopology, to: Destinations, indptr: Tensor, positions: Tensor) -> Tensor:
    """int32 or int64[edges], as stored: the in-neighbours of destinations at `positions` of their lists."""
    start = to.start.repeat_interleave(indptr.diff(), output_size=len(positions))
    return topology.indices[start + positions]


def parts_of_lists(counts: Tensor) -> Iterator[slice]:
    """Slices of lists with int64[n] entries: of at most MOST_AT_ONCE entries, or of one longer list."""
    ends, first, done = counts.cumsum(0), 0, 0
    while first < len(counts):
        end = max(first + 1, int(torch.searchsorted(ends, done + MOST_AT_ONCE, right=True)))
        yield slice(first, end)
        first, done = end, int(ends[end - 1])


def starts(counts: Tensor) -> Tensor:
    """int64[n + 1]: where each of so many entries starts."""
    indptr = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def rows_of(indptr: Tensor) -> Tensor:
    """int64[edges]: the destination of each edge."""
    return torch.arange(len(indptr) - 1, device=indptr.device).repeat_interleave(indptr.diff())


def numbers_within(indptr: Tensor) -> Tensor:
    """int64[edges]: the number of each edge within its destination."""
    edges = int(indptr[-1])
    first = indptr[:-1].repeat_interleave(indptr.diff(), output_size=edges)
    return torch.arange(edges, device=indptr.device) - first
