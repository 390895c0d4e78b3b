"""The graph of clusters: edges between two clusters become one, of bounded number, while the graph streams by."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.balance import loads
from data_prep.partitioning.multilevel.blocks import Workers, block_ranges
from data_prep.partitioning.multilevel.pair_table import PairTable
from data_prep.partitioning.multilevel.weighted_graph import Chunk, VertexWeights, WeightedGraph
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_GROUP_ENTRIES = 1 << 18


@compiled
def _collect(chunk, begin, end, label, clusters, threshold, seed, keys, sums):
    """Write the keys of the pairs of clusters that edges of the rows join, each edge at its larger end.

    Where `threshold` is not 0, an edge counts if its hash is below. The weights go to sums, which is empty where edges
    weigh 1. Returns the number of keys.
    """
    count = 0
    for row in range(begin, end):
        v = chunk.first + row
        a = np.int64(label[v])
        base = fold(seed, v)
        for e in range(chunk.indptr[row], chunk.indptr[row + 1]):
            u = np.int64(chunk.neighbours[e])
            # Each edge once; after halvings, a sample of them.
            if u > v or (threshold and fold(base, u) >= threshold):
                continue
            b = np.int64(label[u])
            if a != b:
                keys[count] = min(a, b) * clusters + max(a, b)
                if len(chunk.weights):
                    sums[count] = chunk.weights[e]
                count += 1
    return count


@compiled
def _rows(keys, weights, clusters, indptr, neighbours, out):
    """Write both directions of the pairs as compressed rows: a counting sort by cluster."""
    for key in keys:
        indptr[key // clusters + 1] += 1
        indptr[key % clusters + 1] += 1
    for c in range(clusters):
        indptr[c + 1] += indptr[c]
    # A counting sort: each pair goes to the rows of both clusters.
    place = indptr[:-1].copy()
    for i in range(len(keys)):
        a, b = keys[i] // clusters, keys[i] % clusters
        for c, d in ((a, b), (b, a)):
            neighbours[place[c]] = d
            out[place[c]] = weights[i]
            place[c] += 1


def _collect_section(
    chunk: Chunk,
    low: int,
    label: np.ndarray,
    clusters: int,
    threshold: np.uint64,
    seed: np.uint64,
    keys: np.ndarray,
    sums: np.ndarray,
    counts: dict[int, int],
    begin: int,
    end: int,
    thread: int,
) -> None:
    """Collect the pairs of rows begin ... end - 1 where their entries begin in a group, whose first entry is `low`.

    counts: gets their number, if any, by that place.
    """
    start, stop = int(chunk.indptr[begin]) - low, int(chunk.indptr[end]) - low
    into = keys[start:stop], sums[start:stop]
    if count := _collect(chunk, begin, end, label, clusters, threshold, seed, *into):
        counts[start] = count


def contract(
    graph: AnyGraph, label: np.ndarray, clusters: int, most_pairs: int, seed: int, workers: Workers
) -> WeightedGraph:
    """Contract the clusters label int32[n] (-1: in none) of `graph` to a graph.

    It has at most `most_pairs` edges. Where there would be more, it is a sample by weight, equal to it in
    expectation up to a factor.
    """
    table = PairTable(most_pairs, graph.entries // 8 + 16, seed)
    keys, sums = np.empty(0, np.int64), np.empty(0, np.int32)
    for chunk in graph.chunks():
        for first, last in _groups(chunk, graph.vertices):
            # Buffers of the largest group: new memory for each would be cleared by the system first.
            low, high = int(chunk.indptr[first]), int(chunk.indptr[last])
            if high - low > len(keys):
                keys = np.empty(high - low, np.int64)
                sums = np.empty(high - low if len(chunk.weights) else 0, np.int32)
            # Weights that were halved so far: later edges are drawn with the same chance from the start.
            threshold = np.uint64(2 ** (64 - table.halvings) if table.halvings else 0)
            counts: dict[int, int] = {}
            collect = partial(
                _collect_section, chunk, low, label, clusters, threshold, np.uint64(seed), keys, sums, counts
            )
            workers.over_rows(chunk.indptr, first, last, collect)

            # One list in the order of rows: the table may halve weights within it, and must not see the threads.
            filled = 0
            for start, count in sorted(counts.items()):
                for each in (keys, sums)[: 2 if len(sums) else 1]:
                    each[filled : filled + count] = each[start : start + count]
                filled += count
            table.add(keys[:filled], sums[:filled])
    return _graph_of(table, label, clusters, graph.vertex_weights)


def _groups(chunk: Chunk, vertices: int) -> Iterator[tuple[int, int]]:
    """Return ranges of whole blocks with about as many entries as are worth a call."""
    start = None
    for begin, end in block_ranges(chunk, vertices):
        start = begin if start is None else start
        if chunk.indptr[end] - chunk.indptr[start] >= _GROUP_ENTRIES or end == chunk.vertices:
            yield start, end
            start = None


def _graph_of(table: PairTable, label: np.ndarray, clusters: int, weights: VertexWeights) -> WeightedGraph:
    """Convert the pairs of the table to a graph with summed vertex weights."""
    keys, sums = table.pairs()
    assert len(keys) <= table.most, (len(keys), table.most)
    indptr = np.zeros(clusters + 1, np.int64)
    neighbours, edge_weights = np.empty(2 * len(keys), np.uint32), np.empty(2 * len(keys), np.int32)
    _rows(keys, sums, clusters, indptr, neighbours, edge_weights)
    size, training = (each.astype(np.int32) for each in loads(label, weights, clusters))
    if not len(weights.training):
        training = training[:0]
    return WeightedGraph(indptr, neighbours, edge_weights, VertexWeights(size, training))
