"""Load balance: roots move from the most loaded rank to the least loaded one, cheapest micrographs first.

The rank that trains a root does not change the gradient. But most rows of a moved root are remote: a root moves only
while that lowers the larger load of the two ranks, the price of moving included.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def _move(order, bounds, work, price, load, rank):
    """Move roots until no move lowers the largest load. Updates `load` and the `rank` of each root.

    order: roots sorted by home rank, cheapest first; bounds: where the roots of each rank start in it.
    """
    following = bounds[:-1].copy()
    while True:
        # The most loaded rank gives its cheapest root that has not moved yet to the least loaded rank.
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
    """The rank that trains each root: int64[roots].

    home: int64[roots], the home rank of each root; work: float64[roots], rows and edges of its micrograph; price: what
    a moved micrograph costs more, as a share of its work.
    """
    order = np.lexsort((work, home))
    bounds = np.searchsorted(home[order], np.arange(ranks + 1))
    load = np.bincount(home, work, ranks)
    rank = np.array(home, np.int64)
    _move(order, bounds, work, price, load, rank)
    return rank


def moving_price(row_bytes: int, row: float, edge: float, byte: float) -> float:
    """The `price` of `balanced`: a remote row takes `row_bytes`; row, edge and byte are rates of plan/cost_model.py.

    A micrograph has about as many edges as rows, and all rows of a moved one are taken to be remote.
    """
    return row_bytes * byte / max(1e-12, row + edge)
