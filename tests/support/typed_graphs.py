"""Typed graphs that the tests of datasets, of partitioning and of sources share."""

import numpy as np

from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.dataset.typed_rows import TypedRows

LIBRARY = GraphTypes(
    (VertexType("paper", 9, 4, "float32"), VertexType("author", 7), VertexType("field", 3, 2, "float16")),
    (
        Relation("author", "writes", "paper"),
        Relation("paper", "cites", "paper"),
        Relation("paper", "rev_writes", "author", 0),
        Relation("paper", "reviews", "paper"),
        Relation("author", "chairs", "field"),
    ),
    "paper",
)
"""Three types, of which one has no features and one receives nothing of its own; two relations join the same types."""


def typed_graph(types: GraphTypes = LIBRARY, edges: int = 20, seed: int = 0, gaps: bool = False, **fields) -> Graph:
    """A random graph of this schema: up to `edges` edges of each relation, and labels and splits of the target.

    gaps: leave some vertices of each type out, as --largest-component does.
    """
    random = np.random.default_rng(seed)
    present = [
        np.sort(random.choice(each.vertices, max(1, each.vertices - 2 * gaps), replace=False))
        for each in types.vertices
    ]
    original_id = np.concatenate([ids + base for ids, base in zip(present, types.bases, strict=False)])
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in present])])
    n = len(original_id)

    # Lists by (destination, relation, source), each edge once and no loops.
    triples = set()
    for r, (s, d) in enumerate(types.ends.tolist()):
        sources = random.integers(offsets[s], offsets[s + 1], edges)
        destinations = random.integers(offsets[d], offsets[d + 1], edges)
        triples |= {(v, r, u) for v, u in zip(destinations.tolist(), sources.tolist(), strict=True) if u != v}
    ordered = np.array(sorted(triples), np.int64).reshape(-1, 3)
    indptr = np.searchsorted(ordered[:, 0], np.arange(n + 1)).astype(np.int64)
    relation = ordered[:, 1].astype(np.uint8 if len(types.relations) <= 256 else np.uint16)

    # Features by type, labels and splits of the target.
    features, scales = [], []
    for t, each in enumerate(types.vertices):
        shape = (len(present[t]), each.feature_dim)
        features.append(_features(random, shape, each.feature_dtype))
        scales.append(
            np.abs(random.standard_normal((2, shape[1]))).astype("f4") if each.feature_dtype == "int8" else None
        )
    labels, split = np.full(n, -1), np.zeros(n, np.int8)
    target = types.target_number
    if target is not None:
        rows = slice(offsets[target], offsets[target + 1])
        labels[rows] = random.integers(0, 3, offsets[target + 1] - offsets[target])
        split[rows] = random.integers(0, 4, offsets[target + 1] - offsets[target])
    return Graph(
        indptr,
        ordered[:, 2].astype(np.int32),
        labels=None if target is None else labels,
        split=None if target is None else split,
        original_id=original_id,
        classes=0 if target is None else 3,
        attributes={"source": "a test", "command": "none", "directed": True},
        edge_data=EdgeData(relation=relation, relations=len(types.relations), **fields.pop("edge_data", {})),
        typed=TypedRows(types, offsets.astype(np.int64), tuple(features), tuple(scales)),
        **fields,
    )


def _features(random: np.random.Generator, shape: tuple[int, int], dtype: str | None) -> np.ndarray | None:
    if dtype is None:
        return None
    if dtype == "int8":
        return random.integers(-127, 128, shape).astype(np.int8)
    values = random.standard_normal(shape)
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def named_edges(graph: Graph, original_id: np.ndarray | None = None) -> set[tuple[str, int, int]]:
    """The edges of a typed graph or part as (relation, number of the source, of the destination), within their types.

    original_id: of all vertices, where `graph` is a part.
    """
    original = graph.original_id if original_id is None else original_id
    types, found = graph.types, set()
    for v in range(graph.vertices):
        for e in range(graph.indptr[v], graph.indptr[v + 1]):
            r = int(graph.edge_data.relation[e])
            s, d = types.ends[r]
            source = int(original[graph.indices[e]] - types.bases[s])
            found.add((str(types.relations[r]), source, int(graph.original_id[v] - types.bases[d])))
    return found
