"""Illinois Graph Benchmark, homogeneous (Khatua et al., KDD 2023): SIZE/processed with paper and paper__cites__paper.

Splits are those of its own loader: of the labelled papers the first 60 % train, the next 20 % validate. The arrays of
sizes large and full have no header, although they are called .npy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, whole_numbers
from data_prep.formats.array_files import read_array
from leapmpi.errors import ConfigError, DataError

SUMMARY = "folder of IGB, homogeneous: [processed/]paper/node_feat.npy, paper__cites__paper/edge_index.npy"
OPTIONS = frozenset({"label_column"})

_EDGES, _PAPERS = Path("paper__cites__paper/edge_index.npy"), Path("paper")
_LABELS = {"19": "node_label_19.npy", "2K": "node_label_2K.npy"}
_COLUMNS = 1024
"""Features of a paper."""
_MAGIC = b"\x93NUMPY"

_LABELLED = {269_346_174: {"19": 227_130_858, "2K": 157_675_969}}
"""Papers of size full that have a label, by all papers: the first ones."""


def can_read(path: Path) -> bool:
    return path.is_dir() and _folder(path) is not None


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the folder `path`; `options.label_column` is 19 (default) or 2K, the number of classes."""
    folder = _folder(path)
    if folder is None:
        raise DataError(f"{path} must hold {_PAPERS}/node_feat.npy and {_EDGES}, or a folder processed with both")
    kind = options.label_column or "19"
    if kind not in _LABELS:
        raise ConfigError(f"--label-column {kind}: IGB has labels of {' and of '.join(_LABELS)} classes; give one")
    edges = read_array(folder / _EDGES)
    edges = whole_numbers(edges, str(folder / _EDGES))
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{folder / _EDGES} must have shape [edges, 2], but it is {list(edges.shape)}")
    features = _array(folder / _PAPERS / "node_feat.npy", _COLUMNS)
    label_file = folder / _PAPERS / _LABELS[kind]
    labels = _array(label_file, 1).reshape(-1) if label_file.is_file() else None
    if labels is not None and len(labels) != len(features):
        raise DataError(f"{label_file} has {len(labels):,} rows, but there are {len(features):,} papers")

    # As its loader splits; papers without a label are the last ones.
    labelled = _LABELLED.get(len(features), {}).get(kind, len(features))
    if labels is not None:
        labels = np.where(np.arange(len(labels)) < labelled, labels, -1).astype(np.int64)
    first, second = int(labelled * 0.6), int(labelled * 0.6) + int(labelled * 0.2)
    splits = {"train": np.arange(first), "val": np.arange(first, second), "test": np.arange(second, labelled)}
    used = [_EDGES, _PAPERS / "node_feat.npy", *([_PAPERS / _LABELS[kind]] if labels is not None else [])]
    return RawGraph(
        len(features),
        edges.T,
        features,
        labels,
        splits if labels is not None else None,
        edges_name=str(folder / _EDGES),
        split_origin="IGB: 60 %, 20 % and 20 % of the labelled papers, in their order",
        files={str((folder / each).relative_to(path)): each.stem for each in used},
    )


def _folder(path: Path) -> Path | None:
    """Find the folder with the arrays: path/processed or `path` itself; None where neither has them."""
    for folder in (path / "processed", path):
        if (folder / _EDGES).is_file() and (folder / _PAPERS / "node_feat.npy").is_file():
            return folder
    return None


def _array(path: Path, columns: int) -> np.ndarray:
    """Read the array in `path`, mapped where it has no header: float32[rows, columns]."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            return read_array(path)
    size, row = path.stat().st_size, 4 * columns
    if size == 0 or size % row:
        raise DataError(
            f"{path} is no .npy file, and its {size:,} bytes are no rows of {columns} float32; is it whole?"
        )
    return np.memmap(path, np.float32, "r", 0, (size // row, columns))
