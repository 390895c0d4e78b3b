"""ReLDG: LDG restreamed. Every further pass places all vertices again, knowing where the last one put the others.

Nishimura, Ugander, "Restreaming graph partitioning: simple versatile algorithms for advanced balancing" (KDD 2013).
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import room_of_a_part, training_vertices
from data_prep.partitioning.finishing import finished
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph

_PASSES = 10
_SETTLED = 0.001
"""Share of the vertices: no further pass once fewer change their part."""


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex, by its in-neighbours. At most ten passes over the edges."""
    training = training_vertices(graph)
    stream = Stream(graph, training, room_of_a_part(training, request), request)
    for _ in range(_PASSES):
        if stream.sweep() < _SETTLED * graph.vertices:
            break
        stream.restart()
    return finished(graph, stream.part_of, training, request)
