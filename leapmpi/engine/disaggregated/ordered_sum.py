"""Gradients of several shares on each rank, summed over all ranks in the order of the shares.

So the sum does not depend on which rank trained which share: it has the bits of an all-reduce over as many ranks as
there are shares.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator


def sum_in_order(communicator: Communicator, gradients: Tensor, shares: np.ndarray, into: Tensor) -> None:
    """Put into `into` float[n] the sum of `gradients` float[k, n] of all ranks, added in the order of ranks and rows.

    `shares` int64[ranks] says how many rows each rank has. Each rank adds one slice of all rows and sends the sum to
    all. Collective.
    """
    size, rank, length = communicator.size, communicator.rank, into.shape[0]
    bounds = np.arange(size + 1, dtype=np.int64) * length // size
    widths = np.diff(bounds)

    # Rank r gets slice r of all rows of all ranks.
    sent = torch.cat([gradients[:, begin:end].reshape(-1) for begin, end in pairwise(bounds)])
    slices = sent.new_empty(int(shares.sum() * widths[rank]))
    communicator.exchange(sent, len(gradients) * widths, slices, shares * widths[rank], "gradients")

    # It adds them in order, and all ranks get all sums.
    slices = slices.reshape(int(shares.sum()), int(widths[rank]))
    total = slices[0].clone()
    for each in slices[1:]:
        total += each
    mine = np.full(size, widths[rank])
    communicator.exchange(total.repeat(size), mine, into, widths, "gradients")
