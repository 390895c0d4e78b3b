"""Edges of a block grouped by relation and destination, compiled for the CPU; in torch operations for other devices.

Within a destination edges are ordered by relation, so that a group is a run of edges.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.system.jit import compiled


@compiled
def _count(indptr, relation, groups, edges):
    for i in range(len(indptr) - 1):
        last = np.int64(-1)
        for e in range(indptr[i], indptr[i + 1]):
            r = np.int64(relation[e])
            groups[r + 1] += r != last
            edges[r + 1] += 1
            last = r


@compiled
def _fill(indptr, relation, groups, edges, destination, first, order):
    for i in range(len(indptr) - 1):
        last = np.int64(-1)
        for e in range(indptr[i], indptr[i + 1]):
            r = np.int64(relation[e])
            if r != last:
                destination[groups[r]] = i
                first[groups[r]] = edges[r]
                groups[r] += 1
                last = r
            order[edges[r]] = e
            edges[r] += 1


def group_edges(indptr: Tensor, relation: Tensor) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Group the edges of each destination and relation; groups are ordered by relation, then destination.

    indptr: int64[n + 1], where the edges of each destination start; relation: integers[edges]. Returns int64[edges],
    the number in the block of each edge in the order of groups; int64[G + 1], where the edges of each group start in
    this order; int64[G], the destination of each group; and int64[R + 1] on the host, where the groups of each relation
    start, for R more than the largest relation.
    """
    if not on_host(relation.device):
        return _group_edges_tensor(indptr, relation)
    relations = int(relation.max()) + 1 if len(relation) else 0
    # A counting sort in two passes: first the sizes, then the places.
    groups, edges = np.zeros(relations + 1, np.int64), np.zeros(relations + 1, np.int64)
    arrays = indptr.numpy(), relation.numpy()
    _count(*arrays, groups, edges)
    bounds, starts = groups.cumsum(), edges.cumsum()
    count = int(bounds[-1])
    destination, first, order = (
        np.empty(count, np.int64), np.empty(count + 1, np.int64), np.empty(len(relation), np.int64)
    )  # fmt: skip
    _fill(*arrays, bounds.copy(), starts, destination, first, order)
    first[-1] = len(relation)
    return torch.from_numpy(order), torch.from_numpy(first), torch.from_numpy(destination), bounds


def _group_edges_tensor(indptr: Tensor, relation: Tensor) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    count = len(indptr) - 1
    rows = torch.arange(count, device=indptr.device)
    of_edge = rows.repeat_interleave(indptr.diff(), output_size=len(relation))
    keys, order = torch.sort(relation.long() * count + of_edge, stable=True)
    found, sizes = torch.unique_consecutive(keys, return_counts=True)
    first = torch.zeros(len(found) + 1, dtype=torch.int64, device=indptr.device)
    torch.cumsum(sizes, 0, out=first[1:])
    of_group = found // max(1, count)
    bounds = torch.bincount(of_group).cumsum(0).cpu().numpy()
    return order, first, found - of_group * count, np.concatenate(([0], bounds)).astype(np.int64)
