"""Baseline scores for models, computed apart from leapmpi: numpy and scipy on the arrays of an imported graph.

- links: AUC of held-back edges against 100 drawn pairs each, by common neighbours, Adamic-Adar, and the truncated
  singular value decomposition of the training adjacency.
- regression: mean absolute error of the training mean, of a ridge regression on the features, and of the mean of
  each vertex's neighbours in training.
- multi-label: micro-averaged F1 of the most frequent labels, and of logistic regressions, one a label, on the leading
  singular vectors of the normalised adjacency.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from scipy.special import expit
from scipy.stats import rankdata

TRAIN, TEST = 1, 3
"""Codes of the vertex splits in a graph file."""


class ImportedGraph:
    """The arrays of one graph file (data_prep/FORMAT.md): adjacency, and whatever else it holds."""

    def __init__(self, path: Path) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        with h5py.File(path) as file:
            file.visititems(self._keep)
        ends, columns = self.arrays["topology/indptr"], self.arrays["topology/indices"]
        self.n = len(ends) - 1
        self.adjacency = sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(self.n, self.n))

    def _keep(self, name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            self.arrays[name] = item[()]

    def normalized(self) -> sparse.csr_array:
        """Compute D^-1/2 A D^-1/2."""
        degree = np.maximum(self.adjacency.sum(axis=0), 1)
        scale = sparse.diags_array(degree**-0.5)
        return (scale @ self.adjacency @ scale).tocsr()

    def targets(self) -> np.ndarray:
        """Return the labels as float64[n, columns]."""
        return self.arrays["labels"].reshape(self.n, -1).astype(np.float64)

    def of_split(self, code: int) -> np.ndarray:
        """List the vertices of a split."""
        return np.flatnonzero(self.arrays["split"] == code)


def area_under_curve(positive: np.ndarray, negative: np.ndarray) -> float:
    """Compute the chance that a positive scores above a negative; ties count half."""
    ranks = rankdata(np.concatenate([positive, negative]))[: len(positive)]
    return float((ranks.mean() - (len(positive) + 1) / 2) / len(negative))


def links(graph: ImportedGraph, seed: int) -> dict[str, float]:
    """Compute the AUC of the test edges, in per cent, by scores that read the training adjacency alone."""
    test = graph.arrays["edge_splits/test"]
    pairs = negatives(graph, test, seed)
    wedges = graph.adjacency @ graph.adjacency
    degree = graph.adjacency.sum(axis=0)
    rare = sparse.diags_array(1 / np.log(np.maximum(degree, 2)))
    weighted = graph.adjacency @ rare @ graph.adjacency
    left, sizes, right = svds(graph.adjacency, k=64, random_state=seed)

    scores: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "common-neighbours": lambda ends: entries(wedges, ends),
        "adamic-adar": lambda ends: entries(weighted, ends),
        "svd-64": lambda ends: np.einsum("ek,ek->e", left[ends[:, 0]] * sizes, right[:, ends[:, 1]].T),
    }
    return {name: 100 * area_under_curve(score(test), score(pairs)) for name, score in scores.items()}


def negatives(graph: ImportedGraph, test: np.ndarray, seed: int, each: int = 100) -> np.ndarray:
    """Draw pairs, `each` for a test edge, that are not an edge of any split: int64[about each * edges, 2]."""
    known = graph.adjacency.astype(bool).tolil()
    for ends in (test, graph.arrays["edge_splits/val"]):
        known[ends[:, 0], ends[:, 1]] = True
        known[ends[:, 1], ends[:, 0]] = True
    pairs = np.repeat(test, each, axis=0)
    pairs[:, 1] = np.random.default_rng(seed).integers(graph.n, size=len(pairs))
    taken = entries(known.tocsr(), pairs).astype(bool) | (pairs[:, 0] == pairs[:, 1])
    return pairs[~taken]


def entries(matrix: Any, ends: np.ndarray) -> np.ndarray:
    """Return matrix[u, v] of each pair."""
    return np.asarray(matrix[ends[:, 0], ends[:, 1]]).ravel()


def regression(graph: ImportedGraph, seed: int) -> dict[str, float]:
    """Compute mean absolute errors on the test vertices, in the unit of the target; `seed` is not used."""
    train, test, target = graph.of_split(TRAIN), graph.of_split(TEST), graph.targets()
    average = target[train].mean(axis=0)

    # Ridge regression on standardised features.
    rows = graph.arrays["features"].astype(np.float64)
    rows = (rows - rows[train].mean(axis=0)) / (rows[train].std(axis=0) + 1e-9)
    square = rows[train].T @ rows[train] + np.eye(rows.shape[1])
    ridge = average + rows @ np.linalg.solve(square, rows[train].T @ (target[train] - average))

    # The mean of neighbours in training; where there are none, the mean of all.
    seen = sparse.diags_array((graph.arrays["split"] == TRAIN).astype(float))
    count = (graph.adjacency @ seen).sum(axis=1)[:, None]
    neighbours = np.where(count > 0, (graph.adjacency @ (seen @ target)) / np.maximum(count, 1), average)

    found = {"mean": np.broadcast_to(average, target.shape), "ridge": ridge, "neighbours": neighbours}
    return {name: float(np.abs(guess[test] - target[test]).mean()) for name, guess in found.items()}


def multi_label(graph: ImportedGraph, seed: int) -> dict[str, float]:
    """Compute micro-averaged F1 on the test vertices, in per cent: by thresholds, and by known numbers of labels.

    DeepWalk's protocol tells each vertex's number of labels to the classifier, `known-counts`; leapmpi's does not.
    """
    train, test, target = graph.of_split(TRAIN), graph.of_split(TEST), graph.targets()
    vectors, sizes, _ = svds(graph.normalized(), k=64, random_state=seed)
    rows = np.hstack([vectors * np.sqrt(sizes * graph.n), np.ones((graph.n, 1))])
    chance = expit(rows @ logistic(rows[train], target[train]))
    frequent = np.broadcast_to(target[train].mean(axis=0), target.shape)
    return {
        "frequent-known-counts": f1(by_count(frequent[test], target[test]), target[test]),
        "svd-64": f1(chance[test] > 0.5, target[test]),
        "svd-64-known-counts": f1(by_count(chance[test], target[test]), target[test]),
    }


def logistic(rows: np.ndarray, target: np.ndarray, steps: int = 300, decay: float = 1e-3) -> np.ndarray:
    """Fit the weights of one logistic regression per column of `target`, by accelerated gradient descent."""
    weight = ahead = np.zeros((rows.shape[1], target.shape[1]))
    rate = 4 / (np.linalg.norm(rows, 2) ** 2 / len(rows) + decay)
    for step in range(steps):
        slope = rows.T @ (expit(rows @ ahead) - target) / len(rows) + decay * ahead
        before, weight = weight, ahead - rate * slope
        ahead = weight + step / (step + 3) * (weight - before)
    return weight


def by_count(chance: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Mark the likeliest labels of each row, as many as it has: bool."""
    order = np.argsort(np.argsort(-chance, axis=1, kind="stable"), axis=1)
    return order < target.sum(axis=1, keepdims=True)


def f1(guess: np.ndarray, target: np.ndarray) -> float:
    """Compute micro-averaged F1, in per cent."""
    return float(200 * (guess * target).sum() / (guess.sum() + target.sum()))


BASELINES = {"links": links, "regression": regression, "multi-label": multi_label}
"""Values of `baselines` in graphs.toml."""
