"""Draws by weights in torch operations: neighbours and weights of weighted.py, bit-identical.

Sums of integers are exact in any order; sums of weights are added in the kernels' order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded_wide, fold
from leapmpi.device.lists import Chosen, DeviceDrawn, Lists, from_lists, normalised
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.samplers.weighted import LEAST, STEPS

Rule = Callable[[Lists], Tensor]
"""Function that returns the weights of all list entries, int64, 0 for those that are never drawn."""


def by_weight(
    hashed: int, topology: DeviceTopology, rule: Rule, to: Destinations, fanout: int, row_normalise: bool
) -> DeviceDrawn:
    """Draw as weighted.py does by the weights of `rule`."""
    drawn = from_lists(topology, to, lambda found: _systematic(hashed, found, rule(found), fanout))
    if row_normalise and drawn.weight is not None:
        return drawn._replace(weight=normalised(drawn.indptr, drawn.weight, to.degree))
    return drawn


def _systematic(hashed: int, found: Lists, weights: Tensor, fanout: int) -> Chosen:
    """Return the picks of destinations from their lists, and 1 / chance of each."""
    row = found.row
    positive = found.sums((weights > 0).long())
    short = positive <= fanout if fanout != ALL else torch.ones_like(positive, dtype=torch.bool)
    certain, picks, total = _certain(found, weights, fanout, short)
    left = weights.masked_fill(certain, 0)

    # Points are `total` apart; a neighbour is hit if its ends are in different intervals.
    length = picks[row] * left
    ends = length.cumsum(0)
    before_row = torch.cat((ends.new_zeros(1), ends))[found.indptr[:-1]]
    point = bounded_wide(fold(hashed, found.to.original), total.clamp(min=1))
    ends = ends - before_row[row] + point[row]
    apart = total.clamp(min=1)[row]
    hit = (left > 0) & (ends.div(apart, rounding_mode="floor") > (ends - length).div(apart, rounding_mode="floor"))
    weight = torch.where(certain, 1.0, total[row].double() / length.clamp(min=1).double()).float()
    return found.taken(certain | hit, weight)


def _certain(found: Lists, weights: Tensor, fanout: int, short: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return certain picks, remaining picks by row, and the weights of the others.

    short: bool[n], rows from which everything possible is picked.
    """
    row = found.row
    certain = (weights > 0) & short[row]
    left = weights.masked_fill(certain, 0)
    picks, total = (~short).long() * max(0, fanout), found.sums(left)
    active = ~short
    # As on the host, each removal raises the chances of the others; rows leave the loop one by one.
    while active.any():
        more = (left > 0) & active[row] & (picks[row] * left >= total[row])
        taken = found.sums(more.long())
        total = total - found.sums(left * more)
        left, certain = left.masked_fill(more, 0), certain | more
        picks = picks - taken
        active = active & (taken > 0) & (picks > 0) & (total > 0)
    return certain, picks, total


def steps_of_edges(edge_weight: Tensor, found: Lists) -> Tensor:
    """Return the edge weights as integers relative to the largest of the row, as weighted.py does: int64[entries]."""
    weight = edge_weight[found.numbers].double()
    largest = torch.zeros(len(found.to.degree), dtype=torch.float64, device=weight.device)
    largest.scatter_reduce_(0, found.row, weight, "amax")
    steps = (weight / largest[found.row].clamp(min=LEAST) * STEPS).long()
    return torch.where(weight > 0, steps.clamp(min=1), 0)
