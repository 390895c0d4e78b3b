"""Graph: one whole unpartitioned graph, in memory or mapped from its file; VertexRows: the rows of some vertices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from leapmpi.dataset.content_hash import content_lanes, edge_lanes, scale_lanes, time_lanes, uuid_of
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.edge_splits import EdgeSplits, split_lanes
from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.dataset.sparse_features import Features, SparseFeatures, arrays_of
from leapmpi.dataset.typed_rows import TypedRows


@dataclass
class VertexRows:
    """The in-neighbours of n vertices, m in all, and what is known of the vertices.

    indptr: int64[n+1], indices: int32[m] (int64 from 2**31 vertices on): the in-neighbours of each vertex, strictly
    ascending by original id, without self-loops. features: [n, F], dense or sparse, or None: float32, float16; of dense
    ones also uint16, the bits of bfloat16, or int8, with `feature_scale` float32[2, F]: step and middle of each column,
    so that q stands for q * step + middle. labels:
    int64[n], -1 unlabelled; or float32[n, C] multi-label in 0..1, or targets of a regression, NaN unlabelled; or None.
    split: int8[n] of names.NO_SPLIT/TRAIN/VAL/TEST, or None. original_id: int64[n], strictly ascending: the row of each
    vertex in the source (0..n-1 when not given). edge_data: what the edges carry, a row for each of `indices`. time:
    int64[n], or None. typed: the types of a typed graph, with the features of each, in place of `features`; vertices
    are then sorted by type, and in-neighbours by (relation, original id).
    """

    indptr: np.ndarray
    indices: np.ndarray
    features: Features | None = None
    labels: np.ndarray | None = None
    split: np.ndarray | None = None
    original_id: np.ndarray = None  # type: ignore[assignment]  # never None after __post_init__
    edge_data: EdgeData = field(default_factory=EdgeData, kw_only=True)
    time: np.ndarray | None = field(default=None, kw_only=True)
    feature_scale: np.ndarray | None = field(default=None, kw_only=True)
    typed: TypedRows | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.original_id is None:
            self.original_id = np.arange(self.vertices, dtype=np.int64)

    @property
    def vertices(self) -> int:
        """Number of vertices n."""
        return len(self.indptr) - 1

    @property
    def types(self) -> GraphTypes | None:
        """Schema of a typed graph; None for a plain one."""
        return None if self.typed is None else self.typed.types

    def sections(self) -> Iterator[tuple[int, int, Features | None]]:
        """Yield first row, end and features of each run of rows with features in one array: of each type, or all."""
        if self.typed is None:
            yield 0, self.vertices, self.features
        else:
            yield from self.typed.sections()

    def relation_edges(self) -> np.ndarray:
        """Count the in-edges of each relation: int64[R]. Reads blocks."""
        edges = np.zeros(self.edge_data.relations, np.int64)
        for block in () if self.edge_data.relation is None else row_blocks(self.edge_data.relation):
            edges += np.bincount(block, minlength=len(edges))
        return edges

    def arrays(self, *, features: bool = True) -> dict[str, np.ndarray | None]:
        """Return the arrays by their names in files, None if absent, with features only if `features`."""
        return {
            names.INDPTR: self.indptr,
            names.INDICES: self.indices,
            names.ORIGINAL_ID: self.original_id,
            names.SPLIT: self.split,
            names.LABELS: self.labels,
            names.VERTEX_TIME: self.time,
            names.FEATURE_SCALE: self.feature_scale if features else None,
            **arrays_of(self.features if features else None),
            **(self.typed.arrays() if self.typed and features else {}),
            **self.edge_data.arrays(features=features),
        }


@dataclass
class Graph(VertexRows):
    """A whole graph: indices are row numbers.

    classes: 0 without labels. attributes: plain values about the graph's origin. uuid: its `content_uuid`, where known.
    edge_splits: edges held back for link prediction, or None.
    regression: whether labels of several columns are targets of a regression.
    """

    classes: int = 0
    attributes: Attributes = field(default_factory=dict)
    uuid: str | None = None
    edge_splits: EdgeSplits | None = None
    regression: bool = False

    def file_arrays(self) -> dict[str, np.ndarray | None]:
        """Return all arrays by their names in a graph file: those of vertices, topology and edge splits."""
        schema = {}
        if self.typed is not None:
            schema = {names.SCHEMA: self.typed.types.as_bytes(), names.TYPE_OFFSETS: self.typed.offsets}
        return {**self.arrays(), **schema, **(self.edge_splits.file_arrays() if self.edge_splits else {})}

    @property
    def edges(self) -> int:
        """Number of edges m."""
        return len(self.indices)

    @property
    def feature_dim(self) -> int:
        """Number of features F of a vertex, 0 without features."""
        return 0 if self.features is None else self.features.shape[1]

    @property
    def sparse(self) -> bool:
        """Whether features are stored without their zeros."""
        return isinstance(self.features, SparseFeatures)

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.label_kind == names.MULTI_LABEL

    @property
    def label_kind(self) -> str | None:
        """One of names.LABEL_KINDS; None without labels."""
        if self.labels is None or self.labels.ndim == 1:
            return None if self.labels is None else names.MULTI_CLASS
        return names.REGRESSION if self.regression else names.MULTI_LABEL

    def describe(self) -> dict:
        """Return the output of `leapmpi-prep info`: attributes, counts, and the sizes of the splits."""
        codes = split_sizes(self.split)
        sizes = {name: int(codes[code]) for code, name in names.SPLIT_NAMES.items()}
        identity = {names.FORMAT: names.GRAPH_FORMAT, names.GRAPH_UUID: self.uuid or content_uuid(self)}
        storage = {names.FEATURE_STORAGE: names.DENSE} if self.feature_dim else {}
        if self.features is not None:
            storage[names.FEATURE_DTYPE] = feature_dtype(self.features.dtype)
        labels = {names.LABEL_KIND: self.label_kind} if self.classes else {}
        types = {} if self.typed is None else self.typed.describe(self.relation_edges())
        return {**self.attributes, **identity, **storage, **labels, **counts(self), **types, "splits": sizes}


_MARKED = ("bfloat16", "int8")
"""Feature types marked in files: numpy does not know one, and the other needs a scale."""


def feature_dtype(dtype: np.dtype) -> str:
    """Return the name of the feature type stored in arrays of `dtype`."""
    return next(name for name, each in names.FEATURE_DTYPES.items() if np.dtype(each) == dtype)


def split_sizes(split: np.ndarray | None) -> np.ndarray:
    """Return the number of vertices of each split code: int64[4]; zeros without `split`. Reads blocks."""
    sizes = np.zeros(4, np.int64)
    for block in () if split is None else row_blocks(split):
        sizes += np.bincount(block, minlength=4)[:4]
    return sizes


def counts(graph: Graph) -> Attributes:
    """Return the attributes of a file that follow from the graph's arrays."""
    # Attributes with a default are left out, so that files without such data keep their digests.
    entries: Attributes = {}
    if isinstance(graph.features, SparseFeatures):
        entries = {names.FEATURE_STORAGE: names.SPARSE, names.FEATURE_ENTRIES: len(graph.features.indices)}
    elif graph.features is not None and feature_dtype(graph.features.dtype) in _MARKED:
        entries = {names.FEATURE_DTYPE: feature_dtype(graph.features.dtype)}
    if graph.label_kind == names.REGRESSION:
        entries[names.LABEL_KIND] = names.REGRESSION
    if graph.time is not None:
        entries[names.HAS_VERTEX_TIME] = True
    if graph.types is not None:
        entries |= graph.types.attributes()
    return {
        **entries,
        **graph.edge_data.attributes(),
        **(graph.edge_splits.counts() if graph.edge_splits else {}),
        "vertices": graph.vertices,
        "edges": graph.edges,
        "feature_dim": graph.feature_dim,
        "classes": graph.classes,
        "multilabel": graph.multilabel,
        "has_split": graph.split is not None,
    }


def content_uuid(graph: Graph) -> str:
    """Return the identity of the content of `graph`: 32 hex digits, independent of numbering and partition."""
    lanes = edge_lanes(graph.edge_data, graph.original_id, graph.indptr, graph.indices, graph.original_id)
    with np.errstate(over="ignore"):
        for start, stop, features in graph.sections():
            rows, bounds = slice(start, stop), graph.indptr[start : stop + 1]
            split, labels = (None if each is None else each[rows] for each in (graph.split, graph.labels))
            indices = graph.indices[bounds[0] : bounds[-1]]
            lanes += content_lanes(
                graph.original_id[rows], split, labels, features, bounds - bounds[0], indices, graph.original_id
            )
        lanes += time_lanes(graph.time, graph.original_id)
        lanes += whole_lanes(graph, graph.original_id, graph.edge_splits)
    return uuid_of(lanes, graph.vertices, graph.edges, graph.feature_dim, graph.classes)


def whole_lanes(rows: VertexRows, original_of: np.ndarray, edge_splits: EdgeSplits | None) -> np.ndarray:
    """Return the contribution of what a graph has once to the lanes of its content: uint64[2].

    That is edges held back, scales and schema; any part of a dataset will do for `rows`. original_of: int64[n], the
    original ids of all vertices.
    """
    lanes = split_lanes(edge_splits, original_of)
    with np.errstate(over="ignore"):
        lanes += scale_lanes(rows.feature_scale)
        if rows.typed is not None:
            lanes += rows.typed.types.lanes()
            for t, scale in enumerate(rows.typed.scales):
                lanes += scale_lanes(scale, t)
    return lanes
