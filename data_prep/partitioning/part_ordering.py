"""Numbering parts so that parts with many edges between them get near numbers.

A dataset of P parts then runs well on any fewer ranks, each with a contiguous group of parts. The graph of the parts
is bisected recursively: spectral halves (Fiedler, Czech. Math. J. 25, 1975), improved by exchanging pairs (Kernighan,
Lin, Bell Syst. Tech. J. 49, 1970).
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled

_MOST_PARTS = 2048
"""Beyond this the parts keep the numbers they have: weights between all pairs would not fit."""


@compiled
def add_cut_weights(chunk, assignment, weights):
    """Add to weights float64[P, P] the edges between different parts, integers[n], in the rows of `chunk`."""
    first, indptr, neighbours, _ = chunk
    for row in range(len(indptr) - 1):
        part = assignment[first + row]
        for e in range(indptr[row], indptr[row + 1]):
            other = assignment[neighbours[e]]
            if other != part:
                weights[part, other] += 1


def no_cut_weights(parts: int) -> np.ndarray:
    """Return float64[P, P] of zeros to add weights to, or [P, 0] for very many parts."""
    return np.zeros((parts, parts if parts <= _MOST_PARTS else 0))


def near_numbers(weights: np.ndarray) -> np.ndarray:
    """Return the new number int64[P] of each part, from the symmetric edge weights float64[P, P] between parts."""
    parts = len(weights)
    if parts != weights.shape[1]:
        return np.arange(parts)
    numbers = np.empty(parts, np.int64)
    numbers[_ordered(np.arange(parts), weights)] = np.arange(parts)
    return numbers


def _ordered(ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Order `ids` so that halves, halves of halves and so on have little weight between them."""
    if len(ids) <= 2:
        return ids

    # Bisect from two starts, the given order and the spectral one; keep the better.
    local = weights[np.ix_(ids, ids)]
    half = len(ids) // 2
    starts = (np.arange(len(ids)) < half, _spectral_half(local, half))
    sides = [_exchange(local, side) for side in starts]
    first = min(sides, key=lambda side: local[side][:, ~side].sum())
    return np.concatenate([_ordered(ids[first], weights), _ordered(ids[~first], weights)])


def _spectral_half(weights: np.ndarray, half: int) -> np.ndarray:
    """Select `half` parts, bool[P]: those of smallest entries in the Fiedler vector of the Laplacian."""
    laplacian = np.diag(weights.sum(axis=0)) - weights
    vector = np.linalg.eigh(laplacian)[1][:, 1]
    # The sign of an eigenvector is arbitrary; fix it, so that the same cut is numbered the same everywhere.
    vector = vector * (-1 if vector[np.argmax(np.abs(vector))] > 0 else 1)
    side = np.zeros(len(weights), bool)
    side[np.argsort(vector, kind="stable")[:half]] = True
    return side


def _exchange(weights: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Exchange pairs between the two sides of bool[P] as long as the weight between the sides falls."""
    side = side.copy()
    for _ in range(len(side)):
        # What moving a part to the other side gains.
        across = weights @ np.where(side, -1.0, 1.0) * np.where(side, 1.0, -1.0)

        # The best of all pairs, one from each side.
        a = np.flatnonzero(side)
        b = np.flatnonzero(~side)
        gain = across[a][:, None] + across[b][None, :] - 2 * weights[np.ix_(a, b)]
        i, j = np.unravel_index(np.argmax(gain), gain.shape)
        if gain[i, j] <= 0:
            break
        side[a[i]], side[b[j]] = False, True
    return side
