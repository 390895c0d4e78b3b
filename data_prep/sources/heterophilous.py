"""The .npz layout of the heterophilous graph collection (Platonov et al., arXiv:2302.11640), with several splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, ReadOptions, whole_numbers
from data_prep.formats.npz_reader import NpzFile, npz_names
from leapmpi.errors import ConfigError, DataError

SUMMARY = ".npz of the heterophilous collection: edges, node_features, node_labels, train_masks"
OPTIONS = frozenset({"split_index"})


def can_read(path: Path) -> bool:
    """Whether `path` is an .npz with the collection's array names."""
    return path.suffix == ".npz" and {"edges", "node_features"} <= npz_names(path)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """The graph in the archive at `path` with split number `options.split_index` (0 unless given).

    Raises ConfigError when there is no such split, DataError when an array is missing, damaged or of the wrong shape.
    """
    file = NpzFile(path, options.workspace)
    edges = whole_numbers(file.array("edges"), file.label("edges"))
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{file.label('edges')} must have shape [edges, 2], but it is {edges.shape}")
    features = file.array("node_features")

    # One of several splits.
    splits, index, count = _splits(file, options.split_index)
    notes = []
    if count > 1 and options.split_index is None:
        notes = [f"split 0 of {count} was taken; --split-index takes another"]
    return RawGraph(
        vertices=len(features),
        edges=edges.T,
        features=features,
        labels=file.array("node_labels") if "node_labels" in file.names else None,
        splits=splits,
        edges_name=file.label("edges"),
        split_origin=f"{path.name}, split {index} of {count}",
        notes=notes,
    )


def _splits(file: NpzFile, split_index: int | None) -> tuple[dict[str, np.ndarray] | None, int, int]:
    """The masks of one split, its number, and how many splits there are."""
    masks = {name: file.array(f"{name}_masks") for name in SPLIT_NAMES if f"{name}_masks" in file.names}
    if not masks:
        if split_index is not None:
            raise ConfigError(f"--split-index {split_index}: {file.path} holds no splits")
        return None, 0, 0
    counts = {len(mask) for mask in masks.values()}
    if len(counts) != 1 or any(mask.ndim != 2 for mask in masks.values()):
        raise DataError(f"{file.path}: train_masks, val_masks and test_masks must have one shape [splits, vertices]")
    count = counts.pop()
    index = split_index or 0
    if not 0 <= index < count:
        raise ConfigError(f"--split-index {index}: {file.path} has splits 0 ... {count - 1}")
    return {name: mask[index].astype(bool) for name, mask in masks.items()}, index, count
