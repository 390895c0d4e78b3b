"""Small graphs that the tests of datasets and of partitioning share."""

from pathlib import Path

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.names_of_vertices import open_names
from leapmpi.dataset.sparse_features import from_entries


def from_edges(n: int, pairs, **fields) -> Graph:
    """The symmetric Graph of undirected `pairs`."""
    lists = [set() for _ in range(n)]
    for u, v in pairs:
        if u != v:
            lists[u].add(v)
            lists[v].add(u)
    return from_lists([sorted(neighbours) for neighbours in lists], **fields)


def from_lists(lists, **fields) -> Graph:
    """The Graph with these sorted lists of in-neighbours."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
    return Graph(indptr, np.array([u for row in lists for u in row], np.int32), **fields)


def random_graph(
    n: int = 60, degree: int = 4, seed: int = 0, multilabel: bool = False, half: bool = False, sparse: bool = False
) -> Graph:
    """A directed graph with features, labels, all splits, unlabelled vertices and gaps in its original ids."""
    random = np.random.default_rng(seed)
    lists = [
        np.sort(random.choice(np.delete(np.arange(n), v), random.integers(0, degree + 1), False)) for v in range(n)
    ]
    split = random.integers(0, 4, n).astype(np.int8)
    labels = random.integers(0, 3, n)
    labels[np.flatnonzero(split == 0)[:3]] = -1
    if multilabel:
        labels = random.integers(0, 2, (n, 3)).astype(np.float32)
        labels[0, 1] = np.nan
    features = random.standard_normal((n, 5)).astype(np.float16 if half else np.float32)
    if sparse:
        features[random.random(features.shape) < 0.7] = 0
        row, column = np.nonzero(features)
        features = from_entries(row, column, features[row, column], features.shape)
    return from_lists(
        lists,
        features=features,
        labels=labels,
        split=split,
        original_id=np.sort(random.choice(3 * n, n, replace=False)),
        classes=3,
        attributes={"source": "a test", "command": "none", "directed": True, "scale": 0.5, "draws": 3},
    )


def communities(n: int = 400, groups: int = 8, seed: int = 0) -> Graph:
    """A graph of `groups` dense groups on a ring, with weak links between neighbouring groups; a tenth trains."""
    random = np.random.default_rng(seed)
    group = np.arange(n) * groups // n
    pairs = []
    for v in range(n):
        inside = random.choice(np.flatnonzero(group == group[v]), 6)
        near = random.choice(np.flatnonzero(group == (group[v] + 1) % groups), 1)
        pairs += [(v, u) for u in (*inside, *near)]
    split = np.zeros(n, np.int8)
    split[random.choice(n, n // 10, replace=False)] = 1
    return from_edges(n, pairs, split=split)


def read_names(path: Path, graph: Graph) -> list[str] | None:
    """The names by original id that belong to `graph`, opened from the file `path`; None when it has none."""
    found = open_names(path, graph.attributes)
    return None if found is None else found.of(range(len(found)))
