"""`presample`: the vertices read in most iterations of a dry run with the real sampler.

Yang et al., "GNNLab: a factored system for sample-based GNN training over GPUs" (EuroSys 2022), their PreSC#1: one
epoch, on random streams that training does not use.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey


def read_counts(access: AccessPattern, epoch: int = 0, most: int | None = None) -> np.ndarray:
    """In how many iterations of a dry run this rank read each vertex: float64[n].

    The dry run draws from epoch number `epoch` of its random streams. It ends after `most` iterations, or with the
    epoch.
    """
    counts = np.zeros(access.topology.vertices)
    batches = access.sampler.batches(access.train, access.seed, epoch, access.batch_size, PRESAMPLE)
    for iteration, batch in enumerate(islice(batches, most)):
        roots = access.drawn_for(batch, epoch, iteration)
        blocks = access.sampler.sample(DrawKey(PRESAMPLE, access.seed, epoch, iteration), roots, batch)
        counts[blocks[-1].src] += 1
    return counts


POLICY = read_counts
