"""Fiduccia-Mattheyses on the band: the vertices within a few hops of the boundary between parts.

The band is read from the stream into memory. The vertices outside are fixed; one vertex per part stands for them.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.weighted_graph import VertexWeights, WeightedGraph
from leapmpi.system.jit import compiled

_HOPS = 4


@compiled
def _mark(first, indptr, neighbours, assignment, band, hop):
    """Mark with hop + 1 the vertices with neighbours marked `hop` or, for hop 0, in other parts.

    Returns how many entries their rows have.
    """
    entries = 0
    for row in range(len(indptr) - 1):
        v = first + row
        if band[v]:
            continue
        for e in range(indptr[row], indptr[row + 1]):
            u = neighbours[e]
            # Hop 0 are ends of cut edges; each later hop borders on the one before.
            if band[u] == hop if hop else assignment[u] != assignment[v]:
                band[v] = hop + 1
                entries += indptr[row + 1] - indptr[row]
                break
    return entries


@compiled
def _extract(first, indptr, neighbours, assignment, local, out_indptr, out, out_weights, outside):
    """Write the rows of the vertices in the band; edges to vertices outside become one edge for each part.

    local int32[n] is the number of a vertex in the band, or -1; outside int64[P] is 0 before and after.
    """
    # The rest of a part is one vertex: gains at the border of the band stay exact, and the band stays small.
    inside = len(out_indptr) - 1 - len(outside)
    for row in range(len(indptr) - 1):
        i = local[first + row]
        if i < 0:
            continue
        end = out_indptr[i]
        for e in range(indptr[row], indptr[row + 1]):
            u = neighbours[e]
            if local[u] >= 0:
                out[end] = local[u]
                out_weights[end] = 1
                end += 1
            else:
                outside[assignment[u]] += 1

        # One edge to the vertex that stands for the rest of each part.
        for p in range(len(outside)):
            if outside[p]:
                out[end] = inside + p
                out_weights[end] = outside[p]
                end += 1
                outside[p] = 0
        out_indptr[i + 1] = end


def improve_band(stream: AdjacencyStream, assignment: np.ndarray, caps: Caps, most_entries: int) -> None:
    """Improve the parts int32[n] (-1: in no part) of a graph around their boundary, in place.

    Nothing is done where the rows of the boundary alone hold more than `most_entries` entries.
    """
    # Widen the band hop by hop, as long as it fits; a pass over the graph each.
    band = np.zeros(stream.vertices, np.uint8)
    total = 0
    for hop in range(_HOPS + 1):
        entries = 0
        for chunk in stream.chunks():
            entries += _mark(chunk.first, chunk.indptr, chunk.neighbours, assignment, band, hop)
        if total + entries > most_entries:
            band[band == hop + 1] = 0
            break
        total += entries

    # Improve it in memory.
    if total:
        ids = np.flatnonzero(band)
        graph = _band_graph(stream, assignment, caps.parts, ids, total)
        found = np.concatenate([assignment[ids], np.arange(caps.parts, dtype=np.int32)])
        improve(graph, found, caps, fixed=caps.parts)
        assignment[ids] = found[: len(ids)]


def _band_graph(
    stream: AdjacencyStream, assignment: np.ndarray, parts: int, ids: np.ndarray, entries: int
) -> WeightedGraph:
    """Build the graph of the vertices `ids`, and after them one vertex per part, without a row, for those outside."""
    # The rows, read in one more pass.
    local = np.full(stream.vertices, -1, np.int32)
    local[ids] = np.arange(len(ids), dtype=np.int32)
    indptr = np.zeros(len(ids) + parts + 1, np.int64)
    neighbours, weights = np.empty(entries, np.uint32), np.empty(entries, np.int32)
    outside = np.zeros(parts, np.int64)
    for chunk in stream.chunks():
        _extract(chunk.first, chunk.indptr, chunk.neighbours, assignment, local, indptr, neighbours, weights, outside)
    used = indptr[len(ids)]
    indptr[len(ids) :] = used

    # A vertex that stands for others weighs as much as these.
    all_training = stream.vertex_weights.training
    training = all_training[ids] if len(all_training) else all_training
    sizes, trainings = loads(assignment, stream.vertex_weights, parts)
    sizes -= np.bincount(assignment[ids], minlength=parts)
    size = np.concatenate([np.ones(len(ids), np.int32), sizes.astype(np.int32)])
    if len(all_training):
        trainings -= np.bincount(assignment[ids], training, parts).astype(np.int64)
        training = np.concatenate([training, trainings.astype(np.int32)])
    return WeightedGraph(indptr, neighbours[:used], weights[:used], VertexWeights(size, training))
