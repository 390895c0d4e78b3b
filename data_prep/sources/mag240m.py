"""MAG240M of OGB-LSC (Hu et al., NeurIPS 2021, datasets and benchmarks): meta_dict.pt, split_dict.pt and processed/.

Folders processed/SOURCE___RELATION___DESTINATION hold edge_index.npy, int64[2, edges]. Papers have node_feat.npy,
float16[papers, 768], node_label.npy, NaN where there is none, and node_year.npy. Other types have a number of vertices
alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import ReadOptions, Source, whole_numbers
from data_prep.edges.typed_graph import RawVertices, TypedRawGraph
from data_prep.formats.array_files import read_array
from data_prep.formats.torch_files import load_torch
from data_prep.formats.typed_folders import counted, read_relation
from leapmpi.errors import DataError

SUMMARY = "folder of MAG240M (OGB-LSC): meta_dict.pt, split_dict.pt, processed/paper___cites___paper/edge_index.npy"

_SEPARATOR, _INDEX, _PAPER = "___", "edge_index.npy", "paper"
_COUNTS, _SPLITS = "meta_dict.pt", "split_dict.pt"
_SPLIT_NAMES = {"train": ("train",), "val": ("valid",), "test": ("test", "test-dev", "test-whole")}
"""Names in the file for each split; the first one that is there counts."""


def can_read(path: Path) -> bool:
    """Recognise a folder with the citations of papers."""
    return (path / "processed" / f"{_PAPER}{_SEPARATOR}cites{_SEPARATOR}{_PAPER}" / _INDEX).is_file()


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the graph in the folder `path`; papers are the first type, and the others ascend by name.

    Raises DataError for a missing or damaged file, and for numbers that contradict each other.
    """
    folder = path / "processed"
    if not can_read(path):
        raise DataError(f"{path} must hold processed/{_PAPER}{_SEPARATOR}cites{_SEPARATOR}{_PAPER}/{_INDEX}")
    stated = _counts(path / _COUNTS)
    folders = sorted(folder.glob(f"*{_SEPARATOR}*"))
    relations = [read_relation(each, _SEPARATOR, stated, rows=False) for each in folders]

    # Arrays of papers have a row for each.
    files = {name: folder / _PAPER / f"node_{name}.npy" for name in ("feat", "label", "year")}
    found = {name: read_array(file) for name, file in files.items() if name == "feat" or file.is_file()}
    counts = counted(
        stated, {_PAPER: {str(files[name]): len(each) for name, each in found.items()}}, relations, str(path)
    )
    labels = None if "label" not in found else _labels(found["label"], str(files["label"]))
    splits, notes = _splits(path / _SPLITS, labels)
    vertices = {name: RawVertices(counts[name]) for name in sorted(counts, key=lambda name: (name != _PAPER, name))}
    vertices[_PAPER] = RawVertices(counts[_PAPER], found["feat"], labels, splits, times=found.get("year"))
    taken = {_COUNTS: "counts", _SPLITS: "splits"}
    taken |= {str(files[name].relative_to(path)): f"{_PAPER} {name}" for name in found}
    taken |= {str(Path(each.where).relative_to(path)): "edges" for each in relations}
    present = {name: what for name, what in taken.items() if (path / name).is_file()}
    return TypedRawGraph(vertices, relations, _PAPER, split_origin=_SPLITS, notes=notes, files=present)


def _counts(file: Path) -> dict[str, int]:
    """Read the number of vertices of each type; none without the file, since arrays and edges then say it."""
    if not file.is_file():
        return {}
    found = load_torch(file)
    if not isinstance(found, dict) or not all(isinstance(each, int) and each >= 0 for each in found.values()):
        raise DataError(f"{file} must hold a dict of the number of vertices of each type")
    return {str(name): count for name, count in found.items()}


def _labels(values: np.ndarray, name: str) -> np.ndarray:
    """Return classes int64[papers], -1 where there is none."""
    values = values.reshape(-1)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{name} must hold numbers of classes, but its type is {values.dtype}")
    known = np.isfinite(values) & (values >= 0)
    labels = np.where(known, values, -1).astype(np.int64)
    if (wrong := np.flatnonzero(known & (labels != values))).size:
        raise DataError(f"{name}, row {wrong[0]:,}: {values[wrong[0]]} is no whole number of a class")
    return labels


def _splits(file: Path, labels: np.ndarray | None) -> tuple[dict[str, np.ndarray] | None, list[str]]:
    """Read the papers of each split, and notes on it; None without the file."""
    if not file.is_file():
        return None, []
    found, splits, notes = load_torch(file), {}, list[str]()
    if not isinstance(found, dict):
        raise DataError(f"{file} holds a {type(found).__name__}; expected a dict of train, valid and test")
    for split, names in _SPLIT_NAMES.items():
        name = next((each for each in names if isinstance(found.get(each), np.ndarray)), None)
        if name is None:
            continue
        ids = whole_numbers(found[name], f"{file}: {name}").reshape(-1)
        inside = labels is not None and bool(((ids >= 0) & (ids < len(labels))).all())
        # The benchmark keeps labels of test papers back. Ids outside the graph are refused later, as in other formats.
        if split == "test" and labels is not None and inside and not (labels[ids] >= 0).any():
            notes.append(f"{name}: none of its {len(ids):,} papers has a label, so there is no test split")
            continue
        splits[split] = ids
    return splits, notes


MEMBER = Source(SUMMARY, frozenset(), can_read, read)
