"""The .npz layout of the heterophilous graph collection (Platonov et al., arXiv:2302.11640), with several splits."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, ReadOptions, Source, whole_numbers
from data_prep.formats.array_files import companions_of
from data_prep.formats.npz_reader import NpzFile, npz_names
from leapmpi.errors import ConfigError, DataError

SUMMARY = ".npz of the heterophilous collection: edges, node_features, node_labels, train_masks"
OPTIONS = frozenset({"split_index", "features", "labels"})


def can_read(path: Path) -> bool:
    """Recognise the archive by edges and node_features, which the generic format leaves to this one."""
    return path.suffix == ".npz" and {"edges", "node_features"} <= npz_names(path)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the archive at `path` with split number `options.split_index` (0 unless given).

    Raises ConfigError when there is no such split, DataError when an array is missing, damaged or of the wrong shape.
    """
    file = NpzFile(path, options.workspace)
    edges = whole_numbers(file.array("edges"), file.label("edges"))
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{file.label('edges')} must have shape [edges, 2], but it is {edges.shape}")
    features, labels = companions_of(file, options, ["node_features"], "node_labels")
    if features is None:
        raise DataError(f"{path} has no array 'node_features'")
    graph = RawGraph(features.shape[0], edges.T, features, labels, edges_name=file.label("edges"))
    _add_splits(graph, file, options.split_index)
    graph.notes += file.unused()
    return graph


def _add_splits(graph: RawGraph, file: NpzFile, split_index: int | None) -> None:
    """Add the masks of one of several splits."""
    masks = {name: file.array(f"{name}_masks") for name in SPLIT_NAMES if f"{name}_masks" in file.names}
    if not masks:
        if split_index is not None:
            raise ConfigError(f"--split-index {split_index}: {file.path} holds no splits")
        return
    counts = {len(mask) for mask in masks.values()}
    if len(counts) != 1 or any(mask.ndim != 2 for mask in masks.values()):
        raise DataError(f"{file.path}: train_masks, val_masks and test_masks must have one shape [splits, vertices]")
    count = counts.pop()
    index = split_index or 0
    if not 0 <= index < count:
        raise ConfigError(f"--split-index {index}: {file.path} has splits 0 ... {count - 1}")
    graph.splits = {name: mask[index].astype(bool) for name, mask in masks.items()}
    graph.split_origin = f"{file.path.name}, split {index} of {count}"
    if count > 1 and split_index is None:
        graph.notes.append(f"split 0 of {count} was taken; --split-index takes another")


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
