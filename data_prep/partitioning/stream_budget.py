"""Memory budget for a graph whose edges stream by: the part of --max-mem beside the vertices."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.errors import ResourceError, counted

_INTERPRETER = 200 << 20
"""Measured for method grem; less than what workspace.py counts for all commands."""
_BYTES_PER_VERTEX = 32
"""Cluster or part, sizes and training vertices of clusters, training vertices, who waits, and copies on the way."""
_BYTES_PER_PAIR = 160
"""A pair of clusters: in the table that adds pairs up, in rows both ways, and in METIS."""
_BYTES_PER_HELD = 40
"""An entry of a small graph: as read, in rows, and in the graphs contracted from it."""
_MOST_PAIRS, _FEWEST_PAIRS = 1 << 20, 1 << 14
_MOST_HELD = HELD = 1 << 22
"""Graphs with more entries stay on disk, whatever the memory."""
_LEAST_CHUNK = 1 << 16
_MOST_VERTICES = 2**31 - 1


@dataclass(frozen=True)
class Budget:
    """Entries of a chunk, edges of a contracted graph, and entries of a graph or a part of it held as a whole."""

    chunk: int
    pairs: int
    held: int


def budget_for(graph: Graph, request: PartitionRequest, what: str, instead: str) -> Budget:
    """Return the budget of `what` for the undirected graph under `graph`; `instead` names an alternative.

    Raises ResourceError when the vertices alone do not fit, with what would.
    """
    vertices = graph.vertices
    if vertices > _MOST_VERTICES:
        raise ResourceError(f"{what} numbers up to 2**31 vertices, the graph has {vertices:,}; {instead}")
    chunk = max(_LEAST_CHUNK, int(request.chunk * graph.edges))
    if request.memory is None:
        return Budget(chunk, _MOST_PAIRS, _MOST_HELD)
    # Reading and the work on a contracted graph do not take their memory at the same time, but the chunk stays.
    free = request.memory - _INTERPRETER - _BYTES_PER_VERTEX * vertices
    least, id_bytes = _FEWEST_PAIRS * _BYTES_PER_PAIR, graph.indices.itemsize
    chunk = max(_LEAST_CHUNK, min(chunk, (free - least) // (2 * id_bytes)))
    free -= chunk * id_bytes
    if free < least:
        needed = request.memory - free + least
        raise ResourceError(
            f"{what} needs {needed / 2**30:.2f} GiB for {counted(vertices, 'vertex')}, --max-mem allows "
            f"{request.memory / 2**30:.2f} GiB; allow more, or {instead}"
        )
    return Budget(chunk, min(_MOST_PAIRS, free // _BYTES_PER_PAIR), min(_MOST_HELD, free // _BYTES_PER_HELD))
