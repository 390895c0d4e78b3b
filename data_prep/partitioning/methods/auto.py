"""Auto: the methods that suit the size of the graph and the memory allowed, with the reason for the choice."""

from __future__ import annotations

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.methods.metis import memory_needed
from data_prep.partitioning.request import PartitionRequest
from data_prep.workspace import INTERPRETER_BYTES, gibibytes, memory_budget
from leapmpi.dataset.graph import Graph

SMALL_EDGES = 1_000_000
"""Directed edges up to which METIS and grem together take seconds."""

_GREM_BYTES, _GREM_BYTES_PER_VERTEX = 1 << 26, 32


def choose(graph: Graph, request: PartitionRequest) -> tuple[tuple[str, ...], str]:
    """Choose the methods to try, and say why; the result with the smallest cut counts.

    Of a small graph metis and grem, as either may cut less; else grem, which cuts less in no more time (the tables of
    partitioning/README.md); else ldg, which needs least memory.
    """
    memory = request.memory or memory_budget(None)
    metis = memory_needed(graph) + INTERPRETER_BYTES
    grem = _GREM_BYTES + _GREM_BYTES_PER_VERTEX * graph.vertices + INTERPRETER_BYTES
    size = f"{graph.edges:,} edges"

    if grem > memory:
        return ("ldg",), f"grem would need {gibibytes(grem)} of memory, and {gibibytes(memory)} may be used"
    # Beyond this METIS takes many times as long for a cut that is rarely smaller.
    if graph.edges > SMALL_EDGES:
        return ("grem",), f"for {size} it cuts less than metis, and takes no longer"
    if metis > memory:
        return ("grem",), f"metis would need {gibibytes(metis)} of memory, and {gibibytes(memory)} may be used"
    return ("grem", "metis"), f"{size} are few enough to try both"


MEMBER = PartitionMethod(choose=choose)
