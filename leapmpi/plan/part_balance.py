"""Assignment of contiguous parts to ranks by predicted seconds.

After Roc (MLSys 2020, section 4): the seconds of a piece of the graph are linear in its counts, with weights fitted to
measured epochs. Dynamic programming finds the assignment with the least seconds on the slowest rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_RIDGE = 1e-3
"""Penalty of large weights in the fit, for counts scaled to a mean of 1."""


@dataclass(frozen=True, eq=False)
class PartCounts:
    """Counts of an iteration for each of P parts.

    own: float64[P, 2], computed vertices and edges. read: float64[P, P], read[p, q] rows of part q read by part p; 0
    for its own.
    """

    own: np.ndarray
    read: np.ndarray

    def of_segments(self) -> np.ndarray:
        """Return float64[P + 1, P + 1, 3]: vertices, edges and boundary of parts `first` to `end`, at [first, end].

        `end` is exclusive. The boundary is the rows that these parts read of others.
        """
        parts = len(self.own)
        total = np.zeros((parts + 1, 3))
        total[1:] = np.cumsum(np.column_stack((self.own, self.read.sum(axis=1))), axis=0)
        found = total[None] - total[:, None]

        # Rows read within a segment are no boundary; prefix sums give those of any segment by four look-ups.
        within = np.zeros((parts + 1, parts + 1))
        within[1:, 1:] = self.read.cumsum(axis=0).cumsum(axis=1)
        corner = np.diag(within)
        found[..., 2] -= corner[None] - within - within.T + corner[:, None]
        return found


def fitted(counts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Fit seconds per unit of each count: float64[k], none negative, to counts float64[n, k], seconds float64[n].

    Least squares with a ridge: counts that always go together share their seconds.
    """
    mean = counts.mean(axis=0)
    kept, found = np.flatnonzero(mean > 0), np.zeros(counts.shape[1])
    while len(kept):
        # By their means, so that the ridge weighs counts of any size alike.
        scaled = counts[:, kept] / mean[kept]
        solved = np.linalg.solve(
            scaled.T @ scaled + _RIDGE * len(seconds) * np.eye(len(kept)), scaled.T @ np.asarray(seconds, np.float64)
        )
        # A negative price would call work a gain: its count leaves the fit, and the others are fitted again.
        if (solved >= 0).all():
            found[kept] = solved / mean[kept]
            break
        kept = kept[solved > 0]
    return found


def slowness(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return measured over predicted seconds of each rank: float64[ranks], from float64[n, ranks] of n assignments.

    Hosts of one cluster may differ in speed, which counts of parts do not show.
    """
    ratios = np.divide(measured, predicted, out=np.ones(measured.shape), where=predicted > 0)
    found: np.ndarray = np.median(ratios, axis=0)
    return found


def assigned(seconds: np.ndarray, slowness: np.ndarray) -> np.ndarray:
    """Return the first part of each rank, int64[ranks + 1], with the least seconds on the slowest rank.

    Each rank gets at least one part. seconds: float64[P + 1, P + 1], of parts `first` to `end` (exclusive) at [first,
    end], on a rank of slowness 1; slowness: float64[ranks]. Takes ranks x P x P steps.
    """
    parts, ranks = len(seconds) - 1, len(slowness)
    # Without a part a rank would be faster than any other: such a choice takes forever.
    several = np.where(np.tri(parts + 1, dtype=bool), np.inf, seconds)
    slowest, before = np.where(np.arange(parts + 1) == 0, 0.0, np.inf), np.zeros((ranks, parts + 1), np.int64)
    for rank in range(ranks):
        found = np.maximum(slowest[:, None], several * slowness[rank])
        before[rank] = found.argmin(axis=0)
        slowest = found.min(axis=0)

    # Trace the best choices back from the last part.
    starts = [parts]
    for rank in reversed(range(ranks)):
        starts.append(int(before[rank, starts[-1]]))
    return np.array(starts[::-1], np.int64)


def rank_seconds(seconds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the seconds of each rank, float64[ranks]; `seconds` as in `assigned`."""
    found: np.ndarray = seconds[starts[:-1], starts[1:]]
    return found
