"""Load balance: roots leave the most loaded rank for the least loaded one, cheapest micrographs first.

Where a root is trained does not change the gradient, but away from home most of its rows are remote: a move is made
only while it lowers the load of the slower of the two ranks, its price included.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def _move(order, bounds, work, price, load, rank):
    """Move roots between ranks until no move pays. `order`: roots by home, cheapest first, split by `bounds`."""
    following = bounds[:-1].copy()
    while True:
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
    """The rank int64[roots] that trains each root, given its `home` (int64) and `work` (float64, rows and edges).

    `price` is what a micrograph away from home costs beyond its work, as a share of it. Only the rank that is most
    loaded gives roots away, and only while the largest load falls.
    """
    order = np.lexsort((work, home))
    bounds = np.searchsorted(home[order], np.arange(ranks + 1))
    load, rank = np.bincount(home, work, ranks), np.array(home, np.int64)
    _move(order, bounds, work, price, load, rank)
    return rank


def moving_price(row_bytes: int, row: float, edge: float, byte: float) -> float:
    """The price of `balanced` where a remote row takes `row_bytes` of a link, by the rates of plan/cost.py.

    A micrograph has about as many edges as rows, and away from home all of its rows are taken to be remote.
    """
    return row_bytes * byte / max(1e-12, row + edge)
