"""Fiduccia-Mattheyses where it matters: on the vertices within a few hops of the boundary between parts.

The band is read from the stream into memory. Everything outside is fixed, and stands in it as one vertex per part.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.weighted_graph import VertexWeights, WeightedGraph
from leapmpi.system.jit import compiled

_HOPS = 4


@compiled
def _mark(first, indptr, neighbours, assignment, band, hop):
    """Mark with hop + 1 what has neighbours marked `hop` or, for hop 0, in other parts; returns their entries."""
    entries = 0
    for row in range(len(indptr) - 1):
        v = first + row
        if band[v]:
            continue
        for e in range(indptr[row], indptr[row + 1]):
            u = neighbours[e]
            if band[u] == hop if hop else assignment[u] != assignment[v]:
                band[v] = hop + 1
                entries += indptr[row + 1] - indptr[row]
                break
    return entries


@compiled
def _extract(first, indptr, neighbours, assignment, local, out_indptr, out, out_weights, outside):
    """Write the rows of the vertices in the band; edges to what lies outside become one for each part, counted in
    outside int64[P], which is 0 before and after."""
    inside = len(out_indptr) - 1 - len(outside)
    for row in range(len(indptr) - 1):
        i = local[first + row]
        if i < 0:
            continue
        at = out_indptr[i]
        for e in range(indptr[row], indptr[row + 1]):
            u = neighbours[e]
            if local[u] >= 0:
                out[at] = local[u]
                out_weights[at] = 1
                at += 1
            else:
                outside[assignment[u]] += 1
        for p in range(len(outside)):
            if outside[p]:
                out[at] = inside + p
                out_weights[at] = outside[p]
                at += 1
                outside[p] = 0
        out_indptr[i + 1] = at


def improve_band(stream, assignment: np.ndarray, caps: Caps, most_entries: int) -> None:
    """Improve the cut int32[n] (-1: in no part) of an AdjacencyStream around its boundary, in place.

    Nothing is done where the rows of the boundary alone hold more than `most_entries` entries.
    """
    band = np.zeros(stream.vertices, np.uint8)
    total = 0
    for hop in range(_HOPS + 1):
        entries = sum(_mark(c.first, c.indptr, c.neighbours, assignment, band, hop) for c in stream.chunks())
        if total + entries > most_entries:
            band[band == hop + 1] = 0
            break
        total += entries
    if total:
        ids = np.flatnonzero(band)
        graph = _band_graph(stream, assignment, caps.parts, ids, total)
        found = np.concatenate([assignment[ids], np.arange(caps.parts, dtype=np.int32)])
        improve(graph, found, caps, fixed=caps.parts)
        assignment[ids] = found[: len(ids)]


def _band_graph(stream, assignment: np.ndarray, parts: int, ids: np.ndarray, entries: int) -> WeightedGraph:
    """The vertices `ids`, and after them one vertex per part for all of it that is outside, which has no row."""
    local = np.full(stream.vertices, -1, np.int32)
    local[ids] = np.arange(len(ids), dtype=np.int32)
    indptr = np.zeros(len(ids) + parts + 1, np.int64)
    neighbours, weights = np.empty(entries, np.uint32), np.empty(entries, np.int32)
    outside = np.zeros(parts, np.int64)
    for c in stream.chunks():
        _extract(c.first, c.indptr, c.neighbours, assignment, local, indptr, neighbours, weights, outside)
    used = indptr[len(ids)]
    indptr[len(ids) :] = used
    own = stream.vertex_weights.training
    training = own[ids] if len(own) else own
    sizes, trainings = loads(assignment, stream.vertex_weights, parts)
    sizes -= np.bincount(assignment[ids], minlength=parts)
    size = np.concatenate([np.ones(len(ids), np.int32), sizes.astype(np.int32)])
    if len(own):
        trainings -= np.bincount(assignment[ids], training, parts).astype(np.int64)
        training = np.concatenate([training, trainings.astype(np.int32)])
    return WeightedGraph(indptr, neighbours[:used], weights[:used], VertexWeights(size, training))
