"""Random graphs of several kinds for the benchmark of partition methods: communities, R-MAT, and a mesh.

Each maker returns a function that makes the graph, so that a table of makers costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.sampling.clusters import breadth_first


def communities(
    vertices: int,
    degree: int,
    groups: int,
    mixing: float,
    *,
    tail: float = 0.0,
    sizes: float = 0.0,
    order: str = "random",
) -> Callable[[], Graph]:
    """Draw a graph of `groups` communities, of `vertices` x `degree` / 2 undirected edges.

    A share `mixing` of the edges ignores communities. Activities of vertices and sizes of groups follow Pareto laws of
    exponents `tail` and `sizes` (0: all equal). `order` of the vertices: "random", "bfs", or "given", by community.
    """

    def make() -> Graph:
        # The community of each vertex, and the running sum of activities, from which edges draw their ends.
        rng = np.random.default_rng(groups)
        share = (1 - rng.random(groups)) ** (-1 / sizes) if sizes else np.ones(groups)
        group = np.sort(rng.choice(groups, vertices, p=share / share.sum()))
        activity = (1 - rng.random(vertices)) ** (-1 / tail) if tail else np.ones(vertices)
        total = np.concatenate([[0.0], np.cumsum(np.minimum(activity, vertices / 50))])
        start = np.searchsorted(group, np.arange(groups + 1))

        # One end by activity; the other too, among the community of the first, or among all vertices.
        low = np.searchsorted(total, rng.random(vertices * degree // 2) * total[-1], side="right") - 1
        stays = rng.random(len(low)) >= mixing
        floor = np.where(stays, total[start[group[low]]], 0.0)
        ceiling = np.where(stays, total[start[group[low] + 1]], total[-1])
        high = np.searchsorted(total, floor + rng.random(len(low)) * (ceiling - floor), side="right") - 1
        return _graph(vertices, np.stack([low, np.minimum(high, vertices - 1)]), order)

    return make


def rmat(scale: int, degree: int) -> Callable[[], Graph]:
    """Draw an R-MAT graph with 2^scale vertices and the probabilities of Graph500 (Chakrabarti et al., SDM 2004)."""

    def make() -> Graph:
        rng = np.random.default_rng(scale)
        count = degree << (scale - 1)
        edges = np.zeros((2, count), np.int64)
        for _ in range(scale):
            quadrant = np.searchsorted([0.57, 0.76, 0.95], rng.random(count))
            edges = 2 * edges + np.stack([quadrant >> 1, quadrant & 1])
        return _graph(1 << scale, edges, "random")

    return make


def grid(side: int) -> Callable[[], Graph]:
    """Make a square mesh of side x side vertices."""

    def make() -> Graph:
        ids = np.arange(side * side).reshape(side, side)
        pairs = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
        edges = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], axis=1)
        return _graph(side * side, edges, "random")

    return make


def _graph(vertices: int, edges: np.ndarray, order: str) -> Graph:
    """Build the undirected graph of `edges` int64[2, E], its vertices in `order`; a fifth of them are for training."""
    rng = np.random.default_rng(1)
    if order != "given":
        edges = rng.permutation(vertices)[edges]
    if order == "bfs":
        edges = _breadth_first(vertices, edges)[edges]
    split = np.where(rng.random(vertices) < 0.2, 1, 2).astype(np.int8)
    return Graph(*_rows_of(vertices, edges), split=split, attributes={"directed": False})


def _rows_of(vertices: int, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build indptr int64[vertices + 1] and indices int32 of `edges`, both ways, without loops and repeats."""
    edges = edges[:, edges[0] != edges[1]]
    keys = np.unique(np.concatenate([edges[0] * vertices + edges[1], edges[1] * vertices + edges[0]]))
    degrees = np.bincount(keys // vertices, minlength=vertices)
    return np.concatenate([[0], np.cumsum(degrees)]), (keys % vertices).astype(np.int32)


def _breadth_first(vertices: int, edges: np.ndarray) -> np.ndarray:
    """Number the vertices in breadth-first order: int64[vertices]."""
    number = np.empty(vertices, np.int64)
    number[breadth_first(np.arange(vertices), *_rows_of(vertices, edges))] = np.arange(vertices)
    return number


GENERATED = {
    "50 groups, mixing .05": communities(40_000, 16, 50, 0.05),
    "50 groups, mixing .5": communities(40_000, 16, 50, 0.5),
    "400 groups, mixing .2, Pareto degrees": communities(60_000, 16, 400, 0.2, tail=2.0),
    "2000 groups, mixing .3, Pareto sizes, BFS": communities(60_000, 20, 2000, 0.3, sizes=2.0, order="bfs"),
    "9400 groups, mixing .2, Pareto degrees": communities(150_000, 20, 9400, 0.2, tail=2.5),
    "9400 groups, mixing .1, given order": communities(100_000, 12, 9400, 0.1, sizes=2.0, order="given"),
    "50000 groups, mixing .3": communities(400_000, 12, 50_000, 0.3),
    "50000 groups, mixing .05, BFS": communities(300_000, 10, 50_000, 0.05, tail=3.0, order="bfs"),
    "R-MAT 16": rmat(16, 16),
    "grid 200": grid(200),
}
