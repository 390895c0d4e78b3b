"""The undirected graph under a Graph as a stream: the graph's own file where it is symmetric, else a temporary one."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.weighted_graph import Chunk, VertexWeights
from data_prep.progress import SILENT, Progress
from leapmpi.dataset.graph import Graph
from leapmpi.system.jit import compiled

_BUCKET_BYTES = 64 << 20


def undirected_stream(
    graph: Graph, chunk: int, vertex_weights: VertexWeights, progress: Progress = SILENT
) -> AdjacencyStream:
    """Stream a graph's edges in both directions, in chunks of about `chunk` entries."""

    def stream(indptr: np.ndarray, neighbours: np.ndarray) -> AdjacencyStream:
        return AdjacencyStream(indptr, neighbours, chunk, vertex_weights, progress)

    one_way = stream(graph.indptr, graph.indices)
    if graph.attributes.get("directed") is False or _is_symmetric(one_way):
        return one_way
    return stream(*_both_ways(one_way))


@compiled
def _imbalance(chunk):
    """Sum over edges a product that changes its sign with the direction, modulo 2**64.

    It is 0 where each edge has its reverse. The product of the head's hash and the tail's number, less that of the
    head's number and the tail's hash, is summed row by row.
    """
    first, indptr, neighbours, _ = chunk
    total = np.uint64(0)
    for row in range(len(indptr) - 1):
        v = np.uint64(first + row) + np.uint64(1)
        v_hash = v * np.uint64(0x9E3779B97F4A7C15)
        v_hash = (v_hash ^ (v_hash >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        ids, hashes = np.uint64(0), np.uint64(0)
        for e in range(indptr[row], indptr[row + 1]):
            u = np.uint64(neighbours[e]) + np.uint64(1)
            u_hash = u * np.uint64(0x9E3779B97F4A7C15)
            ids += u
            hashes += (u_hash ^ (u_hash >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        # Antisymmetric in (u, v): an edge and its reverse cancel.
        total += v_hash * ids - v * hashes
    return total


def _is_symmetric(stream: AdjacencyStream) -> bool:
    """Return whether each edge has its reverse; wrong with a chance of about 2**-60."""
    return sum(int(_imbalance(chunk)) for chunk in stream.chunks()) % 2**64 == 0


@compiled
def _scatter(first, indptr, neighbours, bounds, fill, heads, tails):
    """Scatter a chunk's edges in both directions, grouped by bucket of their head; `fill` holds offsets."""
    for row in range(len(indptr) - 1):
        v = first + row
        for e in range(indptr[row], indptr[row + 1]):
            u = neighbours[e]
            for head, tail in ((v, np.int64(u)), (np.int64(u), v)):
                bucket = np.searchsorted(bounds, head, side="right") - 1
                heads[fill[bucket]] = head
                tails[fill[bucket]] = tail
                fill[bucket] += 1


@compiled
def _count_buckets(first, indptr, neighbours, bounds, counts):
    """Count both directions of the edges of a chunk by the bucket of their head."""
    for row in range(len(indptr) - 1):
        bucket = np.searchsorted(bounds, first + row, side="right") - 1
        for e in range(indptr[row], indptr[row + 1]):
            counts[bucket] += 1
            counts[np.searchsorted(bounds, np.int64(neighbours[e]), side="right") - 1] += 1


def _both_ways(stream: AdjacencyStream) -> tuple[np.ndarray, np.ndarray]:
    """Build indptr and neighbours of the graph with every edge both ways, mapped from files without names.

    Edges go to a file in buckets by their head; each bucket is then sorted in memory.
    """
    # Count the edges of each bucket.
    n, dtype = stream.vertices, stream.neighbours.dtype
    buckets = max(1, -(-4 * stream.entries * np.dtype(dtype).itemsize // _BUCKET_BYTES))
    bounds = np.arange(buckets, dtype=np.int64) * n // buckets
    counts = np.zeros(buckets, np.int64)
    for chunk in stream.chunks():
        _count_buckets(chunk.first, chunk.indptr, chunk.neighbours, bounds, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    with temporary_file() as edges:
        # Write the edges, each bucket at its place.
        width = np.dtype(dtype).itemsize
        written = starts[:-1].copy()
        for chunk in stream.chunks():
            _write_buckets(edges, chunk, bounds, written, dtype)

        # Sort each bucket, and drop edges that came both ways.
        indptr_file, rows_file = temporary_file(), temporary_file()
        total = 0
        np.zeros(1, np.int64).tofile(indptr_file)
        for bucket in range(buckets):
            edges.seek(2 * width * int(starts[bucket]))
            pairs = np.fromfile(edges, dtype, 2 * int(counts[bucket]))
            low = bounds[bucket]
            high = bounds[bucket + 1] if bucket + 1 < buckets else n
            keys = np.unique((pairs[0::2].astype(np.int64) - low) * n + pairs[1::2])
            degrees = np.bincount(keys // n, minlength=high - low)
            (total + np.cumsum(degrees)).astype(np.int64).tofile(indptr_file)
            (keys % n).astype(dtype).tofile(rows_file)
            total += len(keys)
    return mapped(indptr_file, np.int64, n + 1), mapped(rows_file, dtype, total)


def _write_buckets(file: BinaryIO, chunk: Chunk, bounds: np.ndarray, written: np.ndarray, dtype: np.dtype) -> None:
    """Write both directions of the edges of `chunk` to `file`; written int64[B] is where each bucket goes on."""
    counts = np.zeros(len(bounds), np.int64)
    _count_buckets(chunk.first, chunk.indptr, chunk.neighbours, bounds, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    pairs = np.empty((int(starts[-1]), 2), dtype)
    _scatter(chunk.first, chunk.indptr, chunk.neighbours, bounds, starts[:-1].copy(), pairs[:, 0], pairs[:, 1])
    for bucket in np.flatnonzero(counts):
        file.seek(pairs.itemsize * 2 * int(written[bucket]))
        pairs[starts[bucket] : starts[bucket + 1]].tofile(file)
        written[bucket] += counts[bucket]
