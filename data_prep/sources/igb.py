"""Illinois Graph Benchmark (Khatua et al., KDD 2023): SIZE/processed with paper and paper__cites__paper, or all types.

Splits are those of its own loader: of the labelled papers the first 60 % train, the next 20 % validate. The arrays of
sizes large and full have no header, although they are called .npy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, checked_pairs
from data_prep.edges.typed_graph import RawVertices, TypedRawGraph
from data_prep.formats.array_files import read_array
from data_prep.formats.typed_folders import counted, read_relation
from leapmpi.errors import ConfigError, DataError

SUMMARY = "folder of IGB or IGB-heterogeneous: [processed/]paper/node_feat.npy, paper__cites__paper/edge_index.npy"
OPTIONS = frozenset({"label_column"})

_EDGES, _PAPERS = Path("paper__cites__paper/edge_index.npy"), Path("paper")
_LABELS = {"19": "node_label_19.npy", "2K": "node_label_2K.npy"}
_INDEX, _SEPARATOR = "edge_index.npy", "__"
_ORIGIN = "IGB: 60 %, 20 % and 20 % of the labelled papers, in their order"
_COLUMNS = 1024
"""Features of a paper."""
_MAGIC = b"\x93NUMPY"

_LABELLED = {269_346_174: {"19": 227_130_858, "2K": 157_675_969}}
"""Papers of size full that have a label, by all papers: the first ones."""


def can_read(path: Path) -> bool:
    """Recognise a folder with, or in, `processed`, by the features of papers and their citations."""
    return path.is_dir() and _folder(path) is not None


def read(path: Path, options: ReadOptions) -> RawGraph | TypedRawGraph:
    """Read the graph in the folder `path`; `options.label_column` is 19 (default) or 2K, the number of classes."""
    folder = _folder(path)
    if folder is None:
        raise DataError(f"{path} must hold {_PAPERS}/node_feat.npy and {_EDGES}, or a folder processed with both")
    kind = options.label_column or "19"
    if kind not in _LABELS:
        raise ConfigError(f"--label-column {kind}: IGB has labels of {' and of '.join(_LABELS)} classes; give one")
    features = _array(folder / _PAPERS / "node_feat.npy", _COLUMNS)
    labels, splits = _labels(folder, kind, len(features))
    used = [_EDGES, _PAPERS / "node_feat.npy", *([_PAPERS / _LABELS[kind]] if labels is not None else [])]
    # One relation is the homogeneous form of the data set.
    relations = sorted(each for each in folder.glob(f"*{_SEPARATOR}*") if (each / _INDEX).is_file())
    if len(relations) > 1:
        return _typed(path, folder, relations, RawVertices(len(features), features, labels, splits), used)
    return RawGraph(
        len(features),
        checked_pairs(read_array(folder / _EDGES), str(folder / _EDGES), rows=True),
        features,
        labels,
        splits,
        edges_name=str(folder / _EDGES),
        split_origin=_ORIGIN,
        files={str((folder / each).relative_to(path)): each.stem for each in used},
    )


def _labels(folder: Path, kind: str, papers: int) -> tuple[np.ndarray | None, dict[str, np.ndarray] | None]:
    """Read the labels of papers, and split them as its loader does; papers without a label are the last ones."""
    file = folder / _PAPERS / _LABELS[kind]
    if not file.is_file():
        return None, None
    labels = _array(file, 1).reshape(-1)
    if len(labels) != papers:
        raise DataError(f"{file} has {len(labels):,} rows, but there are {papers:,} papers")
    labelled = _LABELLED.get(papers, {}).get(kind, papers)
    labels = np.where(np.arange(papers) < labelled, labels, -1).astype(np.int64)
    first, second = int(labelled * 0.6), int(labelled * 0.6) + int(labelled * 0.2)
    return labels, {"train": np.arange(first), "val": np.arange(first, second), "test": np.arange(second, labelled)}


def _typed(path: Path, folder: Path, relations: list[Path], papers: RawVertices, used: list[Path]) -> TypedRawGraph:
    """Read the typed graph of several relations; papers come first."""
    graph = TypedRawGraph({str(_PAPERS): papers}, [], str(_PAPERS), split_origin=_ORIGIN)
    types = {each.name for each in folder.iterdir() if each.is_dir()}
    for each in relations:
        graph.relations.append(read_relation(each, _SEPARATOR, types, rows=True))
        used.append((each / _INDEX).relative_to(folder))
    rows = {str(_PAPERS): {str(folder / _PAPERS / "node_feat.npy"): papers.count}}
    # Types are those that relations join; files of features are optional but for papers.
    others = dict.fromkeys(name for each in graph.relations for name in (each.source, each.destination))
    for name in others:
        file = folder / name / "node_feat.npy"
        if name != str(_PAPERS):
            features = _array(file, _COLUMNS) if file.is_file() else None
            graph.vertices[name] = RawVertices(-1, features)
            rows[name] = {} if features is None else {str(file): len(features)}
            used += [] if features is None else [file.relative_to(folder)]
    # A type without features has as many vertices as its edges name.
    for name, count in counted({}, rows, graph.relations, str(folder)).items():
        graph.vertices[name].count = count
    graph.files = {str((folder / each).relative_to(path)): each.stem for each in dict.fromkeys(used)}
    return graph


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
            f"{path} is not a .npy file, and its {size:,} bytes are not rows of {columns} float32; is it whole?"
        )
    return np.memmap(path, np.float32, "r", 0, (size // row, columns))


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
