"""Whole types of vertices on one part each, by the schema alone: a test of extremes for typed graphs.

In the manner of the meta-partitioning of Heta (PVLDB 18(9), 2025). The largest type goes to the emptiest part first.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.errors import ConfigError, counted


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex. Raises ConfigError for more parts than types that have vertices."""
    if request.groups is None:
        raise ConfigError("--method meta cuts typed graphs alone; use another method")
    counts = np.bincount(request.groups)
    types = int(np.count_nonzero(counts))
    if request.parts > types:
        raise ConfigError(
            f"--method meta puts each of {counted(types, 'type')} on one part, so that "
            f"{counted(request.parts, 'part')} are too many; use "
            "fewer, or another method"
        )
    part_of, loads = np.zeros(len(counts), np.int32), np.zeros(request.parts, np.int64)
    for group in np.argsort(-counts, kind="stable"):
        part_of[group] = loads.argmin()
        loads[part_of[group]] += counts[group]
    return MethodResult(part_of[request.groups])


MEMBER = PartitionMethod(partition, groups=True)
