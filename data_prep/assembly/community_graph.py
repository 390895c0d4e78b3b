"""A random graph to try things on: communities, heavy-tailed degrees, and features that a model can learn from.

The edges are those of a degree-corrected stochastic block model (Karrer and Newman, Phys. Rev. E 83, 016107, 2011) with
planted communities: both ends are drawn in proportion to a vertex's activity, which follows a Pareto law; an edge stays
in its community but for a share `mixing`. Each community has a class, which its vertices share but for `strays`, whose
class is drawn at random: no model gets those right by their neighbours. Features are the prototype of the vertex's
class, a random vector of length `signal`, plus unit normal noise. Everything follows from `seed`.

Up to EXACT_EDGES edges, all are distinct. Above, each is drawn by a hash of its number, so that edges can be made in
chunks by several threads and none is remembered: the few that are drawn twice, and loops, are left to the import.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data_prep.edges.edge_keys import distinct
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph
from data_prep.workspace import Workspace, require
from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.errors import DataError, counted
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import in_order

EXACT_EDGES = 1 << 24
"""Up to so many edges, a graph has exactly as many distinct edges as requested."""

_BYTES_PER_VERTEX = 32  # measured while labels are made
_GUIDE_SHARE = 4  # vertices per entry of the table that shortens searches

_TAIL = 2.0  # exponent of the Pareto law of activities: degrees with a finite mean, no finite variance
_EDGES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1 << 14
_LEAST_NEW = 0.02  # a draw that gives fewer new edges than this share meets a graph that is all but full


@dataclass(frozen=True)
class CommunityGraph:
    """The random graph to make. `edges` counts undirected edges; `mixing`, `strays` and `train` are shares."""

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
    feature_dtype: str = "float32"
    scored: float | None = None
    """The share of vertices that are validated or tested; None: all that are not trained."""


def generate(spec: CommunityGraph, workspace: Workspace) -> RawGraph:
    """Draw the graph as a source would give it, each undirected edge once. The same `spec` gives the same graph.

    Large arrays are temporary files of `workspace`. Raises DataError when so many distinct edges cannot be placed,
    ResourceError when the vertices do not fit in memory.
    """
    require(
        workspace.memory,
        spec.vertices * _BYTES_PER_VERTEX + min(spec.edges, EXACT_EDGES) * 40,
        f"making {spec.vertices:,} vertices",
        "make fewer, or allow more",
    )
    # Independent random streams, so that one choice does not move the others.
    streams = np.random.SeedSequence(spec.seed).spawn(4)
    structure, edges, features, splits = (np.random.default_rng(stream) for stream in streams)

    # Few edges are drawn until enough are distinct; many are drawn by their numbers while they are read.
    place, start, community_class = _communities(spec, structure)
    # The sum of the activities of all places up to each; in memory, as it is searched at random for every edge.
    activity = structure.random(spec.vertices)
    np.subtract(1, activity, out=activity)
    np.power(activity, -1 / _TAIL, out=activity)
    np.cumsum(activity, out=activity)
    if spec.edges <= EXACT_EDGES:
        drawn = place[_distinct_edges(spec, start, activity, edges)]
    else:
        drawn = _streamed_edges(spec, place, start, activity, workspace)

    # Classes int32[n] are those of the communities, but for the share `strays`.
    labels = np.empty(spec.vertices, np.int32)
    labels[place] = np.repeat(community_class, np.diff(start))
    strays = np.flatnonzero(structure.random(spec.vertices) < spec.strays)
    labels[strays] = structure.integers(0, spec.classes, len(strays))
    return RawGraph(
        vertices=spec.vertices,
        edges=drawn,
        features=_features(spec, labels, features, workspace) if spec.features else None,
        labels=labels,
        splits=_splits(spec, splits),
        classes=spec.classes,
        split_origin=f"random, {spec.train:g} for training",
    )


def _communities(spec: CommunityGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place vertices community by community, then shuffle them, so that ids carry no information.

    Returns the id of each place [n], the first place of each community int64[k + 1], and their classes int64[k].
    """
    place = rng.permutation(spec.vertices).astype(index_dtype(spec.vertices))

    # One vertex each, so that none is empty; the others at random.
    others = rng.integers(0, spec.communities, spec.vertices - spec.communities)
    size = 1 + np.bincount(others, minlength=spec.communities)
    start = np.concatenate([[0], np.cumsum(size)])
    return place, start, (rng.permutation(spec.communities) % spec.classes).astype(np.int32)


def _draw_edges(
    count: int, spec: CommunityGraph, start: np.ndarray, activity: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return keys low * n + high of `count` drawn pairs of places, without loops; pairs may repeat."""
    # One end by activity; the other in the same community, or, for the share `mixing`, anywhere.
    total = activity[-1]
    low = np.searchsorted(activity, rng.random(count) * total, side="right")
    community = np.searchsorted(start, low, side="right") - 1
    before = np.concatenate([[0.0], activity])[start]
    stays = rng.random(count) >= spec.mixing
    floor = np.where(stays, before[community], 0.0)
    ceiling = np.where(stays, before[community + 1], total)
    high = np.searchsorted(activity, floor + rng.random(count) * (ceiling - floor), side="right")
    # Rounding at the very end of an interval may give the place after it.
    low, high = np.minimum(low, spec.vertices - 1), np.minimum(high, spec.vertices - 1)
    keep = low != high
    return np.minimum(low, high)[keep] * np.int64(spec.vertices) + np.maximum(low, high)[keep]


def _distinct_edges(
    spec: CommunityGraph, start: np.ndarray, activity: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw exactly `spec.edges` distinct pairs of places: int64[2, E]."""
    keys = np.empty(0, np.int64)
    while (missing := spec.edges - len(keys)) > 0:
        before = len(keys)
        count = missing + missing // 8 + 64
        slices = (min(_EDGES_AT_ONCE, count - first) for first in range(0, count, _EDGES_AT_ONCE))
        fresh = [_draw_edges(size, spec, start, activity, rng) for size in slices]
        keys = distinct(np.concatenate([keys, *fresh]))
        if len(keys) - before < _LEAST_NEW * count:
            break
    if len(keys) < spec.edges:
        raise DataError(
            f"{counted(spec.edges, 'distinct edge')} do not fit this graph ({len(keys):,} were placed): use fewer "
            "edges, "
            "more vertices, fewer communities or more mixing"
        )

    # Too many were drawn: leave some out at random.
    surplus = rng.choice(len(keys), len(keys) - spec.edges, replace=False)
    keys = np.delete(keys, surplus)
    return np.stack(np.divmod(keys, np.int64(spec.vertices)))


@compiled
def _uniform(seed, edge, draw):
    """Return a number in [0, 1): a hash of the seed, the edge and the number of the draw."""
    return np.float64(fold(fold(np.uint64(seed), edge), draw) >> np.uint64(11)) * 2.0**-53


@compiled
def _place_of(value, activity, guide, scale):
    """Find the first place whose sum of activities is above `value`."""
    slot = min(np.int64(value * scale), len(guide) - 2)
    low, high = np.int64(guide[slot]), np.int64(guide[slot + 1])
    # Rounding may have put the value into the slot beside its own.
    while low > 0 and activity[low - 1] > value:
        low -= 1
    while high < len(activity) - 1 and activity[high] <= value:
        high += 1
    while low < high:
        middle = (low + high) >> 1
        if activity[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _draw_numbered(seed, first, mixing, start, activity, guide, place, out):
    """Write the edges with numbers `first` ... to `out` [2, k], as ids of vertices."""
    total = activity[len(activity) - 1]
    scale = (len(guide) - 1) / total
    for i in range(out.shape[1]):
        edge = first + i
        low = _place_of(_uniform(seed, edge, 0) * total, activity, guide, scale)
        floor, ceiling = 0.0, total
        # Within the community: draw from its range of activities alone.
        if _uniform(seed, edge, 1) >= mixing:
            community = np.searchsorted(start, low, side="right") - 1
            floor = activity[start[community] - 1] if start[community] else 0.0
            ceiling = activity[start[community + 1] - 1]
        high = _place_of(floor + _uniform(seed, edge, 2) * (ceiling - floor), activity, guide, scale)
        out[0, i], out[1, i] = place[low], place[high]


def _streamed_edges(
    spec: CommunityGraph, place: np.ndarray, start: np.ndarray, activity: np.ndarray, workspace: Workspace
) -> EdgeStream:
    """Draw `spec.edges` edges, each by its number; loops and repeats may be among them."""
    # A guide table shortens the searches in `activity`.
    slots = max(1, spec.vertices // _GUIDE_SHARE)
    guide = np.searchsorted(activity, np.arange(slots + 1) * (activity[-1] / slots), side="right").astype(place.dtype)
    np.minimum(guide, spec.vertices - 1, out=guide)
    seed = np.random.SeedSequence(spec.seed).generate_state(1, np.uint64)[0]

    def drawn(first: int) -> np.ndarray:
        out = np.empty((2, min(_EDGES_AT_ONCE, spec.edges - first)), place.dtype)
        _draw_numbered(seed, first, spec.mixing, start, activity, guide, place, out)
        return out

    def chunks() -> Iterator[np.ndarray]:
        return in_order(drawn, range(0, spec.edges, _EDGES_AT_ONCE), workspace.threads)

    return EdgeStream(chunks, spec.edges)


def _features(spec: CommunityGraph, labels: np.ndarray, rng: np.random.Generator, workspace: Workspace) -> np.ndarray:
    """Write features [n, F] to a temporary file: the prototype of the class, of length `signal`, plus normal noise."""
    prototype = rng.standard_normal((spec.classes, spec.features), np.float32)
    prototype *= spec.signal / np.linalg.norm(prototype, axis=1, keepdims=True)
    out = workspace.array("features", (spec.vertices, spec.features), spec.feature_dtype)
    for first in range(0, spec.vertices, _ROWS_AT_ONCE):
        known = labels[first : first + _ROWS_AT_ONCE]
        rows = rng.standard_normal((len(known), spec.features), np.float32)
        rows += prototype[known]
        out[first : first + _ROWS_AT_ONCE] = rows
    return out


def _splits(spec: CommunityGraph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw training vertices; the others, or `scored` of all, go half to validation, half to test."""
    order = rng.permutation(spec.vertices).astype(index_dtype(spec.vertices))
    train = max(1, round(spec.train * spec.vertices))
    others = order[train:] if spec.scored is None else order[train:][: round(spec.scored * spec.vertices)]
    val = len(others) // 2
    parts = {"train": order[:train], "val": others[:val], "test": others[val:]}
    # Copies, which do not keep the whole order alive.
    return {name: ids.copy() for name, ids in parts.items() if len(ids)}
