"""Edges of the topology as roots, and their order in an epoch.

The order is a uniform shuffle by a hash of (seed, epoch, original ids of the ends): every partition and number of ranks
trains the same batches. In a graph with both directions of each edge, each pair is one root; a hash fixes its
direction. In a typed graph the hash has the relation too, and reverses that were added to the source are no roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.topology import Topology
from leapmpi.sampling.epoch_order import by_time
from leapmpi.system.counter_rng import ORDER, DrawKey, fold, key_hash
from leapmpi.system.jit import compiled

_EDGES = 0x65646765_6F726465  # keeps edges apart from the shuffle of vertices
_ONE = np.uint64(1)


@compiled
def is_listed(u, v):
    """Return whether the edge of original ids `u` -> `v` represents the pair of both directions."""
    hashed = fold(fold(np.uint64(_EDGES), min(u, v)), max(u, v))
    return (hashed & _ONE == _ONE) == (u < v)


@compiled
def _is_root(e, u, v, both_ways, labels):
    """Return whether edge `e`, of original ids `u` -> `v`, is a root; `labels` int32[m] may be empty."""
    return (not both_ways or is_listed(u, v)) and (len(labels) == 0 or labels[e] >= 0)


@compiled
def _is_target(e, relation, targets):
    """Return whether the relation of edge `e` is among `targets` (bool[R]); always in a plain graph, without any."""
    return len(targets) == 0 or targets[relation[e]]


@compiled
def _count(indptr, indices, original, both_ways, labels, relation, targets):
    count = 0
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if _is_target(e, relation, targets):
                count += _is_root(e, original[indices[e]], original[v], both_ways, labels)
    return count


@compiled
def _keys(indptr, indices, original, both_ways, labels, relation, targets, base, positions, keys):
    """Write the position in `indices` and the hash of each root."""
    count = 0
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = original[indices[e]]
            if _is_target(e, relation, targets) and _is_root(e, u, original[v], both_ways, labels):
                positions[count], keys[count] = e, fold(fold(base, u), original[v])
                if len(targets):
                    keys[count] = fold(keys[count], relation[e])
                count += 1


@dataclass(frozen=True, eq=False)
class BatchEdges:
    """Edges of a batch over all ranks."""

    ends: np.ndarray
    """int64[B, 2]: sources and destinations."""
    names: np.ndarray
    """int64[B, 2]: their original ids."""
    labels: np.ndarray | None = None
    """int64[B], if labels are read."""
    times: np.ndarray | None = None
    """Numbers[B], if times are read and must be sent to ranks."""
    relations: np.ndarray | None = None
    """int64[B], in a typed graph."""


def target_relations(types: GraphTypes, splits: EdgeSplits | None) -> np.ndarray:
    """Return the relations to train and to score in link prediction: bool[R]. Pure.

    They join the same types of vertices as edges that are held back do, or any where none is; reverses that were added
    to the source are not among them.
    """
    own = np.array([each.reverse_of is None for each in types.relations])
    held = {} if splits is None else splits.relation_arrays()
    relations = {r for each in held.values() for r in np.unique(each).tolist()}
    if not relations:
        return own
    joined = {tuple(types.ends[r].tolist()) for r in relations}
    return own & np.array([tuple(each) in joined for each in types.ends.tolist()])


class EdgeBatches(Sequence):
    """Batches of an epoch, made on access: int64[B, 2] of renumbered sources and destinations.

    In a typed graph int64[B, 3], with relations.
    """

    def __init__(self, topology: Topology, order: np.ndarray, batch_size: int) -> None:
        self._topology, self._order, self._size = topology, order, batch_size

    def __len__(self) -> int:
        return -(-len(self._order) // self._size)

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError(number)
        chosen = self._order[number * self._size : (number + 1) * self._size]
        destinations = np.searchsorted(self._topology.indptr, chosen, side="right") - 1
        columns = [self._topology.indices[chosen], destinations]
        if self._topology.relation is not None:
            columns.append(self._topology.relation[chosen])
        return np.stack([each.astype(np.int64) for each in columns], axis=1)


class TrainingEdges:
    """All edges of `topology` as roots, or only the labelled ones if it holds labels.

    `both_ways`: each pair of ends has edges in both directions. targets: bool[R], the relations of roots in a typed
    graph. The constructor passes over the edges once. An epoch's order takes 16 bytes per root while it is made, 8
    afterwards.
    """

    def __init__(self, topology: Topology, both_ways: bool, targets: np.ndarray | None = None) -> None:
        self.topology, self.both_ways = topology, both_ways
        labels = np.empty(0, np.int32) if topology.edge_label is None else topology.edge_label
        relation, wanted = np.empty(0, np.uint8), np.empty(0, bool)
        if targets is not None and topology.relation is not None:
            relation, wanted = topology.relation, targets
        lists = topology.indptr, topology.indices, topology.original_id
        self._arrays = *lists, both_ways, labels, relation, wanted
        chosen = both_ways or len(labels) or len(wanted)
        self._count = int(_count(*self._arrays)) if chosen else topology.edges

    def __len__(self) -> int:
        return self._count

    def batches(
        self, seed: int, epoch: int, batch_size: int, stream: int = ORDER, time: np.ndarray | None = None
    ) -> Sequence[np.ndarray]:
        """Return all roots once, in the order of the epoch, cut into batches; the last may be shorter.

        time: numbers[m], times of the edges of the topology; roots are sorted by them before they are cut.
        """
        positions, keys = self._hashed(seed, epoch, stream)
        order = positions[np.argsort(keys, kind="stable")]
        return EdgeBatches(self.topology, order if time is None else by_time(order, time[order]), batch_size)

    def _hashed(self, seed: int, epoch: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the roots, positions int64[n] in the topology, and their hashes uint64[n], which define the order."""
        base = np.uint64(fold(key_hash(DrawKey(stream, seed, epoch, 0)), _EDGES))
        positions, keys = np.empty(self._count, np.int64), np.empty(self._count, np.uint64)
        _keys(*self._arrays, base, positions, keys)
        return positions, keys
