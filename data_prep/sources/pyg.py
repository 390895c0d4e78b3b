"""A Data or HeteroData of torch_geometric, or a dict of the same tensors, saved by torch.save in a .pt file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.raw_graph import (
    SPLIT_NAMES,
    GivenEdges,
    RawGraph,
    ReadOptions,
    Source,
    believable,
    checked_pairs,
    marked_edges,
    whole_numbers,
)
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.array_files import read_companions
from data_prep.formats.hetero_data import is_typed, read_hetero, tensor_of
from data_prep.formats.torch_files import load_torch
from leapmpi.dataset.hdf5.names import HELD_EDGES, HELD_LABELS
from leapmpi.errors import ConfigError, DataError

SUMMARY = "torch_geometric's Data or HeteroData (or a dict) saved by torch.save in .pt: edge_index, x, y, train_mask"
OPTIONS = frozenset({"split_index", "vertices", "features", "labels", "edge_labels", "vertex_times"})


_EDGE_TENSORS = {"weight": ("edge_weight",), "features": ("edge_attr",), "time": ("edge_time", "time")}

_EDGE_SPLITS = {
    split: (f"{split}_edge_label_index", f"{split}_pos_edge_index", f"{split}_pos_edge_label_index")
    for split in ("val", "test")
}
_NEGATIVES = {split: (f"{split}_neg_edge_index", f"{split}_neg_edge_label_index") for split in ("val", "test")}

_KNOWN = {"edge_index", "num_nodes", *(f"{name}_mask" for name in SPLIT_NAMES)}

# What PyG writes beside a graph: descriptions of transforms.
_NO_GRAPHS = ("pre_transform.pt", "pre_filter.pt")


def can_read(path: Path) -> bool:
    """Recognise the suffix, but not the files of transforms that PyTorch Geometric saves beside its graphs."""
    return path.suffix in (".pt", ".pth") and path.name not in _NO_GRAPHS and path.is_file()


def read(path: Path, options: ReadOptions) -> RawGraph | TypedRawGraph:
    """Read the graph in `path`; masks with several columns give split `options.split_index` (0 unless given)."""
    data = _single(load_torch(path, options.workspace), path)
    if is_typed(data):
        return read_hetero(data, path, options)

    # Edges are the only tensor that must be there.
    edges = tensor_of(data, "edge_index", path)
    if edges is None:
        names = ", ".join(str(name) for name in data) or "nothing"
        raise DataError(f"{path} has no edge_index; it holds {names[:200]}")
    edges = whole_numbers(edges, f"{path}: edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"{path}: edge_index must have shape [2, edges], but it is {edges.shape}")
    # Flags may name tensors of the file as well as files of their own.
    tensors = [str(name) for name, content in data.items() if isinstance(content, np.ndarray)]
    options, named_features, named_labels = options.of_source(tensors, path)
    features, labels = read_companions(options)
    if features is None:
        features = tensor_of(data, named_features or "x", path)
    if labels is None:
        labels = tensor_of(data, named_labels or "y", path)

    # The number of vertices: by flag, by rows, stated, or by the largest id.
    stated = data.get("num_nodes")
    found = stated if type(stated) is int else int(edges.max(initial=-1)) + 1
    rows = (len(array) for array in (features, labels) if array is not None)
    vertices = options.vertices or next(rows, None) or believable(found, edges.shape[1], f"{path}: edge_index")

    if features is not None and features.ndim == 1:
        features = features[:, None]
    graph = RawGraph(vertices, edges, features, labels, edges_name=f"{path}: edge_index", split_origin=path.name)
    _add_splits(graph, data, options.split_index, path)
    carried = _edge_tensors(data, edges.shape[1], path, options.edge_labels)
    graph.times = tensor_of(data, options.vertex_times or "node_time", path)
    if options.vertex_times and graph.times is None:
        raise DataError(f"--vertex-times {options.vertex_times}: neither a file nor a tensor of {path}")
    graph.edge_splits, of_splits = _edge_splits(data, edges, "labels" in carried, path)
    label = f"{path}: {', '.join(name for name, _ in carried.values())}"
    graph.edge_arrays = EdgeArrays(label, **{field: tensor for field, (_, tensor) in carried.items()})
    # What is left over is listed, so that nothing is dropped in silence.
    taken = {
        *_KNOWN,
        *of_splits,
        options.vertex_times or "node_time",
        *(name for name, _ in carried.values()),
        named_features or "x",
        named_labels or "y",
    }
    others = sorted(str(name) for name, content in data.items() if str(name) not in taken and content is not None)
    graph.notes += [f"{path.name}: not used: {', '.join(others)}"] if others else []
    return graph


def _single(found: object, path: Path) -> dict:
    """Return the tensors by name. A data set of PyG is saved as (data, slices, ...): it must hold one graph."""
    slices = None
    if isinstance(found, tuple) and found:
        found, slices, *_ = *found, None
    if isinstance(slices, dict) and any(np.ndim(_array(cut)) == 1 and len(cut) > 2 for cut in _cuts(slices)):
        raise DataError(
            f"{path} holds several graphs; save the one to train on alone: torch.save(dataset[0], 'one.pt')"
        )
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise DataError(f"{path} holds a {kind}; expected a Data of torch_geometric or a dict with edge_index")
    return found


def _cuts(slices: dict) -> list[object]:
    """List the slices of a data set, those of types and relations too."""
    return [cut for each in slices.values() for cut in (each.values() if isinstance(each, dict) else [each])]


def _array(found: object) -> np.ndarray | None:
    """Return `found` where it is a tensor, else None: numpy would take long to make one of nested tuples."""
    return found if isinstance(found, np.ndarray) else None


def _edge_splits(data: dict, edges: np.ndarray, labelled: bool, path: Path) -> tuple[GivenEdges | None, set[str]]:
    """Read the edges for validation and test that tensors list or masks mark; also return the names used."""
    found: dict[str, np.ndarray] = {}
    taken: set[str] = set()
    for split, known in _EDGE_SPLITS.items():
        for name in known:
            if split not in found and (tensor := tensor_of(data, name, path)) is not None:
                found[split] = checked_pairs(tensor, f"{path}: {name}", rows=False)
                truth = name.removesuffix("_index")
                if (labels := tensor_of(data, truth, path)) is not None and labels.shape == found[split].shape[1:]:
                    found[split], taken = found[split][:, labels == 1], taken | {truth}
                taken |= {name}
    # A file may hold both; listed edges win over masks.
    marked = not found
    for split in ("val", "test") if marked else ():
        name = f"{split}_edge_mask"
        if (mask := tensor_of(data, name, path)) is not None:
            found[split] = marked_edges(edges, mask, f"{path}: {name}")
            taken |= {name}
    if not found:
        return None, taken
    negatives = {}
    for split, known in _NEGATIVES.items():
        for name in known:
            if (tensor := tensor_of(data, name, path)) is not None:
                negatives[split] = checked_pairs(tensor, f"{path}: {name}", rows=False)
                taken |= {name}
    none, held = np.empty((2, 0), np.int64), HELD_LABELS if labelled and marked else HELD_EDGES
    given = found.get("val", none), found.get("test", none)
    return GivenEdges(*given, negatives, held, f"source: {path.name}"), taken


def _edge_tensors(data: dict, edges: int, path: Path, labels: str | None) -> dict[str, tuple[str, np.ndarray]]:
    """Return by field the name and the tensor of edge data. One called time may also be that of vertices.

    labels: the name of the labels of edges, where it is given. Raises DataError where there is no such tensor.
    """
    found: dict[str, tuple[str, np.ndarray]] = {}
    if labels is not None:
        tensor = tensor_of(data, labels, path)
        if tensor is None:
            raise DataError(f"--edge-labels {labels}: {path} has no such tensor")
        found["labels"] = labels, tensor
    elif "edge_label_index" not in data and np.shape(_array(data.get("edge_label")))[:1] == (edges,):
        found["labels"] = "edge_label", data["edge_label"]
    for field, names in _EDGE_TENSORS.items():
        for name in names:
            tensor = tensor_of(data, name, path) if isinstance(data.get(name), np.ndarray) else None
            if tensor is not None and field not in found and (name != "time" or len(tensor) == edges):
                found[field] = name, tensor
    return found


def _add_splits(graph: RawGraph, data: dict, split_index: int | None, path: Path) -> None:
    """Add the masks of one of several splits."""
    masks = {name: mask for name in SPLIT_NAMES if (mask := tensor_of(data, f"{name}_mask", path)) is not None}
    count = max((mask.shape[1] for mask in masks.values() if mask.ndim == 2), default=1)
    index = split_index or 0
    if split_index is not None and (not masks or index >= count):
        raise ConfigError(f"--split-index {index}: {path} has {count if masks else 'no'} splits, counted from 0")
    chosen = {name: mask[:, min(index, mask.shape[1] - 1)] if mask.ndim == 2 else mask for name, mask in masks.items()}
    # A mask without members says that the split does not exist.
    kept = {name: mask.astype(bool) for name, mask in chosen.items() if name == "train" or mask.any()}
    graph.splits = kept or None
    if count > 1:
        graph.split_origin = f"{path.name}, split {index} of {count}"
        graph.notes += [f"split 0 of {count} was taken; --split-index takes another"] * (split_index is None)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
