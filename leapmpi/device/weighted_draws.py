"""What destinations draw with weights, in torch operations: neighbours and weights of the CPU's kernels, to the bit.

Sums of whole numbers are exact in any order; sums of weights are added up in the kernels' order, column by column.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.draws import (
    MOST_AT_ONCE,
    all_of_short_lists,
    numbers_within,
    parts_of_lists,
    rows_of,
    sources_at,
    starts,
)
from leapmpi.device.hashing import bounded, bounded_wide, fold, in_order
from leapmpi.sampling.hop_sampler import ALL


class Walks(NamedTuple):
    """How a destination walks: how often, how far, and `stop`, int64 bits below which a word ends a walk."""

    number: int
    steps: int
    stop: int


class DeviceDrawn(NamedTuple):
    """Where the edges of each destination start (int64[n + 1]), their sources, and float32 weights, None without."""

    indptr: Tensor
    sources: Tensor
    weight: Tensor | None = None


def by_source_weight(
    hashed: int, topology: DeviceTopology, weights: Tensor, to: Destinations, fanout: int, row_normalise: bool
) -> DeviceDrawn:
    """What weighted.py draws by the `weights` of sources (int64[vertices])."""
    indptr, positions, some = all_of_short_lists(to, fanout)
    weight = torch.ones(len(positions), dtype=torch.float32, device=positions.device)
    for part in parts_of_lists(to.degree[some]):
        rows = some[part]
        chosen, found = _systematic(hashed, topology, weights, to.part(rows), fanout)
        if row_normalise:
            total = torch.zeros(len(rows), dtype=torch.float64, device=positions.device)
            for j in range(fanout):
                total += found[:, j]
            found = (found.double() * (to.degree[rows] / total).unsqueeze(1)).float()
        place = (indptr[rows].unsqueeze(1) + torch.arange(max(0, fanout), device=positions.device)).flatten()
        positions[place], weight[place] = chosen.flatten(), found.flatten()
    return DeviceDrawn(indptr, sources_at(topology, to, indptr, positions), weight)


def _systematic(
    hashed: int, topology: DeviceTopology, weights: Tensor, to: Destinations, fanout: int
) -> tuple[Tensor, Tensor]:
    """Positions and 1 / chance, [k, fanout] each, of what destinations of more than `fanout` in-neighbours draw."""
    lists = starts(to.degree)
    within, row = numbers_within(lists), rows_of(lists)
    left = weights[topology.indices[to.start[row] + within].long()]
    picks, total, left = _take_certain(left, row, len(to.degree), fanout)

    # Points lie `total` apart; a neighbour is hit where its end lies in another interval than its beginning.
    length = picks[row] * left
    ends = length.cumsum(0)
    before_row = torch.cat((ends.new_zeros(1), ends))[lists[:-1]]
    point = bounded_wide(fold(hashed, to.original), total.clamp(min=1))
    ends = ends - before_row[row] + point[row]
    apart = total.clamp(min=1)[row]
    hit = (left > 0) & (ends.div(apart, rounding_mode="floor") > (ends - length).div(apart, rounding_mode="floor"))
    chosen = (left == 0) | hit
    weight = torch.where(left == 0, 1.0, total[row].double() / length.clamp(min=1).double()).float()
    return within[chosen].view(-1, fanout), weight[chosen].view(-1, fanout)


def _take_certain(left: Tensor, row: Tensor, rows: int, fanout: int) -> tuple[Tensor, Tensor, Tensor]:
    """Zero the entries of `left` whose chance would exceed 1; by row how many picks and what weights remain."""

    def by_row(values: Tensor) -> Tensor:
        return torch.zeros(rows, dtype=torch.int64, device=left.device).index_add_(0, row, values)

    picks, total = torch.full((rows,), fanout, dtype=torch.int64, device=left.device), by_row(left)
    goes_on = torch.ones(rows, dtype=torch.bool, device=left.device)
    while goes_on.any():
        certain = (left > 0) & goes_on[row] & (picks[row] * left >= total[row])
        taken = by_row(certain.long())
        total = total - by_row(left * certain)
        left = left.masked_fill(certain, 0)
        picks = picks - taken
        goes_on &= (taken > 0) & (picks > 0) & (total > 0)
    return picks, total, left


def by_walks(hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations, fanout: int) -> DeviceDrawn:
    """What random_walk.py draws: the vertices that walks visit most often."""
    most = walks.number * walks.steps if fanout == ALL else min(fanout, walks.number * walks.steps)
    step = max(1, MOST_AT_ONCE // (walks.number * walks.steps))
    parts = [to.part(slice(first, first + step)) for first in range(0, max(1, len(to.degree)), step)]
    found = [_walked(hashed, topology, walks, part, most) for part in parts]
    counts, sources, weight = (torch.cat(each) for each in zip(*found, strict=True))
    return DeviceDrawn(starts(counts), sources, weight)


def _walked(
    hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """By destination how many vertices it draws; these, by original id; and their weights."""
    row, vertex = _visits(hashed, topology, walks, to)

    # Visits to the same vertex lie side by side, in the order of original ids.
    name = topology.original_id[vertex]
    order = name.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    row, vertex, name = row[order], vertex[order], name[order]
    first = torch.ones(len(row), dtype=torch.bool, device=row.device)
    first[1:] = (row[1:] != row[:-1]) | (name[1:] != name[:-1])
    begins = torch.nonzero(first).flatten()
    visits = torch.cat((begins, begins.new_tensor([len(row)]))).diff()
    row, vertex = row[begins], vertex[begins]

    # The most visited ones of each destination, of equal counts those of smaller names.
    count = len(to.degree)
    order = (-visits).argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    lists = starts(torch.bincount(row, minlength=count))
    kept = torch.empty_like(row, dtype=torch.bool)
    kept[order] = numbers_within(lists) < most
    row, vertex, visits = row[kept], vertex[kept], visits[kept]
    total = torch.zeros(count, dtype=torch.int64, device=row.device).index_add_(0, row, visits)
    share = to.degree.double() / total.clamp(min=1).double()
    return torch.bincount(row, minlength=count), vertex, (visits.double() * share[row]).float()


def _visits(hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations) -> tuple[Tensor, Tensor]:
    """Every visit of a walk to a vertex other than its start: the destination's number, and the vertex."""
    number = torch.arange(walks.number, device=to.vertices.device)
    words = fold(fold(hashed, to.original).unsqueeze(1), number)
    start = to.vertices.unsqueeze(1)
    here, walking = start.expand_as(words).clone(), torch.ones_like(words, dtype=torch.bool)
    none = start.new_empty(0)
    rows, vertices = [none], [none]
    for step in range(walks.steps if len(topology.indices) else 0):
        begin = topology.indptr[here]
        degree = topology.indptr[here + 1] - begin
        walking &= degree > 0
        position = bounded(fold(words, number.new_tensor(2 * step)), degree.clamp(min=1))
        here = torch.where(walking, topology.indices[torch.where(walking, begin + position, 0)].long(), here)
        row, walk = torch.nonzero(walking & (here != start), as_tuple=True)
        rows.append(row)
        vertices.append(here[row, walk])
        walking &= in_order(fold(words, number.new_tensor(2 * step + 1))) >= in_order(number.new_tensor(walks.stop))
    return torch.cat(rows), torch.cat(vertices)
