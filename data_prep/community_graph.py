"""A random graph to try things on: communities, heavy-tailed degrees, and features that a model can learn from.

The edges are those of a degree-corrected stochastic block model (Karrer and Newman, Phys. Rev. E 83, 016107, 2011) with
planted communities: both ends are drawn in proportion to a vertex's activity, which follows a Pareto law; an edge stays
in its community but for a share `mixing`. Each community has a class, which its vertices share but for `strays`, whose
class is drawn anew: no model gets those right by their neighbours. Features are the prototype of the vertex's class, a
random vector of length `signal`, plus unit normal noise. Everything follows from `seed`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.raw_graph import RawGraph
from leapmpi.errors import DataError

_TAIL = 2.0  # exponent of the Pareto law of activities: degrees with a finite mean, no finite variance
_EDGES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1 << 14
_LEAST_NEW = 0.02  # a draw that gives fewer new edges than this share meets a graph that is all but full


@dataclass(frozen=True)
class CommunityGraph:
    """What to make. `edges` counts undirected edges; `mixing`, `strays` and `train` are shares."""

    vertices: int
    edges: int
    features: int
    classes: int
    communities: int
    mixing: float
    strays: float
    signal: float
    train: float
    seed: int


def generate(wanted: CommunityGraph) -> RawGraph:
    """The graph as a source would give it, each undirected edge once. The same `wanted` gives the same graph.

    Raises DataError when so many distinct edges cannot be placed.
    """
    streams = np.random.SeedSequence(wanted.seed).spawn(4)
    structure, edges, features, splits = (np.random.default_rng(stream) for stream in streams)
    place, start, community_class = _communities(wanted, structure)
    activity = np.cumsum((1 - structure.random(wanted.vertices)) ** (-1 / _TAIL))
    found = _distinct_edges(wanted, start, activity, edges)
    labels = _labels(wanted, place, np.repeat(community_class, np.diff(start)), structure)
    return RawGraph(
        vertices=wanted.vertices,
        edges=place[found],
        features=_features(wanted, labels, features) if wanted.features else None,
        labels=labels,
        splits=_splits(wanted, splits),
        classes=wanted.classes,
        split_origin=f"random, {wanted.train:g} for training",
    )


def _communities(wanted: CommunityGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices are made community by community and then shuffled, so that ids tell nothing.

    Returns the id of each place int64[n], the first place of each community int64[k + 1], and their classes int64[k].
    """
    place = rng.permutation(wanted.vertices)
    # One vertex each, so that none is empty; the others fall where they fall.
    others = rng.integers(0, wanted.communities, wanted.vertices - wanted.communities)
    size = 1 + np.bincount(others, minlength=wanted.communities)
    start = np.concatenate([[0], np.cumsum(size)])
    return place, start, rng.permutation(wanted.communities) % wanted.classes


def _labels(
    wanted: CommunityGraph, place: np.ndarray, class_of_place: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    labels = np.empty(wanted.vertices, np.int64)
    labels[place] = class_of_place
    strays = np.flatnonzero(rng.random(wanted.vertices) < wanted.strays)
    labels[strays] = rng.integers(0, wanted.classes, len(strays))
    return labels


def _draw_edges(
    count: int, wanted: CommunityGraph, start: np.ndarray, activity: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Keys low * n + high of `count` drawn pairs of places, loops left out; pairs may repeat."""
    total = activity[-1]
    low = np.searchsorted(activity, rng.random(count) * total, side="right")
    community = np.searchsorted(start, low, side="right") - 1
    before = np.concatenate([[0.0], activity])[start]
    stays = rng.random(count) >= wanted.mixing
    floor = np.where(stays, before[community], 0.0)
    ceiling = np.where(stays, before[community + 1], total)
    high = np.searchsorted(activity, floor + rng.random(count) * (ceiling - floor), side="right")
    # Rounding at the very end of an interval may give the place after it.
    low, high = np.minimum(low, wanted.vertices - 1), np.minimum(high, wanted.vertices - 1)
    keep = low != high
    return np.minimum(low, high)[keep] * np.int64(wanted.vertices) + np.maximum(low, high)[keep]


def _distinct_edges(
    wanted: CommunityGraph, start: np.ndarray, activity: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """int64[2, E]: exactly `wanted.edges` distinct pairs of places, drawn until there are enough."""
    keys = np.empty(0, np.int64)
    while (missing := wanted.edges - len(keys)) > 0:
        count, before = missing + missing // 8 + 64, len(keys)
        slices = (min(_EDGES_AT_ONCE, count - first) for first in range(0, count, _EDGES_AT_ONCE))
        fresh = [_draw_edges(size, wanted, start, activity, rng) for size in slices]
        keys = np.sort(np.concatenate([keys, *fresh]))  # far faster than np.unique, which hashes
        keys = keys[np.diff(keys, prepend=-1) > 0]
        if len(keys) - before < _LEAST_NEW * count:
            break
    if len(keys) < wanted.edges:
        raise DataError(
            f"{wanted.edges:,} distinct edges do not fit this graph ({len(keys):,} were placed): ask for fewer edges, "
            "more vertices, fewer communities or more mixing"
        )
    surplus = rng.choice(len(keys), len(keys) - wanted.edges, replace=False)
    keys = np.delete(keys, surplus)
    return np.stack(np.divmod(keys, np.int64(wanted.vertices)))


def _features(wanted: CommunityGraph, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    prototype = rng.standard_normal((wanted.classes, wanted.features), np.float32)
    prototype *= wanted.signal / np.linalg.norm(prototype, axis=1, keepdims=True)
    out = np.empty((wanted.vertices, wanted.features), np.float32)
    for first in range(0, wanted.vertices, _ROWS_AT_ONCE):
        rows = out[first : first + _ROWS_AT_ONCE]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows += prototype[labels[first : first + _ROWS_AT_ONCE]]
    return out


def _splits(wanted: CommunityGraph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Training vertices drawn at random; the others go half to validation, half to test."""
    order = rng.permutation(wanted.vertices)
    train = max(1, round(wanted.train * wanted.vertices))
    val = (wanted.vertices - train) // 2
    parts = {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}
    return {name: ids for name, ids in parts.items() if len(ids)}
