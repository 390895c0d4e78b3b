"""What each part of the dataset does in a full batch, by which its seconds are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.nn.layer import Layer, costs
from leapmpi.plan.homes import home_of
from leapmpi.plan.part_balance import PartCounts


def part_counts(topology: Topology, train: np.ndarray, offsets: np.ndarray, layers: Sequence[Layer]) -> PartCounts:
    """Vertices, edges and boundaries of the layers that parts compute for the training vertices `train`, int64[n].

    offsets: int64[P + 1], the first vertex of each part. Each layer counts by its work: vertices and edges in
    multiply-adds, rows that are read of other parts in numbers. Takes a pass over the edges for each layer.
    """
    parts = len(offsets) - 1
    counts = PartCounts(np.zeros((parts, 2)), np.zeros((parts, parts)))
    computed = np.zeros(topology.vertices, bool)
    computed[train] = True
    for number, layer in reversed(list(enumerate(layers))):
        of_vertex, of_edge = _work(layer, number > 0)
        below = computed.copy()
        for part, (first, end) in enumerate(pairwise(offsets.tolist())):
            mine = first + np.flatnonzero(computed[first:end])
            sources = topology.in_neighbours(mine)
            counts.own[part] += len(mine) * of_vertex, len(sources) * of_edge

            # Distinct rows of other parts.
            read = np.zeros(topology.vertices, bool)
            read[sources] = True
            below |= read
            read[first:end] = False
            counts.read[part] += layer.in_dim * np.bincount(home_of(np.flatnonzero(read), offsets), minlength=parts)
        computed = below
    return counts


def _work(layer: Layer, passes_on: bool) -> tuple[int, int]:
    """Multiply-adds of a destination of `layer` and of an edge; `passes_on` says that its input has a gradient."""
    (source, _), (_, row) = costs(layer, 1, 0, 0, passes_on), costs(layer, 0, 1, 0, passes_on)
    before, after = costs(layer, 0, 0, 1, passes_on)
    return (row, min(before, after)) if layer.linear else (source + row, before)
