"""Parts within groups of parts, such as 4x16: 4 nodes of 16 ranks, with few edges between nodes first of all.

Parts of a group have consecutive numbers, so any number of ranks that divides evenly, each with a contiguous group of
parts, gets a cut that was made for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from data_prep.partitioning.balance import training_vertices
from data_prep.partitioning.partition_graph import Partition, measure, partition_graph, settled
from data_prep.partitioning.rebalance import rebalance
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError
from leapmpi.system.jit import compiled

_BYTES_PER_VERTEX = 20
"""Held while the groups of a level are cut: group, part, number within the group, and the group's own arrays."""

_ENTRIES = 1 << 20
"""Entries of rows that are taken into a group at a time."""


def parse_hierarchy(text: str) -> tuple[int, ...]:
    """'4x16' as (4, 16). Raises ConfigError."""
    if not re.fullmatch(r"[1-9][0-9]{0,6}(x[1-9][0-9]{0,6})+", text):
        raise ConfigError(f"--hierarchy {text}: give the numbers of parts by level, such as 4x16")
    return tuple(map(int, text.split("x")))


def cut_in_levels(graph: Graph, levels: tuple[int, ...], method: str, seed: int, **wishes) -> Partition:
    """Cut a graph into levels[0] groups, each of them into levels[1], and so on; wishes as for `partition_graph`.

    Within a group only the edges inside it count; they lie in a temporary file while it is cut. Caps hold for the
    final parts, whatever the method. Raises as `partition_graph` does.
    """
    if len(levels) == 1:
        return partition_graph(graph, levels[0], method, seed, **wishes)
    parts, tolerance = math.prod(levels), wishes.pop("tolerance", 1.05)
    method, reason = settled(graph, parts, method, seed, tolerance=tolerance, **wishes)
    wishes["tolerance"] = tolerance ** (1 / len(levels))
    assignment = _cut(graph, levels, method, seed, wishes)
    # Caps that are rounded up at each level may add up to one vertex too many.
    training = training_vertices(graph)
    rebalance(graph.indptr, graph.indices, assignment, training, parts, tolerance)
    return replace(measure(graph, assignment, parts), method=method, reason=reason)


def _cut(graph: Graph, levels: tuple[int, ...], method: str, seed: int, wishes: dict) -> np.ndarray:
    group_of = partition_graph(graph, levels[0], method, seed, **wishes).assignment
    inner = math.prod(levels[1:])
    if inner == 1:
        return group_of
    assignment = group_of * np.int32(inner)
    if wishes.get("memory") is not None:
        wishes = {**wishes, "memory": wishes["memory"] - graph.vertices * _BYTES_PER_VERTEX}
    for group in range(levels[0]):
        members = np.flatnonzero(group_of == group)
        if len(members) < inner:
            raise ConfigError(f"a group of {len(members)} vertices cannot be cut into {inner} parts; use fewer parts")
        # Another seed: a hash that chose the group must not choose the part in it too.
        assignment[members] += _cut(_induced(graph, members), levels[1:], method, (seed + 1) % 2**63, wishes)
    return assignment


def _induced(graph: Graph, members: np.ndarray) -> Graph:
    """The graph of `members` (ascending ids) and the edges between them, without features and labels."""
    number = np.full(graph.vertices, -1, names.index_dtype(graph.vertices))
    number[members] = np.arange(len(members))
    indptr = np.zeros(len(members) + 1, np.int64)
    outer_indptr, outer = np.asarray(graph.indptr), np.asarray(graph.indices)
    file = temporary_file()
    for low, high in _row_ranges(outer_indptr, members):
        entries = int((outer_indptr[members[low:high] + 1] - outer_indptr[members[low:high]]).sum())
        inner = np.empty(entries, number.dtype)
        kept = _inner_rows(outer_indptr, outer, members[low:high], number, indptr[low : high + 1], inner)
        inner[:kept].tofile(file)
    split = None if graph.split is None else np.asarray(graph.split)[members]
    rows = mapped(file, number.dtype, int(indptr[-1]))
    return Graph(indptr, rows, split=split, original_id=np.asarray(graph.original_id)[members])


def _row_ranges(indptr: np.ndarray, members: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of `members` with about _ENTRIES entries each, one row at least."""
    low = 0
    while low < len(members):
        ahead = members[low : low + _ENTRIES]
        ends = np.cumsum(indptr[ahead + 1] - indptr[ahead])
        high = low + max(1, int(np.searchsorted(ends, _ENTRIES, side="right")))
        yield low, high
        low = high


@compiled
def _inner_rows(indptr, indices, members, number, inner_indptr, inner):
    """The rows of `members` within themselves, to `inner`, and their ends to `inner_indptr`; returns their size."""
    total = 0
    for i in range(len(members)):
        for e in range(indptr[members[i]], indptr[members[i] + 1]):
            u = number[indices[e]]
            if u >= 0:
                inner[total] = u
                total += 1
        inner_indptr[i + 1] = inner_indptr[0] + total
    return total
