"""Plain twins of the compiled sampling kernels, written from their description, for exact comparison."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from leapmpi.dataset.topology import Topology

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fold(base: int, word: int) -> int:
    return mix((base + (word + 1) * GOLDEN) & MASK)


def bounded(hashed: int, n: int) -> int:
    return (hashed * n) >> 64


def fold_array(base: np.ndarray | int, words: np.ndarray | int) -> np.ndarray:
    """`fold` of whole arrays (broadcast), as uint64."""
    base, words = np.atleast_1d(np.asarray(base, np.uint64)), np.asarray(words).astype(np.uint64)
    x = base + (words + np.uint64(1)) * np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def key_hash(key: tuple[int, ...]) -> int:
    hashed = 0
    for word in key:
        hashed = fold(hashed, word)
    return hashed


def subset(hashed: int, degree: int, k: int) -> list[int]:
    """Floyd's algorithm with a plain set: k ascending positions below `degree`."""
    if k >= degree:
        return list(range(degree))
    drawn: set[int] = set()
    for j in range(k):
        last = degree - k + j
        position = bounded(fold(hashed, j), last + 1)
        drawn.add(last if position in drawn else position)
    return sorted(drawn)


def sample(topology: Topology, fanouts: tuple[int, ...], key: tuple[int, ...], roots: np.ndarray) -> list:
    """Blocks as plain lists, with the fields of `Block`."""
    src = [int(v) for v in roots]
    where = {v: i for i, v in enumerate(src)}
    blocks = []
    for hop, fanout in enumerate(fanouts):
        hashed, n_dst = fold(key_hash(key), hop), len(src)
        indptr, indices = [0], []
        for v in src[:n_dst]:
            row = topology.indices[topology.indptr[v] : topology.indptr[v + 1]].tolist()
            k = len(row) if fanout == -1 else fanout
            for position in subset(fold(hashed, int(topology.original_id[v])), len(row), k):
                u = row[position]
                if u not in where:
                    where[u] = len(src)
                    src.append(u)
                indices.append(where[u])
            indptr.append(len(indices))
        blocks.append(SimpleNamespace(hop=hop, n_dst=n_dst, src=list(src), indptr=indptr, indices=indices))
    return blocks


def random_topology(vertices: int, edges: int, seed: int, *, hubs: float = 1.0) -> Topology:
    """A directed graph without loops or repeats, original ids with gaps; `hubs` > 1 skews the in-degrees."""
    rng = np.random.default_rng(seed)
    dst = (rng.random(edges) ** hubs * vertices).astype(np.int64)
    pairs = np.unique(np.stack([dst, rng.integers(0, vertices, edges)], axis=1), axis=0)
    dst, src = pairs[pairs[:, 0] != pairs[:, 1]].T
    indptr = np.searchsorted(dst, np.arange(vertices + 1)).astype(np.int64)
    original = np.sort(rng.choice(3 * vertices, vertices, replace=False)).astype(np.int64)
    return Topology(indptr, src.astype(np.int32), original)


def renumbered(topology: Topology, new_id: np.ndarray) -> Topology:
    """The same graph with vertex v called new_id[v]; lists stay ordered by original id."""
    old = np.argsort(new_id)
    degree = np.diff(topology.indptr)[old]
    rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in old]
    indices = new_id[np.concatenate(rows)] if rows else new_id[:0]
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    return Topology(indptr, indices.astype(topology.indices.dtype), topology.original_id[old])
