"""Fennel: one pass, each vertex to its neighbours, at a price that grows with the size of their part.

Tsourakakis, Gkantsidis, Radunovic, Vojnovic, "FENNEL: streaming graph partitioning for massive scale graphs"
(WSDM 2014): the part with the largest number of neighbours - alpha gamma size^(gamma - 1), with gamma = 3/2 and
alpha = sqrt(parts) edges / vertices^(3/2), edges counted once. The cap is the request's, also of training vertices.
"""

from __future__ import annotations

import math

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex, by the in-neighbours placed before it."""
    stream = Stream(graph, request)
    stream.sweep(alpha=math.sqrt(request.parts) * graph.edges / 2 / graph.vertices**1.5)
    return stream.result()


MEMBER = PartitionMethod(partition, weights=True)
