"""Partition a graph as a PartitionRequest says, and count what the parts hold.

Parts within groups of parts, such as 4x16 (4 nodes of 16 ranks), put few edges between nodes first of all. Parts of a
group have consecutive numbers, so any number of ranks that divides evenly, each with a contiguous group of parts, gets
a partition that was made for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from data_prep.partitioning.method_registry import BALANCES, METHODS
from data_prep.partitioning.multilevel.blocks import workers
from data_prep.partitioning.postprocess import postprocess, repair
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.subgraph import induced_subgraph
from data_prep.partitioning.union_graph import union_of
from data_prep.partitioning.vertex_weights import balance_weights, sampled_work, type_groups
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError, DataError, counted
from leapmpi.system.jit import compiled, unsigned
from leapmpi.system.stage_files import Stored
from leapmpi.system.worker_threads import processor_count

_ABOUT = 1.02
"""A balance of edges or work that exceeds the tolerance by this factor loses against one that does not."""

_BYTES_PER_VERTEX = 20
"""Held while the groups of a level are partitioned: group, part, number in the group, and the group's own arrays."""


@dataclass(frozen=True)
class Partition:
    """A partition of a graph: assignment int32[n] -> part, and per part int64[P]: vertices, training vertices,
    in-edges, and in-edges that come from another part."""

    assignment: np.ndarray
    vertices: np.ndarray
    training: np.ndarray
    edges: np.ndarray
    edges_cut: np.ndarray
    work: np.ndarray
    """float64[P]: rows and edges that sampling for the part's training vertices is expected to draw, in an epoch."""
    method: str = ""
    """The method that was used."""
    reason: str = ""
    """Why, where method auto chose it."""
    types: dict[str, np.ndarray] = field(default_factory=dict)
    """Of a typed graph, vertices of each type by its name: int64[P]."""

    def figures(self) -> dict[str, int | float | str]:
        """Return the figures stored with a dataset.

        These are edge_cut (directed edges between parts), its share of all edges, and why `auto` chose. For vertices,
        training vertices and edges they give the largest part relative to the mean.
        """
        edge_cut = int(self.edges_cut.sum())
        reason = {"method_reason": self.reason} if self.reason else {}
        if self.types:
            reason["type_balance"] = ", ".join(f"{name} {_balance(each):.3f}" for name, each in self.types.items())
        return {
            **reason,
            "edge_cut": edge_cut,
            "edge_cut_share": edge_cut / max(1, int(self.edges.sum())),
            "vertex_balance": _balance(self.vertices),
            "training_balance": _balance(self.training),
            "edge_balance": _balance(self.edges),
            "work_balance": _balance(self.work),
        }

    def stored(self) -> Stored:
        """Return values and arrays from which `of_stored` makes the same."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        types = {f"type{number}": each for number, each in enumerate(self.types.values())}
        return {"method": self.method, "reason": self.reason, "types": list(self.types)}, {**arrays, **types}

    @classmethod
    def of_stored(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> Partition:
        """Make the partition whose `stored` values and arrays these are."""
        types = {name: arrays[f"type{number}"] for number, name in enumerate(values["types"])}
        named = {name: arrays[name] for name in _ARRAYS}
        return cls(**named, method=values["method"], reason=values["reason"], types=types)


_ARRAYS = ("assignment", "vertices", "training", "edges", "edges_cut", "work")


def _balance(counts: np.ndarray) -> float:
    return float(counts.max() / counts.mean()) if counts.any() else 1.0


def partition_graph(graph: Graph, request: PartitionRequest) -> Partition:
    """Partition a valid graph; no part is empty. The same request gives the same partition.

    Raises ConfigError for an unknown method or a request that cannot be met, DataError when the method fails,
    ResourceError when the memory allowed does not suffice.
    """
    request.check(graph)

    # A method that leaves the choice open names others; the smallest cut counts.
    method = METHODS.load(request.method)
    if request.balance != BALANCES[0] and method.choose is None and not method.weights:
        raise ConfigError(
            f"--balance {request.balance}: method {request.method} cannot balance by it; use metis, grem, kaminpar, "
            "ldg, reldg or fennel, or leave the flag out"
        )
    # Methods see one plain graph, whatever its types.
    plain = union_of(graph)
    groups = type_groups(graph) if request.balance == "types" or method.groups else None
    request = replace(request, weights=balance_weights(graph, plain, request), groups=groups)
    if method.choose is None:
        return _partition(plain, request, graph)
    tried, reason = method.choose(plain, request)
    found = [_partition(plain, replace(request, method=name), graph) for name in tried]
    if len(found) > 1:
        cuts = ", ".join(f"{each.method} cuts {each.figures()['edge_cut_share']:.2%}" for each in found)
        reason = f"{reason}: {cuts}"
    balance = {"edges": "edge_balance", "work": "work_balance"}.get(request.balance)

    def merit(each: Partition) -> tuple[bool, int]:
        """Rank balanced ones first; then those that cut fewer edges."""
        too_full = balance is not None and float(each.figures()[balance]) > _ABOUT * request.tolerance
        return too_full, int(each.edges_cut.sum())

    return replace(min(found, key=merit), reason=reason)


def _partition(graph: Graph, request: PartitionRequest, measured: Graph) -> Partition:
    """Partition by the method that `request` names, over all its levels; figures are those of the graph `measured`."""
    if len(request.levels) == 1:
        assignment = _assign_level(graph, request)
    else:
        # Tolerances multiply over the levels, so each level gets its root of the whole. Capacities that are rounded up
        # at each level may add up to one vertex too many.
        assignment = _assign_groups(graph, replace(request, tolerance=request.tolerance ** (1 / len(request.levels))))
        repair(graph, graph.indptr, graph.indices, assignment, request)
    return replace(_measure(measured, assignment, request), method=request.method)


def _assign_level(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Assign the parts of one level: the method, then post-processing. Raises DataError when a part stays empty."""
    partition = METHODS.load(request.method).partition
    assert partition is not None, "methods that choose name others"
    result = partition(graph, request)
    assignment = postprocess(graph, result, request)
    empty = np.flatnonzero(np.bincount(assignment, minlength=request.parts) == 0)
    if len(empty):
        raise DataError(
            f"method {request.method} leaves part {empty[0]} of {request.parts} without vertices (the graph has "
            f"{graph.vertices}); use fewer parts, or another method than {request.method}"
        )
    return assignment


def _assign_groups(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Partition `graph` into the groups of the first level, and each of them by the levels below.

    Within a group only the edges inside it count; they are in a temporary file while it is partitioned.
    """
    # The groups of this level; at the last level they are the parts.
    group_of = _assign_level(graph, replace(request, levels=request.levels[:1]))
    inner = replace(request, levels=request.levels[1:])
    if inner.parts == 1:
        return group_of

    # Another seed: a hash that chose the group must not choose the part in it too.
    inner = replace(inner, seed=(request.seed + 1) % 2**63)
    weights, groups = request.weights, request.groups
    if request.memory is not None:
        inner = replace(inner, memory=request.memory - graph.vertices * _BYTES_PER_VERTEX)

    # Parts of a group are numbered one after the other.
    assignment = group_of * np.int32(inner.parts)
    for group in range(request.levels[0]):
        members = np.flatnonzero(group_of == group)
        if len(members) < inner.parts:
            raise ConfigError(
                f"a group of {counted(len(members), 'vertex')} cannot be cut into {counted(inner.parts, 'part')}; use "
                "fewer parts"
            )
        of_group = replace(
            inner,
            weights=None if weights is None else weights[members],
            groups=None if groups is None else groups[members],
        )
        assignment[members] += _assign_groups(induced_subgraph(graph, members), of_group)
    return assignment


def _measure(graph: Graph, assignment: np.ndarray, request: PartitionRequest) -> Partition:
    """Measure the partition of `graph` by `assignment`, its figures counted from the graph itself."""
    assignment = np.ascontiguousarray(assignment, np.int32)
    split = np.empty(0, np.int8) if graph.split is None else np.asarray(graph.split)
    lists = np.asarray(graph.indptr), unsigned(np.asarray(graph.indices))
    # The smallest numbers of parts: random reads of them come from a faster cache.
    small = assignment.astype(np.min_scalar_type(request.parts))
    with workers(processor_count()) as team:
        counts = np.zeros((team.count, 4, request.parts), np.int64)

        def count(begin: int, end: int, thread: int) -> None:
            _count(*lists, small, split, begin, end, *counts[thread])

        team.over_rows(lists[0], 0, graph.vertices, count)
    vertices, training, edges, edges_cut = counts.sum(axis=0)
    work = np.bincount(assignment, sampled_work(graph, request.fanout), request.parts)
    types = {}
    if graph.typed is not None:
        ranges = pairwise(graph.typed.offsets.tolist())
        for each, (start, stop) in zip(graph.typed.types.vertices, ranges, strict=True):
            types[each.name] = np.bincount(assignment[start:stop], minlength=request.parts)
    return Partition(assignment, vertices, training, edges, edges_cut, work, types=types)


@compiled
def _count(indptr, indices, assignment, split, begin, end, vertices, training, edges, edges_cut):
    """Add to int64[P] each vertices, training vertices, in-edges, and in-edges from other parts, of begin ... end - 1.

    split: int8[n] or [0].
    """
    for v in range(begin, end):
        part = assignment[v]
        vertices[part] += 1
        if len(split) and split[v] == names.TRAIN:
            training[part] += 1
        edges[part] += indptr[v + 1] - indptr[v]
        for e in range(indptr[v], indptr[v + 1]):
            if assignment[indices[e]] != part:
                edges_cut[part] += 1
