"""Weights of edges, row by row."""

from __future__ import annotations

from leapmpi.system.jit import compiled


@compiled
def normalise_rows(indptr, weight, degree):
    """Scale `weight` (float32[edges]) in place so that the weights of row i add up to degree[i] (int64[n]).

    The weighted sum is then the degree times a weighted mean of what was drawn (Hajek's estimator).
    """
    for i in range(len(degree)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weight[e]
        for e in range(indptr[i], indptr[i + 1]):
            weight[e] = weight[e] * (degree[i] / total)
