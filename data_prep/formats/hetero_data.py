"""HeteroData of torch_geometric, or the dict of dicts that it is saved as: a typed graph in one .pt file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.raw_graph import SPLIT_NAMES, ReadOptions, checked_pairs
from data_prep.edges.typed_graph import RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.typed_folders import counted, mark_reverses
from leapmpi.errors import ConfigError, DataError

GLOBAL = "_global_store"
"""Key of what belongs to no type."""

_NODES = {"x": "features", "y": "labels"}
_TIMES = ("node_time", "time")
_EDGES = {"weight": ("edge_weight",), "features": ("edge_attr",), "time": ("edge_time", "time")}


def is_typed(found: object) -> bool:
    """Return whether `found` is a dict with a store for each type and relation."""
    return isinstance(found, dict) and any(isinstance(key, tuple) and len(key) == 3 for key in found)


def read_hetero(found: dict[Any, Any], path: Path, options: ReadOptions) -> TypedRawGraph:
    """Build the typed graph of the stores `found` of the file `path`. Raises DataError for the first fault."""
    graph, left = TypedRawGraph({}, [], split_origin=path.name), set()
    stores = {key: store for key, store in found.items() if key != GLOBAL}
    for key, store in stores.items():
        kind = len(key) == 3 and all(isinstance(each, str) for each in key) if isinstance(key, tuple) else True
        if not kind or not isinstance(key, str | tuple) or not isinstance(store, dict):
            raise DataError(f"{path}: {str(key)[:80]!r} is neither a type of vertices nor a relation")

    # Relations, then what vertices carry.
    rows: dict[str, dict[str, int]] = {}
    for key, store in stores.items():
        if isinstance(key, tuple):
            graph.relations.append(_relation(key, store, path, left))
    nodes = {
        key: _vertices(key, store, path, options, graph, left) for key, store in stores.items() if isinstance(key, str)
    }
    for name, each in nodes.items():
        arrays = {"x": each.features, "y": each.labels, "time": each.times}
        rows[name] = {f"{path}: {what} of {name}": len(array) for what, array in arrays.items() if array is not None}
    stated = {name: each.count for name, each in nodes.items() if each.count >= 0}
    for name, count in counted(stated, rows, graph.relations, str(path)).items():
        graph.vertices[name] = nodes.get(name, RawVertices(count))
        graph.vertices[name].count = count
    mark_reverses(graph.relations)
    graph.notes += [f"{path.name}: not used: {', '.join(sorted(left))}"] if left else []
    return graph


def tensor_of(store: dict, name: str, where: str | Path) -> np.ndarray | None:
    """Return the tensor `name` of a store; None without. Raises DataError where it is another object."""
    found = store.get(name)
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.ndim == 0 or found.dtype.hasobject:
        raise DataError(f"{where}: {name} must be a dense tensor with a row per vertex or edge")
    return found


def _relation(key: tuple[str, str, str], store: dict, path: Path, left: set[str]) -> RawRelation:
    where = f"{path}: {':'.join(key)}"
    edges = tensor_of(store, "edge_index", where)
    if edges is None:
        held = ", ".join(map(str, store)) or "nothing"
        raise DataError(
            f"{where} has no edge_index, but {held[:200]}; save it before transforms such as ToSparseTensor"
        )
    edges = checked_pairs(edges, f"{where}: edge_index", rows=False)
    fields: dict[str, np.ndarray] = {}
    for field, names in _EDGES.items():
        name = next((name for name in names if isinstance(store.get(name), np.ndarray)), None)
        if name is not None and len(store[name]) == edges.shape[1]:
            fields[field] = store[name]
    taken = {"edge_index", *(name for names in _EDGES.values() for name in names)}
    left |= {f"{name} of {':'.join(key)}" for name, value in store.items() if name not in taken and value is not None}
    return RawRelation(*key, edges, f"{where}: edge_index", EdgeArrays(where, **fields))


def _vertices(
    name: str, store: dict, path: Path, options: ReadOptions, graph: TypedRawGraph, left: set[str]
) -> RawVertices:
    """Read the vertices of the type `name`; their number is -1 where the store does not state it."""
    where = f"{path}: {name}"
    stated = store.get("num_nodes")
    found = RawVertices(stated if type(stated) is int and stated >= 0 else -1)
    for key, field in _NODES.items():
        setattr(found, field, tensor_of(store, key, where))
    if found.features is not None and found.features.ndim == 1:
        found.features = found.features[:, None]
    times = next((key for key in _TIMES if isinstance(store.get(key), np.ndarray)), None)
    found.times = None if times is None else store[times]

    # Masks with several columns are several splits.
    masks = {split: mask for split in SPLIT_NAMES if (mask := tensor_of(store, f"{split}_mask", where)) is not None}
    if masks:
        count = max(mask.shape[1] if mask.ndim == 2 else 1 for mask in masks.values())
        index = options.split_index or 0
        if index >= count:
            raise ConfigError(f"--split-index {index}: {where} has {count} splits, counted from 0")
        chosen = {
            split: mask[:, min(index, mask.shape[1] - 1)] if mask.ndim == 2 else mask for split, mask in masks.items()
        }
        found.splits = {split: mask.astype(bool) for split, mask in chosen.items() if split == "train" or mask.any()}
        graph.notes += [f"split 0 of {count} was taken; --split-index takes another"] * (
            count > 1 and options.split_index is None
        )
    # What is left over is listed, so that nothing is dropped in silence.
    taken = {"num_nodes", *_NODES, *_TIMES, *(f"{split}_mask" for split in SPLIT_NAMES)}
    left |= {f"{key} of {name}" for key, value in store.items() if key not in taken and value is not None}
    return found
