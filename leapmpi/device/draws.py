"""What destinations draw, in torch operations: positions in their lists, those of the CPU's kernels to the bit.

Each function takes the word of key and hop and the destinations' in-degrees (int64[n]). It returns indptr int64[n + 1]
and positions int64[edges], which ascend within a destination.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.device.device_frontier import DeviceTopology
from leapmpi.device.hashing import bounded, fold, in_order, multiple_of_share, signed
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.source_numbers import Law

Positions = tuple[Tensor, Tensor]

_MOST_COMPARED = 1 << 27
"""Elements of the largest table of drawn positions that is looked through at once."""


def node_wise(hashed: int, original: Tensor, degree: Tensor, fanout: int) -> Positions:
    """Distinct positions, as node_wise.py draws them (Floyd's algorithm)."""
    indptr = starts(degree if fanout == ALL else degree.clamp(max=fanout))
    positions = numbers_within(indptr)
    some = torch.nonzero(degree > fanout).flatten() if fanout != ALL else degree[:0]
    if not len(some):
        return indptr, positions

    # All of a row's draws are independent words; a position that was drawn before gives way to the last one allowed.
    draw = torch.arange(fanout, device=degree.device)
    for part in some.split(max(1, _MOST_COMPARED // fanout)):
        words = fold(fold(hashed, original[part]).unsqueeze(1), draw)
        last = (degree[part] - fanout).unsqueeze(1) + draw
        chosen = bounded(words, last + 1)
        for j in range(1, fanout):
            again = (chosen[:, :j] == chosen[:, j : j + 1]).any(dim=1)
            chosen[:, j] = torch.where(again, last[:, j], chosen[:, j])
        place = indptr[part].unsqueeze(1) + draw
        positions[place.flatten()] = chosen.sort(dim=1).values.flatten()
    return indptr, positions


def with_replacement(hashed: int, original: Tensor, degree: Tensor, fanout: int) -> Positions:
    """Independent positions, as with_replacement.py draws them."""
    if fanout == ALL:
        indptr = starts(degree)
        return indptr, numbers_within(indptr)
    drawing = torch.nonzero(degree > 0).flatten()
    draw = torch.arange(fanout, device=degree.device)
    words = fold(fold(hashed, original[drawing]).unsqueeze(1), draw)
    chosen = bounded(words, degree[drawing].unsqueeze(1))
    return starts((degree > 0) * fanout), chosen.sort(dim=1).values.flatten()


def smallest_numbers(law: Law, topology: DeviceTopology, vertices: Tensor, degree: Tensor, fanout: int) -> Positions:
    """The positions of the sources with the smallest numbers, as labor_0.py draws them with `fixed-size`."""
    indptr = starts(degree if fanout == ALL else degree.clamp(max=fanout))
    positions = numbers_within(indptr)
    some = torch.nonzero(degree > fanout).flatten() if fanout != ALL else degree[:0]
    if len(some):
        lists = starts(degree[some])
        within, row = numbers_within(lists), rows_of(lists)
        number = in_order(_source_numbers(law, topology, vertices[some], within, row))

        # By number within each row; the first ones, by position.
        order = torch.argsort(number, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        draw = torch.arange(fanout, device=degree.device)
        chosen = within[order[(lists[:-1].unsqueeze(1) + draw).flatten()]].view(len(some), fanout)
        place = indptr[some].unsqueeze(1) + draw
        positions[place.flatten()] = chosen.sort(dim=1).values.flatten()
    return indptr, positions


def numbers_below(law: Law, topology: DeviceTopology, vertices: Tensor, degree: Tensor, fanout: int) -> Positions:
    """The positions of the sources whose number is below fan-out / degree, as labor_0.py draws them without."""
    lists = starts(degree)
    within, row = numbers_within(lists), rows_of(lists)
    number = in_order(_source_numbers(law, topology, vertices, within, row))
    limit = in_order(multiple_of_share(degree.clamp(min=1), degree.clamp(max=fanout)))
    taken = (degree <= fanout)[row] | (number < limit[row])
    return starts(torch.bincount(row[taken], minlength=len(degree))), within[taken]


def _source_numbers(law: Law, topology: DeviceTopology, vertices: Tensor, within: Tensor, row: Tensor) -> Tensor:
    """int64[edges]: the numbers (source_numbers.py) of the sources at positions `within` of lists of vertices[row]."""
    source = topology.indices[topology.indptr[vertices][row] + within].long()
    name = fold(signed(law.hashed), topology.original_id[source])
    if law.kept == 1:
        return name
    turn = bounded(fold(name, torch.zeros_like(name)), law.kept)
    return fold(name, 1 + (law.iteration + turn) // law.kept)


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
    counts = indptr.diff()
    return torch.arange(int(indptr[-1]), device=indptr.device) - indptr[:-1].repeat_interleave(counts)
