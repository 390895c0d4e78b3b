"""Inclusion probabilities: the chance that a drawn subgraph holds a vertex, or both ends of an edge.

GraphSAINT's two normalisations follow from them (Zeng et al., ICLR 2020, section 3.2). An edge u -> v of a subgraph has
the weight P(v) / P(u and v), so sums over in-neighbours are unbiased given that v is in the subgraph. The loss of a
root has the weight 1 / P(v).

For independent draws of vertices or edges both are known. Let q(v) be the chance that one of m draws holds v, and q(uv)
that it holds both. Then P(v) = 1 - (1 - q(v))^m and P(u and v) = P(u) + P(v) - 1 + (1 - q(u) - q(v) + q(uv))^m. For
walks they are counted on subgraphs drawn in advance, as in the paper; a count of 0 is taken as 1.
"""

from __future__ import annotations

import math

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.system.jit import compiled


@compiled
def _add_counts(members, table, topology_indptr, topology_indices, vertex_count, edge_count):
    for v in members:
        vertex_count[v] += 1
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            edge_count[e] += table[topology_indices[e]] > 0


@compiled
def _weigh_by_counts(vertices, table, topology_indptr, topology_indices, vertex_count, edge_count, indptr, weight):
    for i in range(len(vertices)):
        v, place = vertices[i], indptr[i]
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            if table[topology_indices[e]] > 0:
                weight[place] = max(1, vertex_count[v]) / max(1, edge_count[e])
                place += 1


class CountedInclusion:
    """Chances as shares of the subgraphs counted so far. Holds 4 bytes per edge of the graph.

    vertex_count: int32[n], edge_count: int32[m]: numbers of subgraphs that held each.
    """

    def __init__(self, topology: Topology) -> None:
        self._graph = topology.indptr, topology.indices
        self._subgraphs = 0
        self.vertex_count = np.zeros(topology.vertices, np.int32)
        self.edge_count = np.zeros(topology.edges, np.int32)

    def count(self, vertices: np.ndarray) -> None:
        """Add a subgraph of `vertices` (int64[k], repeats allowed)."""
        table, members = np.zeros(len(self.vertex_count), np.int8), np.unique(vertices)
        table[members] = 1
        _add_counts(members, table, *self._graph, self.vertex_count, self.edge_count)
        self._subgraphs += 1

    def weigh(self, vertices: np.ndarray, table: np.ndarray, indptr: np.ndarray, weight: np.ndarray) -> None:
        """Write P(v) / P(u and v) to `weight` (float32[edges]), for all edges from the subgraph to each of `vertices`.

        vertices: int64[k], members of the subgraph; table: float64[n], above 0 for its members; indptr: int64[k + 1].
        """
        _weigh_by_counts(vertices, table, *self._graph, self.vertex_count, self.edge_count, indptr, weight)

    def chances(self, vertices: np.ndarray) -> np.ndarray:
        """Return P(v) of each of `vertices` (int64[k]): float64[k], above 0."""
        return np.maximum(1, self.vertex_count[vertices]) / max(1, self._subgraphs)


@compiled
def _some(each, draws):
    """Return the chance that `draws` independent draws, each with the chance `each`, succeed at least once."""
    return 1.0 if each >= 1.0 else -math.expm1(draws * math.log1p(-each))


@compiled
def _weigh_by_draws(vertices, table, topology_indptr, topology_indices, names, each, edge, draws, indptr, weight):
    """Write P(v) / P(u and v) to `weight`, for `draws` independent draws that hold v with the chance each[v].

    edge: chance that one draw starts at a given vertex and takes an edge from there; 0 if draws are vertices.
    """
    for i in range(len(vertices)):
        v, place = vertices[i], indptr[i]
        chance = _some(each[v], draws)
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            u = topology_indices[e]
            if table[u] > 0:
                # One draw holds u and v if it is the edge from v to u, or the reverse one if it exists.
                both = 0.0
                if edge > 0:
                    both = edge / (topology_indptr[v + 1] - topology_indptr[v])
                    if has_edge(v, u, topology_indptr, topology_indices, names):
                        both += edge / (topology_indptr[u + 1] - topology_indptr[u])
                joint = chance + _some(each[u], draws) - _some(each[u] + each[v] - both, draws)
                weight[place] = chance / joint
                place += 1


class DrawInclusion:
    """Chances under `draws` independent draws of vertices or edges.

    each: float64[n], the chance that one draw holds a vertex. If draws are edges, `edge` is the chance that one of them
    starts at a given vertex; it then takes a uniform one of its in-neighbours. If draws are vertices, it is 0.
    """

    def __init__(self, topology: Topology, each: np.ndarray, draws: int, edge: float = 0.0) -> None:
        self._graph = topology.indptr, topology.indices, topology.original_id
        self._each, self._draws, self._edge = each, draws, edge

    def weigh(self, vertices: np.ndarray, table: np.ndarray, indptr: np.ndarray, weight: np.ndarray) -> None:
        """Write the weights of edges into `vertices` from vertices in `table` to `weight`: P(v) / P(u and v)."""
        _weigh_by_draws(vertices, table, *self._graph, self._each, self._edge, self._draws, indptr, weight)

    def chances(self, vertices: np.ndarray) -> np.ndarray:
        """Return the chance that the draws hold each of `vertices`: float64."""
        with np.errstate(divide="ignore"):
            return -np.expm1(self._draws * np.log1p(-np.minimum(1.0, self._each[vertices])))


@compiled
def _add_ends(topology_indptr, topology_indices, unit, held):
    for v in range(len(held)):
        held[v] += unit
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            held[topology_indices[e]] += unit // (topology_indptr[v + 1] - topology_indptr[v])


def edge_chances(topology: Topology) -> np.ndarray:
    """Return the chance that a drawn edge holds each vertex: float64[n].

    An edge is drawn as a uniform vertex and one of its in-neighbours; a vertex without any is drawn alone. Sums are of
    integers, so the numbering of vertices does not matter.
    """
    held = np.zeros(topology.vertices, np.int64)
    unit = 1 << min(40, 61 - max(1, topology.vertices).bit_length())
    _add_ends(topology.indptr, topology.indices, unit, held)
    return held / (unit * max(1, topology.vertices))
