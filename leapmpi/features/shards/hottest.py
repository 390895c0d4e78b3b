"""Which rows of a rank are read most, by all ranks: those that are worth memory where not all are in it."""

from __future__ import annotations

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.features.access import AccessPattern
from leapmpi.features.cache import RowCache
from leapmpi.features.expected_reads import expected_reads, read_scores


def hottest_rows(
    access: AccessPattern, count: int, communicator: Communicator, cache: RowCache | None
) -> tuple[np.ndarray, float]:
    """The `count` own vertices (int64, ascending) that all ranks read most, and their share of the reads.

    `cache` holds what this rank asks no other for. Of equal ones the lower ids come first. Collective.
    """
    scores = _of_all_ranks(read_scores(access), access, communicator, cache)
    chosen = np.sort(np.argsort(-scores, kind="stable")[:count])
    reads = _of_all_ranks(expected_reads(access), access, communicator, cache)
    total = float(reads.sum())
    return chosen + access.local.start, float(reads[chosen].sum()) / total if total else 1.0


def _of_all_ranks(
    scores: np.ndarray, access: AccessPattern, communicator: Communicator, cache: RowCache | None
) -> np.ndarray:
    """float64[own vertices]: what all ranks' `scores` (float64[n]) of this rank's vertices add up to. Collective."""
    if cache is not None:
        scores[cache.ids] = 0
    counts = np.diff(access.rank_offsets)
    own = int(counts[access.rank])
    received = np.empty(own * len(counts))
    communicator.exchange(np.asarray(scores, np.float64), counts, received, np.full(len(counts), own), "control")
    return received.reshape(len(counts), own).sum(axis=0)
