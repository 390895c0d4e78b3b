"""Draws by walks in torch operations: neighbours and weights of random_walk.py, bit-identical."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leapmpi.device import lists
from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded, fold, in_order
from leapmpi.device.lists import DeviceDrawn, smallest_of_rows, starts
from leapmpi.sampling.hop_sampler import ALL

MOST_VISITS = 256
"""Most visits of a destination's walks for which Triton's kernel serves: a table of so many columns is in registers."""


class Walks(NamedTuple):
    """Parameters of walks: number, steps, and `stop`, int64 bits below which a word ends a walk."""

    number: int
    steps: int
    stop: int

    @property
    def visits(self) -> int:
        """Most visits of the walks from a destination."""
        return self.number * self.steps


def by_walks(hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations, fanout: int) -> DeviceDrawn:
    """Draw as random_walk.py does: the vertices visited most often by walks."""
    most = walks.visits if fanout == ALL else min(fanout, walks.visits)
    step = max(1, lists.MOST_AT_ONCE // walks.visits)
    parts = [to.part(slice(first, first + step)) for first in range(0, max(1, len(to.degree)), step)]
    found = [_walked(hashed, topology, walks, part, most) for part in parts]
    counts, sources, weight = (torch.cat(each) for each in zip(*found, strict=True))
    return DeviceDrawn(starts(counts), sources, weight)


def _walked(
    hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return by destination the number of drawn vertices; these, by original id; and their weights."""
    row, vertex = _visits(hashed, topology, walks, to)

    # Sorting by original id makes visits to the same vertex adjacent.
    name = topology.original_id[vertex]
    order = name.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    row, vertex, name = row[order], vertex[order], name[order]
    first = torch.ones(len(row), dtype=torch.bool, device=row.device)
    first[1:] = (row[1:] != row[:-1]) | (name[1:] != name[:-1])
    begins = torch.nonzero(first).flatten()
    visits = torch.cat((begins, begins.new_tensor([len(row)]))).diff()
    row, vertex = row[begins], vertex[begins]

    # Keep the most visited ones of each destination; of equal counts those of smaller original ids.
    count = len(to.degree)
    kept = smallest_of_rows(starts(torch.bincount(row, minlength=count)), row, visits, most, descending=True)
    row, vertex, visits = row[kept], vertex[kept], visits[kept]
    total = torch.zeros(count, dtype=torch.int64, device=row.device).index_add_(0, row, visits)
    share = to.degree.double() / total.clamp(min=1).double()
    return torch.bincount(row, minlength=count), vertex, (visits.double() * share[row]).float()


def _visits(hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations) -> tuple[Tensor, Tensor]:
    """Return every visit of a walk to a vertex other than its start: the destination's number, and the vertex."""
    number = torch.arange(walks.number, device=to.vertices.device)
    words = fold(fold(hashed, to.original).unsqueeze(1), number)
    start = to.vertices.unsqueeze(1)
    here, walking = start.expand_as(words).clone(), torch.ones_like(words, dtype=torch.bool)
    none = start.new_empty(0)
    rows, vertices = [none], [none]
    # All walks take a step together; those that have ended stay, and are masked out.
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
