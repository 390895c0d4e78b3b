"""Auto: the method that suits the size of the graph and the memory allowed, with the reason for the choice."""

from __future__ import annotations

from data_prep.partitioning.methods.metis import memory_needed
from data_prep.partitioning.request import PartitionRequest
from data_prep.workspace import INTERPRETER_BYTES, gibibytes, memory_budget
from leapmpi.dataset.graph import Graph

METIS_EDGES = 10_000_000
"""Directed edges up to which METIS is quick: about ten seconds."""

_GREM_BYTES, _GREM_BYTES_PER_VERTEX = 1 << 26, 32


def choose(graph: Graph, request: PartitionRequest) -> tuple[str, str]:
    """The method, and why: metis where it is quick and fits in memory, else grem, else ldg, which needs least."""
    memory = request.memory or memory_budget(None)
    metis = memory_needed(graph) + INTERPRETER_BYTES
    grem = _GREM_BYTES + _GREM_BYTES_PER_VERTEX * graph.vertices + INTERPRETER_BYTES
    size = f"{graph.edges:,} edges"

    # The best parts first, as long as time and memory allow them.
    if graph.edges <= METIS_EDGES and metis <= memory:
        return "metis", f"{size} are few enough for it to be quick, and it needs {gibibytes(metis)}"
    why = f"metis would need {gibibytes(metis)} of memory, and {gibibytes(memory)} may be used"
    if metis <= memory:
        why = f"metis would take long for {size}"
    if grem <= memory:
        return "grem", why
    return "ldg", f"{why}; grem would need {gibibytes(grem)}"
