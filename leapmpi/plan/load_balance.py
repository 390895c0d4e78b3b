"""Load balance: roots move from the most loaded rank to the least loaded one, cheapest micrographs first.

The rank that trains a root does not change the gradient. But most rows of a moved root are remote. So a root moves only
if that lowers the larger load of the two ranks, the price of moving included.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def _move(order, bounds, work, price, load, rank):
    """Move roots until no move lowers the largest load. Updates `load` and the `rank` of each root.

    order: roots sorted by home rank, cheapest first; bounds: first root of each rank in it.
    """
    following = bounds[:-1].copy()
    while True:
        # Move the cheapest root that has not moved yet from the most to the least loaded rank.
        busy, idle = np.argmax(load), np.argmin(load)
        if busy == idle or following[busy] == bounds[busy + 1]:
            return
        root = order[following[busy]]
        received = load[idle] + work[root] * (1.0 + price)
        if received >= load[busy]:
            return
        following[busy] += 1
        load[busy] -= work[root]
        load[idle] = received
        rank[root] = idle


def balanced(home: np.ndarray, work: np.ndarray, ranks: int, price: float = 0.0) -> np.ndarray:
    """Return the rank that trains each root: int64[roots].

    home: int64[roots], home rank of each root; work: float64[roots], rows and edges of its micrograph; price: extra
    cost of a moved micrograph, as a share of its work.
    """
    order = np.lexsort((work, home))
    bounds = np.searchsorted(home[order], np.arange(ranks + 1))
    load = np.bincount(home, work, ranks)
    rank = np.array(home, np.int64)
    _move(order, bounds, work, price, load, rank)
    return rank


def moving_price(row_bytes: int, row: float, edge: float, byte: float) -> float:
    """Return the `price` of `balanced` for remote rows of `row_bytes`; the others are rates of plan/cost_model.py.

    A micrograph has about as many edges as rows, and all rows of a moved one are assumed remote.
    """
    return row_bytes * byte / max(1e-12, row + edge)
