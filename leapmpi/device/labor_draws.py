"""Importance of sources and draws of labor_i.py in torch operations, bit-identical.

Sums over a list are added entry by entry, as the CPU's kernels do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.lists import Chosen, DeviceDrawn, Lists, from_lists, parts_of_lists, sums_in_order
from leapmpi.device.table_draws import share_of_words
from leapmpi.device.uniform_draws import source_numbers
from leapmpi.sampling.samplers.labor_i import CLOSE, MOST_ROUNDS
from leapmpi.sampling.source_numbers import Law


def importance_of(topology: DeviceTopology, to: Destinations, fanout: int, rounds: int) -> Tensor:
    """Return the importance of each source for the destinations `to` of a whole batch: float64[n]."""
    importance = torch.ones(len(topology.original_id), dtype=torch.float64, device=topology.device)
    choosing = to.part(to.degree > fanout)
    for _ in range(rounds):
        largest = torch.zeros_like(importance)
        for part in parts_of_lists(choosing.degree):
            found = Lists.of(topology, choosing.part(part))
            source = topology.indices[found.numbers].long()
            scales = _scales(found, importance[source], fanout)
            largest.scatter_reduce_(0, source, scales[found.row], "amax")
        importance = torch.where(largest > 0, importance * largest, importance)
    return importance


def by_importance(law: Law, topology: DeviceTopology, importance: Tensor, to: Destinations, fanout: int) -> DeviceDrawn:
    """Return in-neighbours with a number below their chance, with 1 / chance; fan-out ALL takes every one."""

    def choose(found: Lists) -> Chosen:
        each = importance[topology.indices[found.numbers].long()]
        chance = torch.ones_like(each)
        some = found.to.degree > fanout if fanout >= 0 else torch.zeros_like(found.to.degree, dtype=torch.bool)
        of_some = torch.nonzero(some[found.row]).flatten()
        lists = Lists.of(topology, found.to.part(some))
        scales = _scales(lists, each[of_some], fanout)
        chance[of_some] = (scales[lists.row] * each[of_some]).clamp(max=1.0)
        kept = (chance == 1) | (share_of_words(source_numbers(law, topology, found)) < chance)
        return found.taken(kept, chance.reciprocal().float())

    return from_lists(topology, to, choose)


def _scales(found: Lists, importance: Tensor, fanout: int) -> Tensor:
    """Return the c of destinations that choose, by the importance of their list entries: float64[n] (labor_i._scale).

    Divisors are tensors: by a number torch may multiply with its inverse.
    """
    degree = found.to.degree.double()
    target = degree * (degree / torch.full_like(degree, fanout))
    scale = sums_in_order(found.indptr, importance.reciprocal()) / target
    active = torch.ones_like(scale, dtype=torch.bool)
    for _ in range(MOST_ROUNDS):
        total = sums_in_order(found.indptr, (scale[found.row] * importance).clamp(max=1.0).reciprocal())
        active = active & ~(total <= target * CLOSE)
        if not active.any():
            break
        scale = torch.where(active, scale * (total / target), scale)
    return scale
