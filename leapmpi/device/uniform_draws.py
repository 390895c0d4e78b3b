"""Draws in torch operations: positions in lists, bit-identical to the CPU's kernels.

Returned positions come with indptr int64[n + 1], are int64[edges] and ascend within a destination. `hashed` is the word
of key and hop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.device import lists
from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded, fold, in_order, multiple_of_share, signed
from leapmpi.device.lists import Chosen, Lists, all_of_short_lists, numbers_within, starts
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.relation_lists import RELATION_MASK
from leapmpi.sampling.source_numbers import Law

Positions = tuple[Tensor, Tensor]


def node_wise(hashed: int, to: Destinations, fanout: int) -> Positions:
    """Draw distinct positions, as node_wise.py does (Floyd's algorithm)."""
    indptr, positions, some = all_of_short_lists(to, fanout)
    draw = torch.arange(max(0, fanout), device=to.degree.device)
    for part in some.split(max(1, lists.MOST_AT_ONCE // max(1, fanout))) if len(some) else ():
        words = fold(fold(hashed, to.original[part]).unsqueeze(1), draw)
        first = (to.degree[part] - fanout).unsqueeze(1)
        chosen = bounded(words, first + draw + 1)
        chosen = torch.where(_drawn_before(chosen, first, draw), first + draw, chosen)
        place = indptr[part].unsqueeze(1) + draw
        positions[place.flatten()] = chosen.sort(dim=1).values.flatten()
    return indptr, positions


def _drawn_before(drawn: Tensor, first: Tensor, draw: Tensor) -> Tensor:
    """Return bool[n, k]: whether an earlier draw takes position drawn[:, j], so that j gets its last one.

    Draw j of a row chooses among the positions below first + j + 1. If its choice is taken, it gets the last of these,
    first + j. A position is taken if an earlier draw has drawn it too, or got it as its last.
    """
    # Sort by value, then by number: an earlier equal draw is the previous entry.
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
    """Draw independent positions, as with_replacement.py does."""
    degree = to.degree
    if fanout == ALL:
        indptr = starts(degree)
        return indptr, numbers_within(indptr)
    drawing = torch.nonzero(degree > 0).flatten()
    draw = torch.arange(fanout, device=degree.device)
    positions = torch.empty(len(drawing), fanout, dtype=torch.int64, device=degree.device)
    rows = max(1, lists.MOST_AT_ONCE // max(1, fanout))
    for part, found in zip(drawing.split(rows), positions.split(rows), strict=True):
        words = fold(fold(hashed, to.original[part]).unsqueeze(1), draw)
        found.copy_(bounded(words, degree[part].unsqueeze(1)).sort(dim=1).values)
    return starts((degree > 0) * fanout), positions.flatten()


def smallest_numbers(law: Law, topology: DeviceTopology, found: Lists, fanout: int) -> Chosen:
    """Return the sources with the smallest numbers, as labor_0.py draws them with `fixed-size`."""
    if fanout == ALL:
        return Chosen(found.to.degree, found.numbers)
    return found.taken(found.smallest(in_order(source_numbers(law, topology, found)), fanout))


def numbers_below(law: Law, topology: DeviceTopology, found: Lists, fanout: int) -> Chosen:
    """Return the sources with a number below fan-out / degree, as labor_0.py draws them without."""
    degree = found.to.degree
    number = in_order(source_numbers(law, topology, found))
    limit = in_order(multiple_of_share(degree.clamp(min=1), degree.clamp(max=fanout)))
    return found.taken((degree <= fanout)[found.row] | (number < limit[found.row]))


def source_numbers(law: Law, topology: DeviceTopology, found: Lists) -> Tensor:
    """Return the numbers (source_numbers.py) of the sources of all list entries: int64[entries]."""
    original = topology.original_id[topology.indices[found.numbers].long()]
    if topology.typed:
        # A source has a number per relation.
        original = original | (found.to.original & int(RELATION_MASK))[found.row]
    name = fold(signed(law.hashed), original)
    if law.kept == 1:
        return name
    turn = bounded(fold(name, torch.zeros_like(name)), law.kept)
    return fold(name, 1 + (law.iteration + turn) // law.kept)
