"""Draws from tables, as in layer_tables.py, and the tables of ladies, fast-gcn and labor-i, in torch operations.

Tables are float64[n]: weights, 0 for sources that were not drawn, or the importance of sources. Norms are integers, so
the order of sums does not matter; sums over a list are added entry by entry, as the CPU's kernels do. The sums behind
the chances of ladies are the host's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import bounded_wide, fold, shifted
from leapmpi.device.lists import Chosen, DeviceDrawn, Lists, from_lists, parts_of_lists, sums_in_order
from leapmpi.device.uniform_draws import source_numbers
from leapmpi.sampling.column_norms import norm_unit
from leapmpi.sampling.samplers.labor_i import CLOSE, MOST_ROUNDS
from leapmpi.sampling.samplers.ladies import chance_scale
from leapmpi.sampling.source_numbers import Law


class Counts(NamedTuple):
    """Numbers of subgraphs that hold each vertex (int32[n]) and each edge (int32[edges])."""

    of_vertex: Tensor
    of_edge: Tensor


class Norms(NamedTuple):
    """Arrays of column_norms.ByNorm: norms, at least 1, float64[n]; order and up_to, int64[n]; and their `total`."""

    norms: Tensor
    order: Tensor
    up_to: Tensor
    total: int


def from_table(
    topology: DeviceTopology, table: Tensor, to: Destinations, weighted: bool = True, counts: Counts | None = None
) -> DeviceDrawn:
    """Return the in-neighbours in `table`: with its weights, without, or with vertex count / edge count of `counts`."""

    def choose(found: Lists) -> Chosen:
        weight = table[topology.indices[found.numbers].long()]
        mask = weight > 0
        if counts is not None:
            both = counts.of_vertex[found.to.vertices[found.row]], counts.of_edge[found.numbers]
            of_vertex, of_edge = (each.clamp(min=1).double() for each in both)
            weight = of_vertex / of_edge
        return found.taken(mask, weight.float() if weighted else None)

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
    """Return the table of ladies.py for the destinations `to` of a whole batch: float64[n]."""
    norms = column_norms(topology, to)
    chance = (norms.double() * scale_of_chances(topology, norms, size)).clamp(max=1.0)
    kept = (norms > 0) & (share_of_words(fold(hashed, topology.original_id)) < chance)
    return torch.where(kept, chance.reciprocal(), 0.0)


def scale_of_chances(topology: DeviceTopology, norms: Tensor, size: int) -> float:
    """Return the c of ladies.py, whose candidates have the chance min(1, c x norm); norms: int64[n].

    The host adds up, in the order of original ids. With no more than `size` candidates all chances are 1.
    """
    candidates = torch.nonzero(norms).flatten()
    if size >= len(candidates):
        return 1.0
    importance = norms[candidates[topology.original_id[candidates].argsort()]]
    return float(chance_scale(importance.double().cpu().numpy(), size))


def by_norm(hashed: int, importance: Norms, size: int) -> Tensor:
    """Return the table of fast_gcn.py: float64[n]."""
    norms, order, up_to, total = importance
    if not total:
        return torch.zeros_like(norms)
    points = bounded_wide(fold(hashed, torch.arange(size, device=norms.device)), up_to[-1])
    drawn = order[torch.searchsorted(up_to, points, right=True)]
    return weights_of_norms(importance, torch.bincount(drawn, minlength=len(norms)), size)


def weights_of_norms(importance: Norms, times: Tensor, size: int) -> Tensor:
    """Return the table of fast_gcn.py from how often each vertex was drawn, int64[n]."""
    return times.double() * (importance.total / size) / importance.norms


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
