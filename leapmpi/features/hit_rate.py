"""How many reads a cache will spare: by analysis where its law holds, else counted in a rehearsal. No communicator."""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.features.policies import presample, vip

_EPOCH = 2
"""The first one rehearsed, of the streams of rehearsals. Rows chosen by the counts of epoch 0 would look better there
than they are; epoch 1 is that of `leapmpi plan`."""

_ITERATIONS = 16
"""Rehearsed at most: part of an epoch, or several short ones."""


def predicted_hits(access: AccessPattern, ids: np.ndarray) -> tuple[float, float]:
    """How often this rank is to read a vertex of `ids` (int64, none at home), and any from elsewhere.

    Over one iteration, or all that are rehearsed: as many on every rank.
    """
    reads = vip.inclusion(access) if vip.holds(access) else _rehearsed(access)
    reads[access.home] = 0
    return float(reads[ids].sum()), float(reads.sum())


def _rehearsed(access: AccessPattern) -> np.ndarray:
    """In how many of the rehearsed iterations this rank read each vertex: float64[n]."""
    epochs = max(1, _ITERATIONS // max(1, access.sampler.iterations(access.train, access.batch_size)))
    reads = np.zeros(access.topology.vertices)
    for epoch in range(_EPOCH, _EPOCH + epochs):
        reads += presample.uses(access, epoch, _ITERATIONS)
    return reads
