"""Groups of edges that are split among owners: decided by their edges, whatever these weigh."""

from types import SimpleNamespace

import numpy as np
import torch

from leapmpi.exchange.named_edges import counts_by_relation, sums_by_relation
from leapmpi.exchange.split_softmax import Runs, SplitGroups
from leapmpi.nn.tensors import Edges

INDPTR, RELATION = np.array([0, 3, 5]), np.array([0, 0, 1, 0, 0], np.uint8)
WEIGHT = np.array([1e20, 1, 1, 1, 1], np.float32)
"""Two edges of a group, of which one weighs so much that the other does not change their sum."""
OWNER = np.array([0, 1, 0, 1, 1])


def runs_of(kept: np.ndarray, weight: np.ndarray | None) -> Runs:
    """Return the runs of an owner of the edges `kept`, bool[edges]."""
    of_edge = np.repeat(np.arange(2), np.diff(INDPTR))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(of_edge[kept], minlength=2))))
    count = counts_by_relation(INDPTR, RELATION, weight)
    block = SimpleNamespace(
        edges=Edges(torch.from_numpy(indptr), torch.zeros(kept.sum(), dtype=torch.int32), 1),
        relation=torch.from_numpy(RELATION[kept]),
        weight=None if weight is None else torch.from_numpy(weight[kept]),
        relation_sum=torch.from_numpy(sums_by_relation(INDPTR, RELATION, weight)[kept]),
        relation_count=None if count is None else torch.from_numpy(count[kept]),
    )
    return Runs.of(block)


def test_a_light_edge_elsewhere_splits_a_group_as_any_does():
    for weight in (None, WEIGHT):
        block = SimpleNamespace(
            indptr=INDPTR, relation=RELATION, weight=weight, neighbours=OWNER, dst=np.array([0, 1]), edges=5
        )
        groups = SplitGroups.of(block, np.arange(3))
        assert (groups.total, groups.away, groups.groups.tolist(), groups.counts.tolist()) == (1, 1, [0, 0], [1, 1])
        # Each owner has the same opinion: its part of the first group lacks an edge, its other group does not.
        assert [runs_of(k == OWNER, weight).incomplete.tolist() for k in range(2)] == [[0], [0]]
