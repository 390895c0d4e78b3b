"""LDG, linear deterministic greedy: one pass, each vertex to its neighbours, less so the fuller their part is.

Stanton, Kliot, "Streaming graph partitioning for large distributed graphs" (KDD 2012): the part with the largest
number of neighbours x (1 - size / largest size). Training vertices also count the free share of theirs.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import room_of_a_part, training_vertices
from data_prep.partitioning.finishing import finished
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex, by the in-neighbours placed before it."""
    training = training_vertices(graph)
    stream = Stream(graph, training, room_of_a_part(training, request), request)
    stream.sweep()
    return finished(graph, stream.part_of, training, request)
