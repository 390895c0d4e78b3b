"""Identity of a graph's content: the same for every numbering and partition of the graph.

Each vertex has two 64-bit hashes (two lanes) of its original id, split, labels, features and the original ids of its
in-neighbours in ascending order. The hashes of all vertices are summed modulo 2**64, lane by lane. So the order of the
vertices does not matter, and the sums of parts can be added. This detects damage and mix-ups, not forgery.
"""

from __future__ import annotations

import hashlib

import numpy as np

from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.sparse_features import Features, SparseFeatures
from leapmpi.system.counter_rng import mix
from leapmpi.system.jit import compiled

_EDGE_ARRAYS = {
    names.EDGE_WEIGHT: 1,
    names.EDGE_FEATURES: 2,
    names.EDGE_TIME: 3,
    names.EDGE_LABELS: 4,
    names.RELATION: 5,
}
_VERTEX_TIME, _FEATURE_SCALE, _BYTES, _TYPE_SCALE = 7, 8, 9, 10

FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
"""Odd factor of each lane."""

_A, _B = np.uint64(FACTORS[0]), np.uint64(FACTORS[1])
_HALF = np.uint64(32)


@compiled
def _absorb(h, word, factor):
    """Return the state `h` after one more word. It is a bijection in either argument."""
    h = (h ^ np.uint64(word)) * factor
    return h ^ (h >> _HALF)


# The kernels below take one array each, so that they are compiled for each type of an array alone, not for each
# combination. `states`, uint64[2, k], holds both lanes of k vertices.


@compiled
def _begin(original_id, split, states):
    for v in range(len(original_id)):
        states[0, v] = _absorb(mix(np.uint64(original_id[v]) ^ _A), split[v], _A)
        states[1, v] = _absorb(mix(np.uint64(original_id[v]) ^ _B), split[v], _B)


@compiled
def _absorb_rows(words, states):
    for v in range(len(words)):
        a, b = states[0, v], states[1, v]
        for j in range(words.shape[1]):
            a, b = _absorb(a, words[v, j], _A), _absorb(b, words[v, j], _B)
        states[0, v], states[1, v] = a, b


# Counts come before lists, so that no two vertices absorb the same words in another grouping.
@compiled
def _absorb_entries(bounds, columns, values, states):
    for v in range(len(bounds) - 1):
        count = bounds[v + 1] - bounds[v]
        a, b = _absorb(states[0, v], count, _A), _absorb(states[1, v], count, _B)
        for e in range(bounds[v], bounds[v + 1]):
            a, b = _absorb(a, columns[e], _A), _absorb(b, columns[e], _B)
            a, b = _absorb(a, values[e], _A), _absorb(b, values[e], _B)
        states[0, v], states[1, v] = a, b


@compiled
def _absorb_neighbours(indptr, indices, original_of, states):
    natural = len(original_of) == 0
    for v in range(len(indptr) - 1):
        degree = indptr[v + 1] - indptr[v]
        a, b = _absorb(states[0, v], degree, _A), _absorb(states[1, v], degree, _B)
        for e in range(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e]) if natural else np.int64(original_of[indices[e]])
            a, b = _absorb(a, u, _A), _absorb(b, u, _B)
        states[0, v], states[1, v] = a, b


@compiled
def _total(states):
    # A plain sum of finalised hashes does not depend on the order of the vertices.
    total_a, total_b = np.uint64(0), np.uint64(0)
    for v in range(states.shape[1]):
        total_a += mix(states[0, v])
        total_b += mix(states[1, v])
    return total_a, total_b


def _plain(array: np.ndarray) -> np.ndarray:
    """Return `array` as contiguous and read-only: kernels are compiled for each of these kinds."""
    plain = np.ascontiguousarray(array).view()
    plain.flags.writeable = False
    return plain


def _known(original_of: np.ndarray | None) -> np.ndarray:
    """Return the original ids named by `indices`; empty if they are original ids themselves."""
    return _plain(np.empty(0, np.int64) if original_of is None else original_of)


def _words(array: np.ndarray, rows: int) -> np.ndarray:
    """Return the elements of each row as unsigned integers of the same width: [rows, elements]."""
    array = _plain(array)
    return array.reshape(rows, -1 if array.size else 0).view(f"u{array.itemsize}")


def content_lanes(
    original_id: np.ndarray,
    split: np.ndarray | None,
    labels: np.ndarray | None,
    features: Features | None,
    indptr: np.ndarray,
    indices: np.ndarray,
    original_of: np.ndarray | None,
) -> np.ndarray:
    """Return the sums uint64[2] of the hashes of k vertices.

    original_id: int64[k]; split: int8[k]; labels: [k] or [k, C]; features: [k, F]; indptr: int64[k + 1] from 0;
    indices: integers[m]. original_of: integers, the original id of each vertex in `indices`; None if `indices` are
    original ids. A missing split counts as NO_SPLIT. The sums of several parts add up modulo 2**64 to those of the
    whole graph.
    """
    # Each vertex is hashed alone, and hashes are added: the sum depends on no order of vertices or parts.
    rows = len(original_id)
    states = np.empty((2, rows), np.uint64)
    codes = np.zeros(rows, np.uint8) if split is None else np.asarray(split).view(np.uint8)
    _begin(_plain(original_id), _plain(codes), states)
    for array in (labels, None if isinstance(features, SparseFeatures) else features):
        if array is not None:
            _absorb_rows(_words(array, rows), states)
    if isinstance(features, SparseFeatures):
        values = _plain(features.data).view(f"u{features.data.itemsize}")
        _absorb_entries(_plain(features.indptr), _plain(features.indices), values, states)
    _absorb_neighbours(_plain(indptr), _plain(indices), _known(original_of), states)
    return np.array(_total(states), np.uint64)


@compiled
def _sum_edge_lanes(name, original_id, words, indptr, indices, original_of):
    total_a, total_b = np.uint64(0), np.uint64(0)
    natural = len(original_of) == 0
    for v in range(len(original_id)):
        for e in range(indptr[v] - indptr[0], indptr[v + 1] - indptr[0]):
            u = np.int64(indices[e]) if natural else original_of[indices[e]]
            a, b = mix(np.uint64(name) ^ _A), mix(np.uint64(name) ^ _B)
            a, b = _absorb(a, original_id[v], _A), _absorb(b, original_id[v], _B)
            a, b = _absorb(a, u, _A), _absorb(b, u, _B)
            for j in range(words.shape[1]):
                a, b = _absorb(a, words[e, j], _A), _absorb(b, words[e, j], _B)
            total_a += mix(a)
            total_b += mix(b)
    return total_a, total_b


def edge_lanes(
    data: EdgeData, original_id: np.ndarray, indptr: np.ndarray, indices: np.ndarray, original_of: np.ndarray | None
) -> np.ndarray:
    """Return the sums uint64[2] of the hashes of the edge data of k vertices' m in-edges; zeros without edge data.

    They are added to `content_lanes`. indptr: int64[k + 1] that cuts `indices` and the arrays of `data`, from any
    number on. The other arguments are as there.
    """
    total = np.zeros(2, np.uint64)
    lists = _plain(indptr), _plain(indices), _known(original_of)
    for name, array in data.arrays().items():
        lanes = _sum_edge_lanes(_EDGE_ARRAYS[name], _plain(original_id), _words(array, len(array)), *lists)
        with np.errstate(over="ignore"):
            total += np.array(lanes, np.uint64)
    return total


@compiled
def _sum_row_lanes(tag, words):
    total_a, total_b = np.uint64(0), np.uint64(0)
    for i in range(len(words)):
        a, b = mix(np.uint64(tag) ^ _A), mix(np.uint64(tag) ^ _B)
        for j in range(words.shape[1]):
            a, b = _absorb(a, words[i, j], _A), _absorb(b, words[i, j], _B)
        total_a += mix(a)
        total_b += mix(b)
    return total_a, total_b


def row_lanes(tag: int, words: np.ndarray) -> np.ndarray:
    """Return the sums uint64[2] of the hashes of the rows of `words` int64[k, w], each prefixed with `tag`."""
    return np.array(_sum_row_lanes(tag, np.ascontiguousarray(words, np.int64)), np.uint64)


def time_lanes(time: np.ndarray | None, original_id: np.ndarray) -> np.ndarray:
    """Return the contribution of the times of vertices, int64[k] or None, to `content_lanes`."""
    if time is None:
        return np.zeros(2, np.uint64)
    return row_lanes(_VERTEX_TIME, np.stack([np.asarray(original_id), np.asarray(time)], axis=1))


def scale_lanes(scale: np.ndarray | None, number: int | None = None) -> np.ndarray:
    """Return the contribution of column steps and middles, float32[2, F] or None, to a whole graph's lanes.

    number: that of the type of vertices with these columns, in a typed graph.
    """
    if scale is None:
        return np.zeros(2, np.uint64)
    bits = np.ascontiguousarray(scale, "<f4").view(np.uint32).T
    columns = np.column_stack([np.arange(len(bits)), bits])
    if number is None:
        return row_lanes(_FEATURE_SCALE, columns)
    return row_lanes(_TYPE_SCALE, np.column_stack([np.full(len(bits), number), columns]))


def bytes_lanes(content: np.ndarray) -> np.ndarray:
    """Return the contribution of the bytes uint8[k] of a schema to a whole graph's lanes: one row of their digest."""
    digest = hashlib.blake2b(content, digest_size=names.DIGEST_BYTES).digest()
    return row_lanes(_BYTES, np.frombuffer(digest, "<i8").reshape(1, 2))


def uuid_of(lanes: np.ndarray, vertices: int, edges: int, feature_dim: int, classes: int) -> str:
    """Return the uuid of a graph with the sums `lanes` uint64[2] and these counts: 32 hex digits."""
    text = ""
    for lane in lanes:
        h = lane
        for count in (vertices, edges, feature_dim, classes):
            h = np.uint64(mix(h ^ np.uint64(count)))
        text += f"{int(h):016x}"
    return text
