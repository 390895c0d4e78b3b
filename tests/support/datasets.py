"""Small graphs with every oddity training must bear, cut in every way, written once per job."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from data_prep.assembly.community_graph import CommunityGraph, generate
from data_prep.assembly.stored_dtype import as_stored
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.vertex_order import community_order
from data_prep.workspace import Workspace
from leapmpi.comm.flow_control import wait_for
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.sparse_features import from_entries
from leapmpi.dataset.validation import check_features, check_lists, check_outline

VERTICES, TRAINING, FEATURES, CLASSES, TARGETS = 600, 241, 12, 5, 2
PARTITIONS = ("metis", "hash", "random", "uneven", "lopsided")
BY_COMMUNITY = "random"
"""The partition whose parts hold their vertices community by community."""
LABELS = (
    *("single", "multi", "targets, half-precision features"),
    *("single, edges with data", "single, sparse features"),
)
INT8 = "multi"
"""The labels of the graph whose features are int8."""
TWIN = "single, sparse features stored dense"
"""What the single process of the last reads."""


class Variant(NamedTuple):
    """What one dataset is made of: its labels (and features), partition and number of parts."""

    labels: str
    partition: str
    parts: int

    def folder(self, base: Path) -> Path:
        """Where it stands below `base`."""
        return base / f"{(*LABELS, TWIN).index(self.labels)}-{self.partition}-{self.parts}"


WHOLE = "contiguous"


def whole(labels: str) -> Variant:
    """The dataset of one part, for the single process; its features are dense."""
    return Variant(TWIN if labels == LABELS[-1] else labels, WHOLE, 1)


@cache
def make_graph(labels: str) -> Graph:
    """A directed graph with hubs, vertices without in-neighbours, unlabelled vertices and original ids with gaps.

    Made once per process; read only.
    """
    shape = CommunityGraph(VERTICES, 2600, FEATURES, CLASSES, 15, 0.15, 0.1, 3.0, TRAINING / VERTICES, seed=7)
    with tempfile.TemporaryDirectory() as folder:
        raw = generate(shape, Workspace(Path(folder), 2**30, threads=1))
    rng = np.random.default_rng(11)
    low, high = raw.edges
    edges = np.stack([np.concatenate([high, low]), np.concatenate([low, high])])
    edges = edges[:, rng.random(edges.shape[1]) < 0.8]
    lonely = rng.choice(VERTICES, 12, replace=False)
    edges = edges[:, ~np.isin(edges[0], lonely)]
    edges = edges[:, np.lexsort((edges[1], edges[0]))]
    indptr = np.zeros(VERTICES + 1, np.int64)
    np.cumsum(np.bincount(edges[0], minlength=VERTICES), out=indptr[1:])
    split = np.zeros(VERTICES, np.int8)
    for code, name in names.SPLIT_NAMES.items():
        split[raw.splits[name]] = code
    features = raw.features.astype(np.float16 if "half" in labels else np.float32)
    if "sparse" in labels:
        features[rng.random(features.shape) < 0.8] = 0
        row, column = np.nonzero(features)
        if labels != TWIN:
            features = from_entries(row, column, features[row, column], features.shape)
    targets = "targets" in labels
    several = targets or labels == "multi"
    values = raw.labels.astype(np.int64)
    if several:
        values = _targets(raw.labels, rng) if targets else _multi_labels(raw.labels, rng)
    unlabelled = np.flatnonzero(split == names.TEST)[:9]
    split[unlabelled] = names.NO_SPLIT
    values[unlabelled] = np.nan if several else -1
    original = np.arange(VERTICES, dtype=np.int64) * 3 + 5
    classes = TARGETS if targets else CLASSES
    graph = Graph(indptr, edges[1].astype(np.int32), features, values, split, original, classes, regression=targets)
    if "edges" in labels:
        weight = rng.integers(0, 5, graph.edges).astype(np.float32) / 2
        features = rng.standard_normal((graph.edges, 3)).astype(np.float32)
        graph.edge_data = EdgeData(weight, features, rng.integers(-20, 30, graph.edges))
    if labels == INT8:
        with tempfile.TemporaryDirectory() as folder:
            small = as_stored(features, "int8", "the graph", Workspace(Path(folder), 2**30, threads=1))
            graph = replace(graph, features=np.array(small.rows), feature_scale=small.scale)
    validate(graph)
    return graph


def validate(graph: Graph) -> None:
    """Check everything that `Graph` promises. Raises DataError naming array, row and value of the first fault."""
    check_outline(graph, "the graph")
    check_lists(graph.indptr, graph.indices, graph.original_id, graph.vertices, 0, "the graph")
    if graph.features is not None:
        check_features(graph.features, "the graph")


def _multi_labels(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Own class and others, a fifth of them unknown."""
    labels = (rng.random((VERTICES, CLASSES)) < 0.2).astype(np.float32)
    labels[rng.random(labels.shape) < 0.2] = np.nan
    labels[np.arange(VERTICES), classes] = 1
    return labels


def _targets(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers of unlike sizes, a fifth of them unknown, but never both of a vertex."""
    targets = (classes[:, None] + rng.standard_normal((VERTICES, TARGETS))) * [1.0, 1e4] + 1990
    targets[rng.random(targets.shape) < [0.0, 0.2]] = np.nan
    return targets.astype(np.float32)


def assign(graph: Graph, partition: str, parts: int) -> np.ndarray:
    """Part int32[n] of each vertex."""
    rng = np.random.default_rng(parts)
    if partition == "uneven":
        # Most vertices in one part, a single one in another.
        assignment = rng.choice(parts, graph.vertices, p=np.r_[0.7, np.full(parts - 1, 0.3 / (parts - 1))])
        assignment[assignment == parts - 2] = 0
        assignment[rng.integers(graph.vertices)] = parts - 2
        return assignment.astype(np.int32)
    if partition == "lopsided":
        # All training vertices in the last part: other ranks have no local root.
        others = rng.integers(0, parts - 1, graph.vertices)
        return np.where(graph.split == names.TRAIN, parts - 1, others).astype(np.int32)
    return partition_graph(graph, PartitionRequest((parts,), partition, seed=1)).assignment


def build(comm: MPI.Comm, base: Path, variants: set[Variant]) -> None:
    """Write the datasets `variants` below `base` that are not there yet, shared out among the ranks. Collective."""
    cuts: dict[tuple[str, int], np.ndarray] = {}
    kinds = sorted({each[1:] for each in variants})
    for partition, parts in kinds[comm.rank :: comm.size]:
        cuts[partition, parts] = assign(make_graph(LABELS[0]), partition, parts)
    for each in sorted(variants):
        if each[1:] in cuts and not each.folder(base).exists():
            graph, request = make_graph(each.labels), PartitionRequest((each.parts,))
            write_dataset(
                each.folder(base), graph, cuts[each[1:]], each.parts, method=each.partition, figures={}, seed=1,
                communities=community_order(graph, request) if each.partition == BY_COMMUNITY else None,
            )  # fmt: skip
    wait_for(comm.Ibarrier)
