"""`presample`: the vertices read in most iterations of a rehearsal with the real sampler.

Yang et al., "GNNLab: a factored system for sample-based GNN training over GPUs" (EuroSys 2022), as its PreSC#1:
one epoch on random streams of its own.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey


def uses(access: AccessPattern, epoch: int = 0, most: int | None = None) -> np.ndarray:
    """In how many iterations of a rehearsal this rank read each vertex: float64[n].

    It draws from epoch number `epoch` of the streams of rehearsals, and ends after `most` iterations; None: with that
    epoch.
    """
    counts = np.zeros(access.topology.vertices)
    parts = access.sampler.batches(access.train, access.seed, epoch, access.batch_size, PRESAMPLE)
    for iteration, batch in enumerate(islice(parts, most)):
        roots = access.schedule(batch, epoch, iteration).rank_roots(access.rank)
        blocks = access.sampler.sample(DrawKey(PRESAMPLE, access.seed, epoch, iteration), roots, batch)
        counts[blocks[-1].src] += 1
    return counts


POLICY = uses
