"""GraphBolt's OnDiskDataset (DGL): a folder with metadata.yaml and the files that it names.

https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html. Where the file of the edges is gone,
the graph of preprocessed/metadata.yaml is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.edge_stream import Edges, EdgeStream
from data_prep.edges.raw_graph import (
    GivenEdges,
    RawGraph,
    ReadOptions,
    Source,
    believable,
    checked_pairs,
    whole_numbers,
)
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.array_files import read_array, read_companions
from data_prep.formats.description import entry, read_yaml
from data_prep.formats.dgl.sampling_graph import read_sampling_graph
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.graphbolt_types import chosen_task, is_typed, read_typed
from data_prep.formats.known_names import EDGE_ARRAYS, FEATURES, LABELS, first_known
from data_prep.formats.torch_files import read_tensor
from data_prep.workspace import Workspace
from leapmpi.dataset.hdf5.names import HELD_EDGES
from leapmpi.errors import DataError, counted

SUMMARY = "folder of GraphBolt's OnDiskDataset: metadata.yaml"
OPTIONS = frozenset({"features", "labels", "vertices", "split_index"})

METADATA = "metadata.yaml"
_MOST = 1 << 40
"""Numbers of nodes and of classes are below it."""
_SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}
_SEEDS = ("seeds", "seed_nodes", "node_pairs")


def can_read(path: Path) -> bool:
    """Recognise a folder with metadata.yaml."""
    return path.is_dir() and (path / METADATA).is_file()


def read(path: Path, options: ReadOptions) -> RawGraph | TypedRawGraph:
    """Read the graph of the dataset in the folder `path`, with the sets of the task number `options.split_index`."""
    about = read_yaml(path / METADATA)
    if is_typed(about):
        return read_typed(path, about, str(path / METADATA), options)
    edges, vertices, name = _edges(path, about, options.workspace)
    # Raw files may be gone with that of the edges; GraphBolt keeps copies of all others.
    if Path(name).suffix == ".pt" and (made := path / "preprocessed" / METADATA).is_file():
        about = {**about, **read_yaml(made)}
    arrays = {domain: _feature_files(path, about, domain) for domain in ("node", "edge")}
    options, named_features, named_labels = options.of_source(arrays["node"], path)
    features, labels = read_companions(options)
    if features is None and (found := named_features or first_known(arrays["node"], FEATURES)):
        features = read_tensor(arrays["node"][found], options.workspace)
        features = features[:, None] if features.ndim == 1 else features
    if labels is None and (found := named_labels or first_known(arrays["node"], LABELS)):
        labels = read_tensor(arrays["node"][found], options.workspace)
    rows = next((len(array) for array in (features, labels) if array is not None), None)
    count = options.vertices or vertices or rows

    # What edges carry has the order of the file of edges, not that of a preprocessed graph.
    kept = {} if Path(name).suffix == ".pt" else arrays["edge"]
    carried = {field: found for field, known in EDGE_ARRAYS.items() if (found := first_known(kept, known))}
    graph = RawGraph(
        count or (lambda largest, number: believable(largest + 1, number, name)),
        edges,
        features,
        labels,
        edges_name=name,
        edge_arrays=EdgeArrays(
            f"{path}: edges", **{field: read_tensor(kept[found], options.workspace) for field, found in carried.items()}
        ),
    )
    _add_task(graph, path, about, options, count)
    nodes = arrays["node"]
    used = {named_features or first_known(nodes, FEATURES), named_labels or first_known(nodes, LABELS)}
    left = [each for each in nodes if each not in used]
    left += [f"{each} of edges" for each in arrays["edge"] if each not in carried.values()]
    graph.notes += [f"{METADATA}: not used: {', '.join(left)}"] if left else []
    inside = Path(name).is_relative_to(path)  # descriptions may name files anywhere
    graph.files = {METADATA: "description", str(Path(name).relative_to(path)) if inside else name: "edges"}
    return graph


def _edges(path: Path, about: dict[str, Any], workspace: Workspace | None) -> tuple[Edges, int | None, str]:
    """Return the edges, the number of vertices where it is stated, and the name of the edges in messages."""
    where = str(path / METADATA)
    found = about.get("graph")
    if found is not None:
        nodes, listed = (entry(found, key, list, where) for key in ("nodes", "edges"))
        if len(nodes) != 1 or len(listed) != 1:
            raise DataError(
                f"{where} has {counted(len(nodes), 'type')} of nodes and {len(listed)} of edges; graphs of one type "
                "are read"
            )
        count = entry(nodes[0], "num", int, where)
        if not 0 < count < _MOST:
            raise DataError(f"{where}: num of nodes is {count}; expected a number from 1 to {_MOST - 1:,}")
        # The file of the edges comes first; GraphBolt's own graph is made of it.
        file = path / entry(listed[0], "path", str, where)
        if file.exists():
            if listed[0].get("format") != "numpy":
                return edge_stream(file)[0], count, str(file)
            edges = whole_numbers(read_array(file), str(file))
            if edges.ndim != 2 or len(edges) != 2:
                raise DataError(f"{file} must have shape [2, edges], but it is {list(edges.shape)}")
            return edges, count, str(file)

    # The graph that GraphBolt has made of them.
    made = path / "preprocessed" / METADATA
    if "graph_topology" in about:
        topology = about["graph_topology"]
    elif made.is_file():
        topology, where = read_yaml(made).get("graph_topology"), str(made)
    else:
        raise DataError(f"{where}: the file of the edges is missing, and there is no {made}")
    file = path / entry(topology, "path", str, where)
    graph = read_sampling_graph(file, workspace)

    def chunks() -> Iterator[np.ndarray]:
        for _, chunk in graph.chunks():
            yield chunk

    return EdgeStream(chunks, len(graph.indices)), len(graph.indptr) - 1, str(file)


def _feature_files(path: Path, about: dict[str, Any], domain: str) -> dict[str, Path]:
    """List the files of features of nodes or edges, by name."""
    where = str(path / METADATA)
    listed = entry(about, "feature_data", list, where) if about.get("feature_data") else []
    listed = [each for each in listed if isinstance(each, dict) and each.get("domain") == domain]
    return {entry(each, "name", str, where): path / entry(each, "path", str, where) for each in listed}


def _add_task(graph: RawGraph, path: Path, about: dict[str, Any], options: ReadOptions, count: int | None) -> None:
    """Add the splits of one task, the labels of its vertices if there are none, or its validation and test edges."""
    if (task := chosen_task(graph, about, str(path / METADATA), options)) is None:
        return
    sets = {split: _members(path, task.get(key), options.workspace) for split, key in _SETS.items()}
    seeds = {split: found[0] for split, found in sets.items() if found is not None}
    # Seeds in pairs are edges; others are vertices.
    if any(each.ndim == 2 for each in seeds.values()):
        graph.edge_splits = _held_back(sets, path)
        return
    graph.splits = seeds or None
    graph.classes = _classes(task, str(path / METADATA))
    if graph.labels is None and count is not None:
        graph.labels = _labels(sets, count, path)


def _classes(task: dict[str, Any], where: str) -> int | None:
    """Return the classes that a task states, or None. Raises DataError where they are not a number."""
    classes = task.get("num_classes")
    if classes is None:
        return None
    if type(classes) is not int or not 0 < classes < _MOST:
        raise DataError(f"{where}: num_classes is {str(classes)[:40]}; expected a whole number from 1 to {_MOST - 1:,}")
    return classes


def _members(path: Path, listed: object, workspace: Workspace | None) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Read seeds and labels of a set; None where the set has none."""
    where = str(path / METADATA)
    if not isinstance(listed, list) or not listed:
        return None
    if len(listed) > 1:
        raise DataError(f"{where}: a set has {counted(len(listed), 'type')} of seeds; graphs of one type are read")
    data = entry(listed[0], "data", list, where)
    files = [(each.get("name"), path / entry(each, "path", str, where)) for each in data if isinstance(each, dict)]
    names = dict(files)
    seeds = next((names[name] for name in _SEEDS if name in names), files[0][1] if files else None)
    if seeds is None:
        return None
    others = [file for name, file in files if file != seeds and name in (None, "labels")]
    return read_tensor(seeds, workspace), read_tensor(others[0], workspace) if others else None


def _labels(sets: dict[str, tuple[np.ndarray, np.ndarray | None] | None], count: int, path: Path) -> np.ndarray | None:
    """Collect the labels of all vertices from the members of the sets; others are unlabelled."""
    given = [(*found, split) for split, found in sets.items() if found is not None and found[1] is not None]
    if not given:
        return None
    first = given[0][1]
    labels = np.full((count, *first.shape[1:]), np.nan if first.dtype.kind == "f" else -1, first.dtype)
    for seeds, values, split in given:
        if values is None or len(values) != len(seeds):
            raise DataError(f"{path / METADATA}: the {split} set has {len(seeds):,} seeds and other labels")
        if len(seeds) and not 0 <= seeds.min() <= seeds.max() < count:
            raise DataError(f"{path / METADATA}: the {split} set names a vertex outside 0 ... {count - 1:,}")
        labels[seeds] = values
    return labels


def _held_back(sets: dict[str, tuple[np.ndarray, np.ndarray | None] | None], path: Path) -> GivenEdges:
    """Read validation and test edges; pairs with the label 0 are negatives."""
    found: dict[str, np.ndarray] = {}
    negatives: dict[str, np.ndarray] = {}
    for split in ("val", "test"):
        seeds, labels = sets[split] or (np.empty((0, 2), np.int64), None)
        pairs = checked_pairs(seeds, f"{path / METADATA}: seeds of the {split} set", rows=True)
        true = np.ones(pairs.shape[1], bool) if labels is None else np.asarray(labels).reshape(-1).astype(bool)
        if true.shape != pairs.shape[1:]:
            raise DataError(
                f"{path / METADATA}: the {split} set has {pairs.shape[1]:,} seeds and {counted(len(true), 'label')}"
            )
        found[split] = pairs[:, true]
        if not true.all():
            negatives[split] = pairs[:, ~true]
    return GivenEdges(found["val"], found["test"], negatives, HELD_EDGES, f"source: {METADATA}")


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
