"""Typed graphs with edges held back, for tests of link prediction."""

from dataclasses import replace

import numpy as np

from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph import Graph


def with_triples_held_back(graph: Graph, count: int = 5, relations: tuple[int, ...] = (0, 1)) -> Graph:
    """`graph` with up to `count` triples a split of each of `relations`, which it does not have."""
    random, types = np.random.default_rng(4), graph.types
    there = set()
    for v in range(graph.vertices):
        for e in range(graph.indptr[v], graph.indptr[v + 1]):
            there.add((v, int(graph.edge_data.relation[e]), int(graph.indices[e])))
    starts, found = graph.typed.offsets, set()
    for r in relations:
        s, d = types.ends[r].tolist()
        for _ in range(20 * count):
            u, v = int(random.integers(starts[s], starts[s + 1])), int(random.integers(starts[d], starts[d + 1]))
            # A reverse of the source's own would give the edge away as well.
            back = int(types.reverses[r])
            if u != v and (v, r, u) not in there and (u, back, v) not in there and len(found) < 2 * count * (1 + r):
                found.add((v, r, u))
    triples = np.array(sorted(found))[random.permutation(len(found))]
    fields = {}
    for name, part in zip(("val", "test"), np.array_split(triples, 2), strict=True):
        part = part[np.lexsort((part[:, 2], part[:, 1], part[:, 0]))]
        fields[name] = np.ascontiguousarray(part[:, [2, 0]])
        fields[f"{name}_relation"] = part[:, 1].astype(graph.edge_data.relation.dtype)
    return replace(graph, edge_splits=EdgeSplits(**fields))
