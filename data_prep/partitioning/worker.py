"""The process in which `leapmpi-prep compare` runs one method: python -m data_prep.partitioning.worker TASK.

TASK is a JSON object: `graph` (a path), `request` (fields of a PartitionRequest) and `training` (fan-outs and batch
size to report for, or null). Prints one JSON object: the figures of the partition, `seconds`, and `memory`, the most
bytes of this process's own (no pages of mapped files) with those of the largest process that it started. Kernels are
compiled before the clock starts.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.quality_report import report_on
from data_prep.partitioning.request import PartitionRequest
from data_prep.progress import Steps
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_file import open_graph
from leapmpi.errors import LeapmpiError

_RING = 64


def main() -> None:
    """Run the task that the command line names."""
    task = json.loads(sys.argv[1])
    try:
        print(json.dumps(_run(task)))
    except LeapmpiError as error:
        print(json.dumps({"error": str(error), "exit_code": error.exit_code}))


def _run(task: dict[str, Any]) -> dict[str, Any]:
    """Partition the graph of the task and measure it; returns the figures."""
    graph = open_graph(task["graph"])
    request = PartitionRequest(**{**task["request"], "levels": tuple(task["request"]["levels"])})

    # A tiny graph with arrays of the same types compiles the kernels.
    partition_graph(_ring_like(graph), replace(request, levels=(2,), memory=None))

    steps = Steps(silent=True)
    with steps.step("cut"):
        result = partition_graph(graph, request)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    step = steps.done[0]
    report = report_on(graph, result.assignment, request.parts, task["training"])
    measured = {"used": result.method, "seconds": step.seconds, "memory": step.own + children}
    return {"method_reason": result.reason, **result.figures(), **report.figures(), **measured}


def _ring_like(graph: Graph) -> Graph:
    """Build a ring of vertices with arrays of the types of `graph`, read-only as mapped arrays are."""
    v = np.arange(_RING)
    indices = np.sort(np.stack([(v - 1) % _RING, (v + 1) % _RING], axis=1)).astype(graph.indices.dtype).reshape(-1)
    split = None if graph.split is None else (v % 2).astype(np.int8)
    ring = Graph(np.arange(_RING + 1, dtype=np.int64) * 2, indices, split=split)
    for array in (ring.indptr, ring.indices, ring.original_id, *([] if split is None else [split])):
        array.flags.writeable = False
    return ring


if __name__ == "__main__":
    main()
