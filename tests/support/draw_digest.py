"""One value that tells whether two runs sampled the same: the digest of all edges, written in original ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.sampling.block import Block

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology


def block_edges(blocks: Iterable[Block], topology: Topology) -> np.ndarray:
    """All edges of `blocks` as int64[k, 3] rows (hop, original id of the destination, of the source)."""
    parts = [np.empty((0, 3), np.int64)]
    for block in blocks:
        original = topology.original_id[block.src]
        edges = np.empty((block.edges, 3), np.int64)
        edges[:, 0] = block.hop
        edges[:, 1] = np.repeat(original[: block.n_dst], np.diff(block.indptr))
        edges[:, 2] = original[block.indices]
        parts.append(edges)
    return np.concatenate(parts)


def unique_edges(rows: np.ndarray) -> np.ndarray:
    """The distinct rows (int64[k, 3]) in ascending order: the union of what several ranks sampled."""
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    keep = np.ones(len(rows), bool)
    keep[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[keep]


def digest_edges(rows: np.ndarray) -> str:
    """A 128-bit hex digest of the set of `rows` (int64[k, 3]): their order and repetition do not matter."""
    return hashlib.blake2b(unique_edges(rows).astype("<i8").tobytes(), digest_size=16).hexdigest()
