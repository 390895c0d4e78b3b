"""A partition made better while the graph streams by: vertices move to the part that holds most of their neighbours.

Moves keep the caps. Where the part that a vertex prefers is full, the vertex changes places with one of that part that
prefers the opposite.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.balance import Caps, excess, loads, part_loads
from data_prep.partitioning.multilevel.blocks import Workers, move_by_blocks
from data_prep.partitioning.multilevel.weighted_graph import Chunk
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_MOST_PARTS_FOR_SWAPS = 512


@compiled
def _propose(chunk, begin, end, parts, vertex_weights, seed, links, target, blocked):
    """Find the part that the vertex of each row would move to, or its present one: target[row].

    blocked[row]: that part is full, and no other part is better than the present one. links int64[P] is 0 before and
    after. Returns the number of entries of vertices with neighbours in other parts, and the weight of the entries to
    other parts.
    """
    assignment, sizes, trainings, caps = parts
    neighbours, weights = chunk.neighbours, chunk.weights
    boundary, cut = 0, 0
    for row in range(begin, end):
        v = chunk.first + row
        source = assignment[v]
        target[row] = source
        blocked[row] = False
        if source < 0:
            continue

        # Add up the weights of the edges by part.
        start, stop = chunk.indptr[row], chunk.indptr[row + 1]
        for e in range(start, stop):
            links[assignment[neighbours[e]]] += weights[e] if len(weights) else 1
        inside = links[source]
        links[source] = 0

        # `best` is the best part with capacity, `preferred` the best of all; ties are broken by a hash.
        v_size = vertex_weights.size[v] if len(vertex_weights.size) else 1
        v_training = vertex_weights.training[v] if len(vertex_weights.training) else 0
        base = fold(seed, v)
        best, most, best_draw = source, inside, np.uint64(0)
        preferred, preferred_links = source, inside
        crosses = False
        for e in range(start, stop):
            p = assignment[neighbours[e]]
            w = links[p]
            if w == 0:
                continue  # seen before, or the present part
            links[p] = 0
            cut += w
            crosses = True
            if w < most and w <= preferred_links:
                continue
            if w > preferred_links:
                preferred, preferred_links = p, w
            if sizes[p] + v_size > caps[0] or trainings[p] + v_training > caps[1]:
                continue
            # Without a gain a vertex moves only to a smaller part.
            if w == inside and sizes[p] + v_size > sizes[source] - v_size:
                continue
            draw = fold(base, p)
            if w > most or draw > best_draw:
                best, most, best_draw = p, w, draw
        if crosses:
            boundary += stop - start
        blocked[row] = best == source and preferred != source
        target[row] = preferred if blocked[row] else best
    return boundary, cut


@compiled
def _gain(row, source, to, other, chunk, assignment):
    """Return the gain of moving the row's vertex from part `source` to `to`, and the weight of its edge to `other`."""
    gain, joined = 0, 0
    for e in range(chunk.indptr[row], chunk.indptr[row + 1]):
        p = assignment[chunk.neighbours[e]]
        if p == to:
            w = chunk.weights[e] if len(chunk.weights) else 1
            gain += w
            if chunk.neighbours[e] == other:
                joined += w
        elif p == source:
            gain -= chunk.weights[e] if len(chunk.weights) else 1
    return gain, joined


@compiled
def _move(v, to, parts, v_size, v_training):
    source = parts.assignment[v]
    parts.sizes[source] -= v_size
    parts.trainings[source] -= v_training
    parts.sizes[to] += v_size
    parts.trainings[to] += v_training
    parts.assignment[v] = to


@compiled
def _apply(chunk, begin, end, target, is_blocked, parts, vertex_weights, waiting, behind):
    """Make the proposed moves that still gain, one after the other; returns how many vertices moved.

    For each two parts, waiting int32[P, P] holds the last vertex of the first that found the second full, or -1. Then
    behind int32[n] holds the one before each. Such vertices gain by moving; they change places with one that prefers
    the opposite. Without swaps waiting is int32[0, 0].
    """
    assignment, sizes, trainings, caps = parts
    moved = 0
    for row in range(begin, end):
        v = chunk.first + row
        source, to = assignment[v], target[row]
        if to == source or source < 0:
            continue

        # The last vertex u that waits to move the opposite way; those that have moved since are dropped.
        u = waiting[to, source] if len(waiting) else -1
        while u >= 0 and assignment[u] != to:
            u = behind[u]
            waiting[to, source] = u

        # Moves before this one in the block may have changed what it gains.
        gain, joined = _gain(row, source, to, u, chunk, assignment)
        v_size = vertex_weights.size[v] if len(vertex_weights.size) else 1
        v_training = vertex_weights.training[v] if len(vertex_weights.training) else 0
        if gain < 0 or (gain == 0 and (is_blocked[row] or sizes[to] + v_size > sizes[source] - v_size)):
            continue
        if sizes[to] + v_size <= caps[0] and trainings[to] + v_training <= caps[1]:
            _move(v, to, parts, v_size, v_training)
            moved += 1
        elif len(waiting) and gain > 0:
            # Exchange v and u; an edge between the two stays cut, which costs its weight twice.
            if u >= 0 and gain >= 2 * joined:
                u_size = vertex_weights.size[u] if len(vertex_weights.size) else 1
                u_training = vertex_weights.training[u] if len(vertex_weights.training) else 0
                if (
                    sizes[to] + v_size - u_size <= caps[0]
                    and sizes[source] + u_size - v_size <= caps[0]
                    and trainings[to] + v_training - u_training <= caps[1]
                    and trainings[source] + u_training - v_training <= caps[1]
                ):
                    waiting[to, source] = behind[u]
                    _move(v, to, parts, v_size, v_training)
                    _move(u, source, parts, u_size, u_training)
                    moved += 2
                    continue
            behind[v] = waiting[source, to]
            waiting[source, to] = v
    return moved


def refine(
    graph: AnyGraph, assignment: np.ndarray, caps: Caps, passes: int, seed: int, workers: Workers
) -> tuple[int, int]:
    """Refine the parts int32[n] (-1: in none yet) in place, in up to `passes` passes over the graph.

    Ends when a pass moves fewer than a thousandth of the vertices. Returns figures of the last pass: how many entries
    belong to vertices with neighbours in other parts, and about the weight of all entries to other parts.
    """
    parts = part_loads(assignment, graph.vertex_weights, caps)
    links = np.zeros((workers.count, caps.parts), np.int64)

    # Vertices that wait for a swap; pairs of very many parts would not fit in memory.
    waiting, behind = np.empty((0, 0), np.int32), np.empty(0, np.int32)
    if caps.parts <= _MOST_PARTS_FOR_SWAPS:
        waiting = np.full((caps.parts, caps.parts), -1, np.int32)
        behind = np.empty(graph.vertices, np.int32)

    figures = np.zeros((workers.count, 2), np.int64)

    def propose(chunk: Chunk, target: np.ndarray, blocked: np.ndarray, begin: int, end: int, thread: int) -> None:
        rule = (graph.vertex_weights, pass_seed, links[thread])
        figures[thread] += _propose(chunk, begin, end, parts, *rule, target, blocked)

    def apply(chunk: Chunk, begin: int, end: int, target: np.ndarray, blocked: np.ndarray) -> int:
        return _apply(chunk, begin, end, target, blocked, parts, graph.vertex_weights, waiting, behind)

    # Another seed each pass breaks ties otherwise, so that vertices do not move to and fro between the same parts.
    for number in range(passes):
        waiting[:] = -1
        figures[:] = 0
        pass_seed = np.uint64(fold(np.uint64(seed), number))
        moved = move_by_blocks(graph, workers, propose, apply)
        if moved < graph.vertices / 1000:
            break
    boundary, cut = figures.sum(axis=0)
    return int(boundary), int(cut)


@compiled
def _cut(chunk, assignment):
    total = 0
    for row in range(len(chunk.indptr) - 1):
        part = assignment[chunk.first + row]
        for e in range(chunk.indptr[row], chunk.indptr[row + 1]):
            if assignment[chunk.neighbours[e]] != part:
                total += chunk.weights[e] if len(chunk.weights) else 1
    return total


def cut_weight(graph: AnyGraph, assignment: np.ndarray) -> int:
    """Sum the weight of all entries between parts int32[n]: twice that of the edges."""
    return sum(_cut(chunk, assignment) for chunk in graph.chunks())


def cost(graph: AnyGraph, assignment: np.ndarray, caps: Caps) -> tuple[float, int]:
    """Return the excess over the caps, then the weight between parts int32[n]: smaller is better."""
    return excess(*loads(assignment, graph.vertex_weights, caps.parts), caps), cut_weight(graph, assignment)
