"""Draws of pairs (transit, sample), grouped by transit: every adjacency list is read once for all its samples.

A transit is a vertex from whose in-neighbours a sample takes its next vertices; a walker at a crossing, for example.
Transit parallelism is that of NextDoor (Jangda, Polisetty, Guha, Serafini: "Accelerating graph sampling for graph
machine learning using GPUs", EuroSys 2021, section 4): pairs are sorted by transit, and shared out by pairs, not by
degree. What a pair draws depends on its own name alone, so neither grouping nor threads nor the device change it.

Here are the kernels for the CPU; `transit_torch` gives the same numbers on any device of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.compiled import compiled
from leapmpi.instructions import prefetch
from leapmpi.sampling.keys import bounded, fold
from leapmpi.sampling.team import Team

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology

_DIGIT = 11
"""Bits of a sorting pass: the counters of 2048 digits fit the first cache."""

_AHEAD = 16
"""Pairs between asking for a cache line and using it."""


@compiled
def _sort_pass(transits, order, shift, starts, out):
    """Reorder pair numbers `order` by the digit of their transit at `shift`, equal ones as before. `starts`: zeros."""
    digits = len(starts) - 1
    for i in range(len(order)):
        starts[((transits[order[i]] >> shift) & (digits - 1)) + 1] += 1
    for digit in range(digits):
        starts[digit + 1] += starts[digit]
    for i in range(len(order)):
        digit = (transits[order[i]] >> shift) & (digits - 1)
        out[starts[digit]] = order[i]
        starts[digit] += 1


def grouped(transits: np.ndarray, vertices: int) -> np.ndarray:
    """The numbers of the pairs (int32[p]), those of one transit side by side, in ascending order of transits.

    transits: int[p], in [0, vertices), of fewer than 2**31 pairs.
    """
    order, other = np.arange(len(transits), dtype=np.int32), np.empty(len(transits), np.int32)
    for shift in range(0, max(1, int(vertices - 1).bit_length()), _DIGIT):
        _sort_pass(transits, order, shift, np.zeros((1 << _DIGIT) + 1, np.int64), other)
        order, other = other, order
    return order


@compiled
def _draw_pairs(first, end, order, transits, names, indptr, indices, out):
    """What pairs order[first:end] draw, to their rows of `out`; -1 where a transit has no in-neighbours."""
    for i in range(first, end):
        if i + 2 * _AHEAD < end:
            prefetch(indptr, np.intp(transits[order[i + 2 * _AHEAD]]))
        if i + _AHEAD < end:
            prefetch(indices, indptr[transits[order[i + _AHEAD]]])
        pair = order[i]
        transit = transits[pair]
        start = indptr[transit]
        degree = indptr[transit + 1] - start
        for j in range(out.shape[1]):
            out[pair, j] = indices[start + np.int64(bounded(fold(names[pair], j), degree))] if degree else -1


def draw_pairs(
    topology: Topology, transits: np.ndarray, names: np.ndarray, draws: int, team: Team, group: bool = False
) -> np.ndarray:
    """Independent uniform draws for each pair, with replacement: int[p, draws], of the type of topology.indices.

    transits: int[p], ids in [0, n); names: uint64[p], the hash of all that tells a pair's draws from others' (sample,
    step); draw j of pair p is in-neighbour number bounded(fold(names[p], j), degree). Rows are -1 where a transit has
    no in-neighbours. `group` says whether pairs are sorted by transit first; it changes the time alone, and did not
    pay where it was measured (README.md).
    """
    out = np.empty((len(transits), draws), topology.indices.dtype)
    order = grouped(transits, topology.vertices) if group else np.arange(len(transits), dtype=np.int32)

    def draw(_: int, first: int, end: int) -> None:
        _draw_pairs(first, end, order, transits, names, topology.indptr, topology.indices, out)

    team.share(0, len(transits), draw)
    return out


@compiled
def _name_walkers(hashed, walkers, out):
    for i in range(len(walkers)):
        out[i] = fold(hashed, walkers[i])


def walk(
    topology: Topology, hashed: np.uint64, starts: np.ndarray, steps: int, team: Team, group: bool = False
) -> np.ndarray:
    """Uniform random walks against the edges, all one step at a time: int64[walkers, steps + 1], the starts first.

    starts: int64[walkers]. Walker w takes draw 0 of the name fold(fold(hashed, step), w). One that has no in-neighbours
    stays where it is.
    """
    paths = np.empty((len(starts), steps + 1), np.int64)
    paths[:, 0] = starts
    names, walkers = np.empty(len(starts), np.uint64), np.arange(len(starts))
    for step in range(steps):
        _name_walkers(np.uint64(fold(hashed, step)), walkers, names)
        here = np.ascontiguousarray(paths[:, step])
        following = draw_pairs(topology, here, names, 1, team, group)[:, 0]
        paths[:, step + 1] = np.where(following < 0, here, following)
    return paths
