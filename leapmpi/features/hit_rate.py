"""How many remote reads a cache will save: by analysis where it applies, else counted in a dry run."""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.features.policies import presample, vip

_EPOCH = 2
"""First epoch of the dry run, on the random streams of dry runs. Epoch 0 chose the rows of `presample`, which would
look better there than they are; epoch 1 is that of `leapmpi plan`."""

_ITERATIONS = 16
"""Iterations of the dry run at most: part of an epoch, or several short ones."""


def predicted_hits(access: AccessPattern, ids: np.ndarray) -> tuple[float, float]:
    """How often this rank will read a vertex of `ids` (int64[k], remote), and any remote vertex.

    Both over one iteration where they are computed, or over the whole dry run: the same on every rank.
    """
    reads = vip.inclusion(access) if vip.applies_to(access) else _counted_reads(access)
    reads[access.local] = 0
    return float(reads[ids].sum()), float(reads.sum())


def _counted_reads(access: AccessPattern) -> np.ndarray:
    """In how many iterations of the dry run this rank read each vertex: float64[n]."""
    epochs = max(1, _ITERATIONS // max(1, access.sampler.iterations(access.train, access.batch_size)))
    reads = np.zeros(access.topology.vertices)
    for epoch in range(_EPOCH, _EPOCH + epochs):
        reads += presample.read_counts(access, epoch, _ITERATIONS)
    return reads
