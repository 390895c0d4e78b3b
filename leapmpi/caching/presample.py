"""`presample`: the vertices read in most iterations of a rehearsal with the real sampler.

Yang et al., "GNNLab: a factored system for sample-based GNN training over GPUs" (EuroSys 2022), as its PreSC#1:
one epoch on random streams of its own.
"""

from __future__ import annotations

import numpy as np

from leapmpi.caching._access import Access
from leapmpi.sampling.keys import PRESAMPLE, DrawKey


def uses(access: Access) -> np.ndarray:
    """In how many iterations of one epoch this rank read each vertex: float64[n]."""
    counts = np.zeros(access.topology.vertices)
    parts = access.sampler.batches(access.train, access.seed, 0, access.batch_size, PRESAMPLE)
    for iteration, batch in enumerate(parts):
        roots = access.schedule(batch, 0, iteration).rank_roots(access.rank)
        blocks = access.sampler.sample(DrawKey(PRESAMPLE, access.seed, 0, iteration), roots, batch)
        counts[blocks[-1].src] += 1
    return counts


POLICY = uses
