"""`degree`: the vertices that are in-neighbours of most others.

Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).
"""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern

_BLOCK = 1 << 24
"""Edges counted at a time: counting takes a copy of them."""


def out_degree(access: AccessPattern) -> np.ndarray:
    """How many vertices may draw each vertex: float64[n]."""
    indices, vertices = access.topology.indices, access.topology.vertices
    counts = np.zeros(vertices)
    for start in range(0, len(indices), _BLOCK):
        counts += np.bincount(indices[start : start + _BLOCK], minlength=vertices)
    return counts


POLICY = out_degree
