"""Contiguous parts dealt to ranks by the seconds that they are predicted to take.

After Roc (MLSys 2020, section 4): the seconds of a piece of the graph are linear in counts of it, and the weights are
fitted to what epochs took. The deal with the least seconds on the slowest rank is found by dynamic programming.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_RIDGE = 1e-3
"""How much large weights count against the fit, of counts that are 1 in the mean."""


@dataclass(frozen=True, eq=False)
class PartCounts:
    """What an iteration does for each of P parts.

    own: float64[P, 2], vertices and edges that are computed. read: float64[P, P], read[p, q] rows of part q that part p
    reads; 0 for its own.
    """

    own: np.ndarray
    read: np.ndarray

    def of_segments(self) -> np.ndarray:
        """float64[P + 1, P + 1, 3]: vertices, edges and boundary of parts `first` to `end` (exclusive).

        They stand at [first, end]. The boundary is what these parts read of others.
        """
        parts = len(self.own)
        total = np.zeros((parts + 1, 3))
        total[1:] = np.cumsum(np.column_stack((self.own, self.read.sum(axis=1))), axis=0)
        found = total[None] - total[:, None]

        # What they read of each other is no boundary.
        within = np.zeros((parts + 1, parts + 1))
        within[1:, 1:] = self.read.cumsum(axis=0).cumsum(axis=1)
        corner = np.diag(within)
        found[..., 2] -= corner[None] - within - within.T + corner[:, None]
        return found


def fitted(counts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Seconds of one unit of each count: float64[k], none negative, from counts float64[n, k] and seconds float64[n].

    Least squares with a ridge: counts that always go together share their seconds.
    """
    mean = counts.mean(axis=0)
    kept, found = np.flatnonzero(mean > 0), np.zeros(counts.shape[1])
    while len(kept):
        scaled = counts[:, kept] / mean[kept]
        solved = np.linalg.solve(
            scaled.T @ scaled + _RIDGE * len(seconds) * np.eye(len(kept)), scaled.T @ np.asarray(seconds, np.float64)
        )
        if (solved >= 0).all():
            found[kept] = solved / mean[kept]
            break
        kept = kept[solved > 0]
    return found


def slowness(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """How many times as long as predicted each rank took: float64[ranks], from float64[n, ranks] of n deals.

    Hosts of one cluster may differ in strength, which counts of parts do not tell.
    """
    ratios = np.divide(measured, predicted, out=np.ones(measured.shape), where=predicted > 0)
    found: np.ndarray = np.median(ratios, axis=0)
    return found


def dealt(seconds: np.ndarray, slowness: np.ndarray) -> np.ndarray:
    """The first part of each rank, int64[ranks + 1], at least one each, with the least seconds on the slowest rank.

    seconds: float64[P + 1, P + 1], of parts `first` to `end` (exclusive) at [first, end], on a rank of slowness 1;
    slowness: float64[ranks]. Takes ranks x P x P steps.
    """
    parts, ranks = len(seconds) - 1, len(slowness)
    several = np.where(np.tri(parts + 1, dtype=bool), np.inf, seconds)
    slowest, before = np.where(np.arange(parts + 1) == 0, 0.0, np.inf), np.zeros((ranks, parts + 1), np.int64)
    for rank in range(ranks):
        found = np.maximum(slowest[:, None], several * slowness[rank])
        before[rank] = found.argmin(axis=0)
        slowest = found.min(axis=0)

    # Backwards from the last part.
    starts = [parts]
    for rank in reversed(range(ranks)):
        starts.append(int(before[rank, starts[-1]]))
    return np.array(starts[::-1], np.int64)


def rank_seconds(seconds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """float64[ranks]: those of each rank, of `seconds` as `dealt` takes them."""
    found: np.ndarray = seconds[starts[:-1], starts[1:]]
    return found
