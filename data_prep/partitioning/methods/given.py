"""Given: the parts that a file names, as they are: a cut made by METIS, DistDGL or anything else.

Nothing is repaired or renumbered, so that part p holds what part p held there.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.errors import ConfigError, DataError, counted


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the given part of each vertex.

    Raises DataError where parts do not fit the graph, or one of them is empty.
    """
    if request.given is None:
        raise ConfigError("method given keeps a cut that exists; name it: leapmpi-prep partition --parts-from FILE")
    parts = request.given

    # Import may have left out rows of the source, but parts are given for all rows: only too few are an error.
    last = int(graph.original_id[-1])
    if len(parts) <= last:
        raise DataError(
            f"the given parts have {counted(len(parts), 'row')}, but the graph has vertices up to row {last:,} of its "
            "source "
            "(counted from 0); give one part for each vertex of the source"
        )
    found = np.asarray(parts[np.asarray(graph.original_id)])
    bad = (found < 0) | (found >= request.parts)
    if bad.any():
        v = int(np.argmax(bad))
        raise DataError(
            f"the given parts: row {graph.original_id[v]:,} says part {found[v]}, outside 0 ... {request.parts - 1}; "
            "count parts from 0, and let --parts be their number"
        )
    # A rank without vertices would have nothing to train on.
    empty = np.flatnonzero(np.bincount(found, minlength=request.parts) == 0)
    if len(empty):
        raise DataError(
            f"the given parts: no vertex of the graph is in part {empty[0]} of {request.parts}; number the parts "
            "without gaps"
        )
    return MethodResult(found.astype(np.int32))


MEMBER = PartitionMethod(partition)
