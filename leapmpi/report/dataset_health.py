"""Properties of a graph or dataset that matter for training: degrees, labels, features, the cut.

Takes one pass over the in-neighbours and one over the features, in blocks of mapped arrays. Holds one byte per vertex,
and four more for its class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.graph import Graph, VertexRows, split_sizes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_groups, row_ranges
from leapmpi.dataset.names_of_vertices import open_names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.sparse_features import Features, SparseFeatures
from leapmpi.errors import DataError
from leapmpi.report.rows_by_time import rows_by_time
from leapmpi.runs.degree_groups import FIRST_DEGREES, degree_labels

BYTES_PER_VERTEX = 5
"""Memory held per vertex while a graph is examined, besides blocks."""

MOST_FEATURE_BYTES = 4 << 30
"""Size above which features are sampled, in blocks spread evenly over all rows."""

_BLOCK = 16 << 20
_LARGEST_DEGREE = 1 << 20
"""Degree at which quantiles saturate."""

_MOST_SHOWN = 5
"""Vertices of the largest in-degrees that are named."""

_OF_PARTITION = (
    *("method", "method_reason", "edge_cut", "edge_cut_share", "replication", "vertex_balance", "training_balance"),
    *("edge_balance", "work_balance", "micrograph_locality", "cut_on_ranks", "report_fanout", "report_batch_size"),
    *("leap_remote_rows", "pull_remote_rows", names.VERTEX_ORDER),
)
"""Attributes written by partitioning."""

Advance = Callable[[int], object]


def health(graph: Graph | Dataset, advance: Advance = lambda edges: None, file: Path | None = None) -> dict[str, Any]:
    """Examine `graph` and return the findings as plain values.

    `advance` is called with the number of edges read since the last call. `file` is that of a Graph, which has names of
    vertices beside it. Holds BYTES_PER_VERTEX bytes for each vertex.
    Raises DataError for a part file that is missing or damaged.
    """
    offsets, parts, kind = _layout(graph)
    vertices, edges = int(offsets[-1]), graph.edges
    found = _Counts(vertices, len(offsets) - 1, graph.classes if kind == names.MULTI_CLASS else 0)
    for number, rows in enumerate(parts()):
        if kind and rows.labels is not None:
            found.add_labels(int(offsets[number]), rows.labels, kind)
    # Labels come first: edges between classes are counted by them.
    feature_rows, without, undefined = 0, 0, 0
    for number, rows in enumerate(parts()):
        found.add_edges(number, offsets, rows, advance)
        for _, _, features in rows.sections():
            if features is None:
                continue
            counts = _feature_rows(features, len(offsets) - 1)
            feature_rows, without, undefined = (
                a + b for a, b in zip((feature_rows, without, undefined), counts, strict=True)
            )
    attributes = graph.attributes
    return {
        "name": str(attributes.get("source", "")),
        "graph_uuid": getattr(graph, "graph_uuid", None) or getattr(graph, "uuid", None) or "",
        "vertices": vertices,
        "edges": edges,
        "feature_dim": graph.feature_dim,
        "classes": graph.classes,
        "label_kind": kind or "",
        "splits": _splits(graph),
        "edge_splits": _edge_splits(graph),
        **found.values(),
        "largest": _named(found.most, graph, file),
        "features": {"examined": feature_rows, "all_zero": without, "undefined": undefined},
        "cut": _cut(found, offsets, graph),
        **_types(graph),
        "times": rows_by_time(parts),
        **{name: attributes[name] for name in _OF_PARTITION if name in attributes},
    }


def _named(most: Sequence[tuple[int, int]], graph: Graph | Dataset, file: Path | None) -> list[dict[str, Any]]:
    """Return name, or original id, and in-degree of the vertices in `most`."""
    file = graph.folder / names.DATASET_FILE if isinstance(graph, Dataset) else file
    try:
        named = open_names(file, graph.attributes, check=False) if file else None
    except DataError:
        # The page needs no names: their file was left behind.
        named = None
    ids = [vertex for _, vertex in most]
    labels = named.of(ids) if named else list(map(str, ids))
    return [{"vertex": label, "in_degree": degree} for label, (degree, _) in zip(labels, most, strict=True)]


def class_names(graph: Graph | Dataset) -> list[str]:
    """Return the names of classes or labels; empty if the source gave none."""
    try:
        return list(map(str, json.loads(str(graph.attributes.get("class_names", "[]")))))
    except (ValueError, TypeError):
        return []


def _layout(graph: Graph | Dataset) -> tuple[np.ndarray, Callable[[], Iterator[VertexRows]], str | None]:
    """Return first vertices of parts, int64[P + 1], a function that opens the parts in order, and the label kind."""
    if isinstance(graph, Graph):
        return np.array([0, graph.vertices]), lambda: iter([graph]), graph.label_kind
    dataset = graph
    kind = dataset.label_kind if dataset.classes else None
    return dataset.offsets, lambda: (dataset.part(number) for number in range(dataset.parts)), kind


def _types(graph: Graph | Dataset) -> dict[str, list[dict]]:
    """Return types and relations of a typed graph with their counts; nothing of a plain one."""
    if isinstance(graph, Graph):
        return {} if graph.typed is None else graph.typed.describe(graph.relation_edges())
    if graph.types is None or graph.type_offsets is None or graph.relation_edges is None:
        return {}
    return graph.types.describe(graph.type_offsets, graph.relation_edges)


def _splits(graph: Graph | Dataset) -> dict[str, int]:
    if isinstance(graph, Graph):
        sizes = split_sizes(graph.split)
        return {name: int(sizes[code]) for code, name in names.SPLIT_NAMES.items()}
    return {name: len(ids) for name, ids in vars(graph.splits).items()}


def _edge_splits(graph: Graph | Dataset) -> dict[str, int]:
    """Return the number of edges held back for each split; nothing without edge splits."""
    if graph.edge_splits is None:
        return {}
    return {name.rpartition("/")[2]: len(edges) for name, edges in graph.edge_splits.arrays().items()}


class _Counts:
    """Counters of the passes; `classes` is 0 unless each vertex has a single class."""

    def __init__(self, vertices: int, parts: int, classes: int) -> None:
        self.in_degrees = np.zeros(_LARGEST_DEGREE + 1, np.int64)
        self.largest = 0
        self.most: list[tuple[int, int]] = []
        self.is_read = np.zeros(vertices, bool)
        self.no_in_neighbours = self.isolated = 0
        self.no_neighbours_of: list[tuple[int, np.ndarray]] = []
        self.of_class = np.full(vertices if classes else 0, names.UNLABELLED, np.int32)
        self.classes = np.zeros(classes, np.int64)
        self.labelled = 0
        self.same = self.comparable = 0
        self.from_elsewhere = np.zeros(parts, np.int64)
        self.edges_of_part = np.zeros(parts, np.int64)

    def add_labels(self, first: int, labels: np.ndarray, kind: str) -> None:
        """Count the labels of the vertices from `first` on."""
        for start, stop in row_ranges(len(labels), labels.nbytes // max(1, len(labels)), _BLOCK):
            block = np.asarray(labels[start:stop])
            if kind == names.MULTI_CLASS:
                self.of_class[first + start : first + stop] = block
                known = block[block >= 0]
                self.classes += np.bincount(known, minlength=len(self.classes))[: len(self.classes)]
                self.labelled += len(known)
                continue
            known = ~np.isnan(block)
            self.labelled += int(known.any(axis=1).sum())
            if kind == names.MULTI_LABEL:
                sums = np.where(known, block > 0.5, False).sum(axis=0)
                self.classes = self.classes + sums if len(self.classes) else sums

    def add_edges(self, part: int, offsets: np.ndarray, rows: VertexRows, advance: Advance) -> None:
        """Count the in-neighbours of the vertices of one part."""
        first, end = int(offsets[part]), int(offsets[part + 1])
        for start, stop in row_groups(rows.indptr, 8, 16, _BLOCK):
            bounds = np.asarray(rows.indptr[start : stop + 1])
            degrees, sources = np.diff(bounds), np.asarray(rows.indices[bounds[0] : bounds[-1]])
            self.in_degrees += np.bincount(np.minimum(degrees, _LARGEST_DEGREE), minlength=_LARGEST_DEGREE + 1)
            self.largest = max(self.largest, int(degrees.max(initial=0)))
            places = np.argsort(-degrees, kind="stable")[:_MOST_SHOWN]
            ids = np.asarray(rows.original_id[start:stop])[places]
            self.most += zip(degrees[places].tolist(), ids.tolist(), strict=True)
            self.most = sorted(self.most, key=lambda each: (-each[0], each[1]))[:_MOST_SHOWN]
            self.is_read[sources] = True
            self.no_in_neighbours += int(np.count_nonzero(degrees == 0))
            # Pack flags into bits until all sources are known: isolated vertices are found at the end.
            self.no_neighbours_of.append((first + start, np.packbits(degrees == 0)))
            self.edges_of_part[part] += len(sources)
            self.from_elsewhere[part] += int(np.count_nonzero((sources < first) | (sources >= end)))
            if len(self.of_class):
                mine = np.repeat(self.of_class[first + start : first + stop], degrees)
                theirs = self.of_class[sources]
                known = (mine >= 0) & (theirs >= 0)
                self.comparable += int(np.count_nonzero(known))
                self.same += int(np.count_nonzero(known & (mine == theirs)))
            advance(len(sources))

    def values(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        # A vertex is isolated if it reads none and none reads it; the latter is known after all edges.
        isolated = 0
        for first, bits in self.no_neighbours_of:
            flags = np.unpackbits(bits)[: len(self.is_read) - first].astype(bool)
            isolated += int(np.count_nonzero(flags & ~self.is_read[first : first + len(flags)]))
        groups = np.add.reduceat(self.in_degrees, np.array(FIRST_DEGREES))
        running = np.cumsum(self.in_degrees)
        quantiles = np.searchsorted(running, np.array([0.5, 0.99]) * max(1, int(running[-1])))
        return {
            "in_degrees": dict(zip(degree_labels(), groups.tolist(), strict=True)),
            "degree_median": int(quantiles[0]),
            "degree_p99": int(quantiles[1]),
            "degree_largest": self.largest,
            "no_in_neighbours": self.no_in_neighbours,
            "never_read": int(np.count_nonzero(~self.is_read)),
            "isolated": isolated,
            "labelled": self.labelled,
            "class_counts": self.classes.tolist(),
            "homophily": self.same / self.comparable if self.comparable else None,
            "homophily_by_chance": _by_chance(self.classes) if self.comparable else None,
        }


def _by_chance(counts: np.ndarray) -> float:
    """Return the probability that two random labelled vertices share a class."""
    shares = counts / max(1, counts.sum())
    return float((shares**2).sum())


def _feature_rows(features: Features, parts: int) -> tuple[int, int, int]:
    """Return counts of rows: examined, all zero, and with a number that is not finite."""
    if isinstance(features, SparseFeatures):
        empty = int(np.count_nonzero(np.diff(features.indptr) == 0))
        return len(features), empty, 0
    row_bytes = max(1, features.nbytes // max(1, len(features)))
    blocks = list(row_ranges(len(features), row_bytes, _BLOCK))
    # Examine every n-th block of large features, which bounds the time.
    every = max(1, -(-features.nbytes * parts // MOST_FEATURE_BYTES))
    examined = zeros = undefined = 0
    for start, stop in blocks[::every]:
        block = np.asarray(features[start:stop])
        examined += len(block)
        zeros += int(np.count_nonzero(~block.any(axis=1)))
        undefined += int(np.count_nonzero(~np.isfinite(block).all(axis=1)))
    return examined, zeros, undefined


def _cut(found: _Counts, offsets: np.ndarray, graph: Graph | Dataset) -> list[dict[str, int]]:
    """Return vertices, training vertices, edges and incoming cut edges of each part; empty for a whole graph."""
    if isinstance(graph, Graph):
        return []
    training = np.histogram(graph.splits.train, offsets)[0]
    columns: dict[str, Sequence[int]] = {
        "vertices": np.diff(offsets).tolist(),
        "training": training.tolist(),
        "edges": found.edges_of_part.tolist(),
        "from_elsewhere": found.from_elsewhere.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
