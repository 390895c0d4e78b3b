"""Cutting a graph into parts by a named method, and the figures that tell how good a cut is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data_prep.partitioning.methods import METHODS
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError, DataError
from leapmpi.system.jit import compiled


@dataclass(frozen=True)
class Partition:
    """A cut of a graph: assignment int32[n] -> part, and per part int64[P]: vertices, training vertices, in-edges,
    and in-edges that come from another part."""

    assignment: np.ndarray
    vertices: np.ndarray
    training: np.ndarray
    edges: np.ndarray
    edges_cut: np.ndarray
    method: str = ""
    """The method that was used."""
    reason: str = ""
    """Why, where it was chosen by method auto."""

    def figures(self) -> dict[str, int | float | str]:
        """The figures stored with a dataset: edge_cut (directed edges between parts), its share of all edges, and
        for vertices, training vertices and edges the largest part relative to the mean; and why `auto` chose."""
        partition_graph, edges = int(self.edges_cut.sum()), int(self.edges.sum())
        chosen = {"method_reason": self.reason} if self.reason else {}
        return {
            **chosen,
            "edge_cut": partition_graph,
            "edge_cut_share": partition_graph / max(1, edges),
            "vertex_balance": _balance(self.vertices),
            "training_balance": _balance(self.training),
            "edge_balance": _balance(self.edges),
        }


def _balance(counts: np.ndarray) -> float:
    return float(counts.max() / counts.mean()) if counts.any() else 1.0


@compiled
def _count(indptr, indices, assignment, split, vertices, training, edges, edges_cut):
    for v in range(len(assignment)):
        home = assignment[v]
        vertices[home] += 1
        if len(split) and split[v] == names.TRAIN:
            training[home] += 1
        edges[home] += indptr[v + 1] - indptr[v]
        for e in range(indptr[v], indptr[v + 1]):
            if assignment[indices[e]] != home:
                edges_cut[home] += 1


def measure(graph: Graph, assignment: np.ndarray, parts: int) -> Partition:
    """The figures of a cut, counted from the graph itself."""
    assignment = np.ascontiguousarray(assignment, np.int32)
    split = np.empty(0, np.int8) if graph.split is None else np.asarray(graph.split)
    counts = [np.zeros(parts, np.int64) for _ in range(4)]
    _count(np.asarray(graph.indptr), np.asarray(graph.indices), assignment, split, *counts)
    return Partition(assignment, *counts)


def check_request(graph: Graph, request: PartitionRequest) -> None:
    """Refuse part counts, seeds and tolerances that cannot be used with ConfigError."""
    parts, seed = request.parts, request.seed
    if parts < 1:
        raise ConfigError(f"--parts is {parts}; it must be at least 1")
    if parts > graph.vertices:
        raise ConfigError(f"--parts is {parts}, but the graph has only {graph.vertices} vertices; use fewer parts")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed is {seed}; it must be between 0 and 2**63 - 1")
    if not 1 <= request.tolerance < float("inf"):
        raise ConfigError(f"--tolerance is {request.tolerance}; it must be a number of at least 1, such as 1.05")


def partition_graph(graph: Graph, parts: int, method: str, seed: int, **wishes) -> Partition:
    """Cut a valid graph into `parts` parts, none of them empty. The same arguments give the same cut. `wishes`
    are further fields of CutRequest.

    Raises ConfigError for an unknown method or a number of parts that cannot be, DataError when the method fails.
    """
    method, reason = settled(graph, parts, method, seed, **wishes)
    request = PartitionRequest(parts, seed, **wishes)
    assignment = METHODS.load(method).partition(graph, request)
    empty = np.flatnonzero(np.bincount(assignment, minlength=parts) == 0)
    if len(empty):
        raise DataError(
            f"method {method} leaves part {empty[0]} of {parts} without vertices (the graph has {graph.vertices}); "
            f"use fewer parts, or another method than {method}"
        )
    return replace(measure(graph, assignment, parts), method=method, reason=reason)


def settled(graph: Graph, parts: int, method: str, seed: int, **wishes) -> tuple[str, str]:
    """The method that `partition_graph` will use with the same arguments, and why, if `method` leaves the choice open.

    Raises ConfigError for an unknown method or a request that cannot be.
    """
    request = PartitionRequest(parts, seed, **wishes)
    check_request(graph, request)
    partitioner = METHODS.load(method)
    return partitioner.choose(graph, request) if hasattr(partitioner, "choose") else (method, "")
