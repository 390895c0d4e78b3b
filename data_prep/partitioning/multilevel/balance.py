"""Loads of parts and their caps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_prep.partitioning.multilevel.weighted_graph import VertexWeights
from leapmpi.system.jit import compiled


class Caps(NamedTuple):
    """The number of parts, and the most vertices, and training vertices (or other weight), of one part."""

    parts: int
    size: int
    training: int


class PartLoads(NamedTuple):
    """Parts (or clusters) while vertices move between them.

    assignment int32[n] is the part of each vertex; sizes and trainings, integers[P], count the vertices and training
    vertices of each part; limits int64[2] are the most of either.
    """

    assignment: np.ndarray
    sizes: np.ndarray
    trainings: np.ndarray
    limits: np.ndarray


@compiled
def _loads(assignment, size, training, sizes, trainings):
    for v in range(len(assignment)):
        p = assignment[v]
        if p >= 0:
            sizes[p] += size[v] if len(size) else 1
            trainings[p] += training[v] if len(training) else 0


def loads(assignment: np.ndarray, weights: VertexWeights, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Count vertices and training vertices int64[P] of each part; vertices with part -1 count nowhere."""
    sizes = np.zeros(parts, np.int64)
    trainings = np.zeros(parts, np.int64)
    _loads(assignment, weights.size, weights.training, sizes, trainings)
    return sizes, trainings


def part_loads(assignment: np.ndarray, weights: VertexWeights, caps: Caps) -> PartLoads:
    """Compute the loads of parts by `assignment` int32[n], which moves of vertices will change."""
    return PartLoads(assignment, *loads(assignment, weights, caps.parts), np.array([caps.size, caps.training]))


def excess(sizes: np.ndarray, trainings: np.ndarray, caps: Caps) -> float:
    """Measure how far parts are too full, in shares of a part: 0 where the caps hold."""
    over_size = np.maximum(0, sizes - caps.size).sum() / max(1, caps.size)
    return float(over_size + np.maximum(0, trainings - caps.training).sum() / max(1, caps.training))
