"""How much is held at once within the memory allowed: a chunk, a contracted graph, or a small graph as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.partitioning.request import PartitionRequest
from leapmpi.errors import ResourceError

_INTERPRETER = 200 << 20
"""Measured for this method; less than what workspace.py counts for all commands."""
_BYTES_PER_VERTEX = 32
"""Cluster or part, sizes and training vertices of clusters, training vertices, who waits, and copies on the way."""
_BYTES_PER_PAIR = 160
"""A pair of clusters: in the table that adds pairs up, in rows both ways, and in METIS."""
_BYTES_PER_HELD = 40
"""An entry of a small graph: as read, in rows, and in the graphs contracted from it."""
_MOST_PAIRS, _FEWEST_PAIRS = 1 << 20, 1 << 14
MOST_HELD = 1 << 22
_LEAST_CHUNK = 1 << 16
_MOST_VERTICES = 2**31 - 1


@dataclass(frozen=True)
class Budget:
    """Entries of a chunk, edges of a contracted graph, and entries of a graph or a part of it held as a whole."""

    chunk: int
    pairs: int
    held: int


def budget_for(vertices: int, entries: int, id_bytes: int, request: PartitionRequest) -> Budget:
    """What `request` allows for an undirected graph.

    Raises ResourceError when the vertices alone do not fit, with what would.
    """
    if vertices > _MOST_VERTICES:
        raise ResourceError(f"method grem numbers up to 2**31 vertices, the graph has {vertices:,}; use method hash")
    chunk = max(_LEAST_CHUNK, int(request.chunk * entries))
    if request.memory is None:
        return Budget(chunk, _MOST_PAIRS, MOST_HELD)
    # Reading and the work on a contracted graph do not take their memory at the same time, but the chunk stays.
    free = request.memory - _INTERPRETER - _BYTES_PER_VERTEX * vertices
    least = _FEWEST_PAIRS * _BYTES_PER_PAIR
    chunk = max(_LEAST_CHUNK, min(chunk, (free - least) // (2 * id_bytes)))
    free -= chunk * id_bytes
    if free < least:
        needed = request.memory - free + least
        raise ResourceError(
            f"method grem needs {needed / 2**30:.2f} GiB for {vertices:,} vertices, --max-mem allows "
            f"{request.memory / 2**30:.2f} GiB; allow more, or use method hash or contiguous"
        )
    return Budget(chunk, min(_MOST_PAIRS, free // _BYTES_PER_PAIR), min(MOST_HELD, free // _BYTES_PER_HELD))
