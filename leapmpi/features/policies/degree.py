"""`degree`: the vertices that most others have as in-neighbour.

Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).
"""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern

_AT_ONCE = 1 << 24


def out_degree(access: AccessPattern) -> np.ndarray:
    """How many vertices may draw each vertex: float64[n]."""
    indices, n = access.topology.indices, access.topology.vertices
    counts = np.zeros(n)
    for start in range(0, len(indices), _AT_ONCE):
        counts += np.bincount(indices[start : start + _AT_ONCE], minlength=n)
    return counts


POLICY = out_degree
