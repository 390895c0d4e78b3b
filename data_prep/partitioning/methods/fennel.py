"""Fennel: one pass, each vertex to its neighbours, at a price that grows with the size of their part.

Tsourakakis, Gkantsidis, Radunovic, Vojnovic, "FENNEL: streaming graph partitioning for massive scale graphs"
(WSDM 2014): the part with the largest number of neighbours - alpha gamma size^(gamma - 1), with gamma = 3/2 and
alpha = sqrt(parts) edges / vertices^(3/2), edges counted once. The cap is the request's, also of training vertices.
"""

from __future__ import annotations

import math

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
    stream.sweep(alpha=math.sqrt(request.parts) * graph.edges / 2 / graph.vertices**1.5)
    return finished(graph, stream.part_of, training, request)
