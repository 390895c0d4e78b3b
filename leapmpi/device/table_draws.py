"""Draws from tables, as in layer_tables.py, and the tables of ladies and fast-gcn.

Tables are float64[n]: weights, 0 for sources that were not drawn. Norms are integers, so the order of sums does not
matter. The sums behind the chances of ladies are the host's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded_wide, fold, shifted
from leapmpi.device.lists import Chosen, DeviceDrawn, Lists, from_lists, parts_of_lists
from leapmpi.sampling.column_norms import norm_unit
from leapmpi.sampling.samplers.ladies import chance_scale

Weigh = Callable[[Lists, Tensor], Tensor]
"""Function of list entries and of their sources' table values that returns weights float[entries]."""


def weight_in_table(found: Lists, in_table: Tensor) -> Tensor:
    """Return the source's weight in the table."""
    return in_table


def from_table(topology: DeviceTopology, table: Tensor, to: Destinations, weigh: Weigh | None) -> DeviceDrawn:
    """Return the in-neighbours in `table`, with weights by `weigh`, or without."""

    def choose(found: Lists) -> Chosen:
        in_table = table[topology.indices[found.numbers].long()]
        return found.taken(in_table > 0, None if weigh is None else weigh(found, in_table).float())

    return from_lists(topology, to, choose)


def share_of_words(words: Tensor) -> Tensor:
    """Return float64 in [0, 1): the highest 53 bits of each word."""
    return shifted(words, 11).double() * 2.0**-53


def column_norms(topology: DeviceTopology, to: Destinations) -> Tensor:
    """Return the squared norms of column_norms.py over the rows `to`: int64[n]."""
    size = len(topology.original_id)
    norms, unit = torch.zeros(size, dtype=torch.int64, device=topology.device), norm_unit(size)
    for part in parts_of_lists(to.degree):
        found = Lists.of(topology, to.part(part))
        degree = found.to.degree.clamp(min=1)
        square = (unit // degree // degree).clamp(min=1)
        norms.index_add_(0, topology.indices[found.numbers].long(), square[found.row])
    return norms


def by_frontier(hashed: int, topology: DeviceTopology, to: Destinations, size: int) -> Tensor:
    """Return the table of ladies.py for the destinations `to` of a whole batch."""
    norms = column_norms(topology, to)
    candidates = torch.nonzero(norms).flatten()
    original = topology.original_id[candidates]
    chance = torch.ones(len(candidates), dtype=torch.float64, device=topology.device)
    if size < len(candidates):
        # Sort by original id: the host sums in this order.
        order = original.argsort()
        candidates, original = candidates[order], original[order]
        importance = norms[candidates].double()
        chance = (importance * chance_scale(importance.cpu().numpy(), size)).clamp(max=1.0)
    kept = share_of_words(fold(hashed, original)) < chance
    table = torch.zeros(len(norms), dtype=torch.float64, device=topology.device)
    table[candidates[kept]] = chance[kept].reciprocal()
    return table


def by_norm(hashed: int, norms: Tensor, order: Tensor, up_to: Tensor, size: int) -> Tensor:
    """Return the table of fast_gcn.py; norms, order and up_to are those of column_norms.ByNorm, int64[n]."""
    if not len(up_to):
        return norms.double()
    points = bounded_wide(fold(hashed, torch.arange(size, device=norms.device)), up_to[-1])
    drawn = order[torch.searchsorted(up_to, points, right=True)]
    times = torch.bincount(drawn, minlength=len(norms))
    return times.double() * (int(up_to[-1]) / size) / norms.clamp(min=1).double()
