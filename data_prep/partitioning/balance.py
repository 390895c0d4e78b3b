"""How many vertices and training vertices a part may have."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names


class Room(NamedTuple):
    """The most vertices, and the most training vertices, of one part."""

    vertices: int
    training: int


def largest_part(total: int, parts: int, tolerance: float) -> int:
    """`tolerance` times the mean of `total` over the parts, rounded down, but at least the mean rounded up."""
    return max(math.ceil(total / parts), math.floor(tolerance * total / parts))


def room_of_a_part(training: np.ndarray, request: PartitionRequest) -> Room:
    """What `request` allows each part of a graph with training vertices bool[n]."""
    totals = (len(training), int(np.count_nonzero(training)))
    return Room(*(largest_part(total, request.parts, request.tolerance) for total in totals))


def training_vertices(graph: Graph) -> np.ndarray:
    """bool[n]: which vertices of `graph` are training vertices; none without a split."""
    if graph.split is None:
        return np.zeros(graph.vertices, bool)
    return np.asarray(graph.split) == names.TRAIN
