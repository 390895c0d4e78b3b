"""Balance of parts by a weight per vertex, besides their numbers of vertices (`--balance`)."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.request import PartitionRequest, training_vertices
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.sparse_features import row_bytes
from leapmpi.errors import ConfigError
from leapmpi.plan.micrograph import ExpectedWork
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import processor_count

_TOTAL = 1 << 30
"""Weights add up to at most about this, so that sums are int32."""


def balance_weights(graph: Graph, union: Graph, request: PartitionRequest) -> np.ndarray | None:
    """Return the weight int32[n] of each vertex for `request.balance`; None for training vertices, which count as 1.

    union: the union graph of a typed graph, else `graph` itself.
    """
    if request.balance in ("training", "types"):
        return None
    if request.balance == "vertices":
        return np.zeros(graph.vertices, np.int32)
    if request.balance == "edges":
        found = np.diff(graph.indptr)
    else:
        found = stored_bytes(graph) if request.balance == "bytes" else sampled_work(union, request.fanout)
    total = max(1.0, float(found.sum(dtype=np.float64)))
    scale = min(1.0, _TOTAL / total) if request.balance == "edges" else _TOTAL / total
    return np.rint(found * scale).astype(np.int32)


def stored_bytes(graph: Graph) -> np.ndarray:
    """Count the bytes of each vertex in a part, float64[n]: its feature row, and its in-edges with what they carry."""
    found = np.diff(graph.indptr).astype(np.float64) * (graph.indices.itemsize + graph.edge_data.row_bytes)
    for start, stop, features in graph.sections():
        found[start:stop] += 0 if features is None else row_bytes(features)
    return found


def type_groups(graph: Graph) -> np.ndarray:
    """Return the type int16[n] of each vertex. Raises ConfigError for a plain graph."""
    if graph.typed is None:
        raise ConfigError("--balance types and --method meta: the graph has no types of vertices; leave the flag out")
    return np.repeat(np.arange(len(graph.typed.features), dtype=np.int16), np.diff(graph.typed.offsets))


def sampled_work(graph: Graph, fanout: tuple[int, ...]) -> np.ndarray:
    """Estimate the cost of training each vertex: rows + edges of its sampled neighbourhood, float64[n].

    0 for all but training vertices; without a split every vertex counts as one.
    """
    roots = np.flatnonzero(training_vertices(graph))
    roots = roots if len(roots) else np.arange(graph.vertices)
    work = np.zeros(graph.vertices)
    lists = np.asarray(graph.indptr), np.asarray(graph.indices)
    work[roots] = ExpectedWork(*lists, fanout, processor_count()).of(roots)
    return work


@compiled
def move_out(order, candidates, target, weight, assignment, sizes, loads, caps, by_size):
    """Move candidates int64[k], in this order, out of parts that are too full, to their targets or the emptiest parts.

    by_size: because of their numbers of vertices, and whatever they weigh where no target has capacity.
    sizes and loads int64[P], vertices and weights of the parts, change too; caps int64[2], the most of either.
    """
    for i in order:
        v = candidates[i]
        source, each = assignment[v], weight[v]
        # Earlier moves may have made enough room already.
        if sizes[source] <= caps[0] if by_size else loads[source] <= caps[1]:
            continue
        to = target[i]
        if to < 0 or sizes[to] >= caps[0] or loads[to] + each > caps[1]:
            # The preferred part is full: the least loaded one that has room.
            to = -1
            for part in range(len(sizes)):
                fits = sizes[part] < caps[0] and (by_size or loads[part] + each <= caps[1])
                if fits and (to < 0 or loads[part] < loads[to]):
                    to = part
        if to < 0:
            continue
        assignment[v] = to
        sizes[source] -= 1
        loads[source] -= each
        sizes[to] += 1
        loads[to] += each
