"""A cut made better while the graph streams by: vertices move to the part that holds most of their neighbours.

Moves keep the caps. Where the part a vertex wants is full, it changes places with one that wants the opposite.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.blocks import Workers, block_ranges
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_MOST_PARTS_FOR_SWAPS = 512


@compiled
def _propose(first, begin, end, indptr, neighbours, weights, assignment, sizes, trainings, own_size, own_training,
             caps, seed, links, out):  # fmt: skip
    """out[row]: the part that a vertex would move to, its own, or -2 - p where it would move to the full part p.

    links int64[P] is 0 before and after. Returns the number of entries of vertices with neighbours in other parts, and
    the weight of the entries to other parts."""
    boundary, cut = 0, 0
    for row in range(begin, end):
        v = first + row
        home = assignment[v]
        out[row] = home
        if home < 0:
            continue
        start, stop = indptr[row], indptr[row + 1]
        for e in range(start, stop):
            links[assignment[neighbours[e]]] += weights[e] if len(weights) else 1
        inside = links[home]
        links[home] = 0
        v_size = own_size[v] if len(own_size) else 1
        v_training = own_training[v] if len(own_training) else 0
        base = fold(seed, v)
        best, most, best_draw = home, inside, np.uint64(0)
        wanted, wanted_links = home, inside
        crosses = False
        for e in range(start, stop):
            p = assignment[neighbours[e]]
            w = links[p]
            if w == 0:
                continue
            links[p] = 0
            cut += w
            crosses = True
            if w < most and w <= wanted_links:
                continue
            if w > wanted_links:
                wanted, wanted_links = p, w
            if sizes[p] + v_size > caps[0] or trainings[p] + v_training > caps[1]:
                continue
            if w == inside and sizes[p] + v_size > sizes[home] - v_size:
                continue
            draw = fold(base, p)
            if w > most or draw > best_draw:
                best, most, best_draw = p, w, draw
        if crosses:
            boundary += stop - start
        out[row] = best if best != home or wanted == home else -2 - wanted
    return boundary, cut


@compiled
def _gain(row, home, to, other, indptr, neighbours, weights, assignment):
    """What moving a vertex from `home` gains, and the weight of its edge to the vertex `other`."""
    gain, joined = 0, 0
    for e in range(indptr[row], indptr[row + 1]):
        p = assignment[neighbours[e]]
        if p == to:
            w = weights[e] if len(weights) else 1
            gain += w
            if neighbours[e] == other:
                joined += w
        elif p == home:
            gain -= weights[e] if len(weights) else 1
    return gain, joined


@compiled
def _move(v, to, assignment, sizes, trainings, v_size, v_training):
    home = assignment[v]
    sizes[home] -= v_size
    trainings[home] -= v_training
    sizes[to] += v_size
    trainings[to] += v_training
    assignment[v] = to


@compiled
def _apply(first, begin, end, indptr, neighbours, weights, proposed, assignment, sizes, trainings, own_size,
           own_training, caps, waiting, behind):  # fmt: skip
    """Make the proposed moves that still gain, one after the other; returns how many vertices moved.

    waiting int32[P, P] holds for each two parts the last vertex of the first that found the second full, or -1, and
    behind int32[n] the one that came before each. Such vertices gain by moving; they change places with one that wants
    the opposite.
    """
    moved = 0
    for row in range(begin, end):
        v = first + row
        home, to = assignment[v], proposed[row]
        if to == home or home < 0:
            continue
        blocked = to < 0
        if blocked:
            to = -2 - to
        u = waiting[to, home] if len(waiting) else -1
        while u >= 0 and assignment[u] != to:
            u = behind[u]
            waiting[to, home] = u
        gain, joined = _gain(row, home, to, u, indptr, neighbours, weights, assignment)
        v_size = own_size[v] if len(own_size) else 1
        v_training = own_training[v] if len(own_training) else 0
        if gain < 0 or (gain == 0 and (blocked or sizes[to] + v_size > sizes[home] - v_size)):
            continue
        if sizes[to] + v_size <= caps[0] and trainings[to] + v_training <= caps[1]:
            _move(v, to, assignment, sizes, trainings, v_size, v_training)
            moved += 1
        elif len(waiting) and gain > 0:
            if u >= 0 and gain >= 2 * joined:
                u_size = own_size[u] if len(own_size) else 1
                u_training = own_training[u] if len(own_training) else 0
                if (
                    sizes[to] + v_size - u_size <= caps[0]
                    and sizes[home] + u_size - v_size <= caps[0]
                    and trainings[to] + v_training - u_training <= caps[1]
                    and trainings[home] + u_training - v_training <= caps[1]
                ):
                    waiting[to, home] = behind[u]
                    _move(v, to, assignment, sizes, trainings, v_size, v_training)
                    _move(u, home, assignment, sizes, trainings, u_size, u_training)
                    moved += 2
                    continue
            behind[v] = waiting[home, to]
            waiting[home, to] = v
    return moved


def refine(graph, assignment: np.ndarray, caps: Caps, passes: int, seed: int, workers: Workers) -> tuple[int, int]:
    """Up to `passes` passes over an AdjacencyStream or WeightedGraph; parts int32[n] (-1: in none yet) change in place.

    Ends when a pass moves fewer than a thousandth of the vertices. Returns what the last pass saw: how many entries
    belong to vertices with neighbours in other parts, and about the weight of all entries to other parts.
    """
    weights = graph.vertex_weights
    sizes, trainings = loads(assignment, weights, caps.parts)
    limits = np.array([caps.size, caps.training])
    links = np.zeros((workers.count, caps.parts), np.int64)
    waiting, behind = np.empty((0, 0), np.int32), np.empty(0, np.int32)
    if caps.parts <= _MOST_PARTS_FOR_SWAPS:
        waiting = np.full((caps.parts, caps.parts), -1, np.int32)
        behind = np.empty(graph.vertices, np.int32)
    proposed = np.empty(0, np.int32)
    seen = np.zeros((workers.count, 2), np.int64)
    for number in range(passes):
        moved = 0
        waiting[:] = -1
        seen[:] = 0
        pass_seed = np.uint64(fold(np.uint64(seed), number))
        for chunk in graph.chunks():
            if chunk.vertices > len(proposed):
                proposed = np.empty(chunk.vertices, np.int32)

            def propose(begin: int, end: int, thread: int, chunk=chunk, proposed=proposed, pass_seed=pass_seed) -> None:
                seen[thread] += _propose(chunk.first, begin, end, chunk.indptr, chunk.neighbours, chunk.weights,
                                             assignment, sizes, trainings, weights.size, weights.training, limits,
                                             pass_seed, links[thread], proposed)  # fmt: skip

            for begin, end in block_ranges(chunk, graph.vertices):
                workers.over_rows(chunk.indptr, begin, end, propose)
                moved += _apply(chunk.first, begin, end, chunk.indptr, chunk.neighbours, chunk.weights, proposed,
                                assignment, sizes, trainings, weights.size, weights.training, limits,
                                waiting, behind)  # fmt: skip
        if moved < graph.vertices / 1000:
            break
    boundary, cut = seen.sum(axis=0)
    return int(boundary), int(cut)


@compiled
def _cut(first, begin, end, indptr, neighbours, weights, assignment):
    total = 0
    for row in range(begin, end):
        home = assignment[first + row]
        for e in range(indptr[row], indptr[row + 1]):
            if assignment[neighbours[e]] != home:
                total += weights[e] if len(weights) else 1
    return total


def cut_weight(graph, assignment: np.ndarray) -> int:
    """The weight of all entries between parts: twice that of the edges."""
    return sum(_cut(c.first, 0, c.vertices, c.indptr, c.neighbours, c.weights, assignment) for c in graph.chunks())
