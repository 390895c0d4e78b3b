"""Raw files of OGB's node and link prediction (Hu et al., NeurIPS 2020): edge.csv.gz, num-node-list.csv.gz and others.

Either NAME/raw/edge.csv.gz with NAME/split/SCHEME/train.csv.gz, or the same without the raw/ level; plain .csv too.
Of link prediction the splits are split/SCHEME/valid.pt and test.pt, with `edge` and perhaps `edge_neg`, or
`source_node` and `target_node`. The binary layout of the largest graphs, raw/data.npz and raw/node-label.npz, is read
as well. Typed graphs have raw/relations and raw/num-node-dict.csv.gz (formats/ogb_hetero.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import GivenEdges, RawGraph, ReadOptions, Source, checked_pairs, whole_numbers
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.npz_reader import NpzFile
from data_prep.formats.numeric_text import read_numbers
from data_prep.formats.ogb_hetero import csv_in, read_typed, typed_folder
from data_prep.formats.torch_files import load_torch
from leapmpi.dataset.hdf5.names import HELD_EDGES
from leapmpi.errors import ConfigError, DataError, counted

SUMMARY = "folder of an OGB node or link property graph: [raw/]edge.csv.gz, split/"
OPTIONS = frozenset({"split_index"})

_SPLIT_FILES = {"train": "train", "val": "valid", "test": "test"}


def can_read(path: Path) -> bool:
    """Recognise a folder with the raw files of a graph, plain or typed."""
    return path.is_dir() and (_raw_folder(path) or typed_folder(path)) is not None


def read(path: Path, options: ReadOptions) -> RawGraph | TypedRawGraph:
    """Read the graph in the folder `path` with its split, the `options.split_index`-th by name of several."""
    if (typed := typed_folder(path)) is not None:
        return read_typed(path, typed, options)
    raw = _raw_folder(path)
    if raw is None:
        raise DataError(f"{path} holds no OGB graph: there is no edge.csv.gz (or data.npz) in it or in its raw folder")
    graph = _binary(raw, options) if (raw / "data.npz").exists() else _text(raw, options)

    # A path that ends in raw/ has its splits beside it.
    folders = [folder / "split" for folder in (path, path.parent if path.name == "raw" else path)]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder:
        _add_splits(graph, folder, options)
    elif options.split_index is not None:
        raise ConfigError(f"--split-index {options.split_index}: {path} has no folder split")

    # What was taken: by their paths below `path`.
    parts = {"edge": "edges", "num-node-list": "counts", "num-edge-list": "counts"}
    parts |= {"node-feat": "features", "node-label": "labels", "edge-feat": "edge features"}
    parts |= {"edge_weight": "edge weights", "edge_year": "edge times"}
    found = {csv_in(raw, stem): what for stem, what in parts.items()}
    if (raw / "data.npz").exists():
        found = {raw / "data.npz": "edges, features", raw / "node-label.npz": "labels"}
    graph.files = {str(file.relative_to(path)): what for file, what in found.items() if file}
    if folder and folder.is_relative_to(path):
        graph.files |= {f"{folder.name}/": "splits"}
    return graph


def _raw_folder(path: Path) -> Path | None:
    """Find the folder with the raw files: path/raw or `path` itself; None where neither has them."""
    for folder in (path / "raw", path):
        if csv_in(folder, "edge") and csv_in(folder, "num-node-list"):
            return folder
        if (folder / "data.npz").exists() and (folder / "node-label.npz").exists():
            return folder
    return None


def _count(folder: Path, name: str) -> int | None:
    file = csv_in(folder, name)
    if file is None:
        return None
    numbers = read_numbers(file, np.int64).reshape(-1)
    if len(numbers) != 1:
        raise DataError(f"{file} lists {len(numbers)} graphs; a node property graph is a single one")
    return int(numbers[0])


def _text(raw: Path, options: ReadOptions) -> RawGraph:
    file = csv_in(raw, "edge")
    edges, notes = edge_stream(file)
    stated = _count(raw, "num-edge-list")

    # A file that was cut off ends like any other: compare with the number that stands beside it.
    def whole() -> Iterator[Chunk]:
        found = 0
        for chunk, _ in with_records(edges.chunks()):
            found += chunk.shape[1]
            yield chunk
        if stated not in (None, found):
            raise DataError(
                f"{file} holds {counted(found, 'edge')}, but num-edge-list says {stated:,}; is it truncated?"
            )

    features, labels = csv_in(raw, "node-feat"), csv_in(raw, "node-label")
    of_edges = csv_in(raw, "edge-feat")
    carried = read_numbers(of_edges, np.float32, options.workspace) if of_edges else None
    return RawGraph(
        _count(raw, "num-node-list"),
        EdgeStream(whole, stated),
        read_numbers(features, np.float32, options.workspace) if features else None,
        read_numbers(labels, np.float64) if labels else None,
        edges_name=str(file),
        notes=notes,
        edge_arrays=EdgeArrays(str(raw), _column(raw, "edge_weight"), carried, _column(raw, "edge_year")),
    )


def _column(raw: Path, name: str) -> np.ndarray | None:
    """Read one number for each edge from the file `name`, None without such a file."""
    file = csv_in(raw, name)
    if file is None:
        return None
    found = read_numbers(file, np.float64)
    return found.astype(np.int64) if (found == np.floor(found)).all() else found


def _binary(raw: Path, options: ReadOptions) -> RawGraph:
    file = NpzFile(raw / "data.npz", options.workspace)
    labels = NpzFile(raw / "node-label.npz", options.workspace)
    edges = whole_numbers(file.array("edge_index"), file.label("edge_index"))
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"{file.label('edge_index')} must have shape [2, edges], but it is {edges.shape}")
    vertices = file.number("num_nodes_list")
    features = file.array("node_feat") if "node_feat" in file.names else None
    found = file.read("edge_feat") if "edge_feat" in file.names else None
    carried = found if isinstance(found, np.ndarray) and found.dtype.kind in "biuf" and found.size else None
    graph = RawGraph(vertices, edges, features, labels.array("node_label"), edges_name=file.label("edge_index"))
    graph.edge_arrays = EdgeArrays(file.label("edge_feat"), features=carried)
    return graph


def _add_splits(graph: RawGraph, folder: Path, options: ReadOptions) -> None:
    """Add to `graph` the vertices or the edges of one split; a note where there are several and none was chosen."""
    split_index, notes = options.split_index, graph.notes
    schemes = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and (csv_in(entry, "train") or (entry / "test.pt").exists())
    )
    if not schemes:
        raise DataError(
            f"{folder} holds no split: expected {folder}/SCHEME/train.csv.gz, valid.csv.gz and test.csv.gz, or of "
            "links valid.pt and test.pt"
        )
    index = split_index or 0
    if not 0 <= index < len(schemes):
        raise ConfigError(f"--split-index {index}: {folder} has splits 0 ... {len(schemes) - 1}")
    if len(schemes) > 1 and split_index is None:
        notes.append(f"split {schemes[0].name} of {len(schemes)} was taken; --split-index takes another")

    # Of links: edges in the files of torch.save.
    if (schemes[index] / "test.pt").exists():
        graph.edge_splits = _edge_splits(schemes[index], notes, options)
        return

    # A file per split; validation and test may be missing.
    files = {name: csv_in(schemes[index], stem) for name, stem in _SPLIT_FILES.items()}
    graph.splits = {name: read_numbers(file, np.int64).reshape(-1) for name, file in files.items() if file}
    graph.split_origin = f"split/{schemes[index].name}"


def _edge_splits(folder: Path, notes: list[str], options: ReadOptions) -> GivenEdges:
    """Read the validation and test edges in `folder`, with the negatives that are common to all edges of a split."""
    edges = {name: np.empty((2, 0), np.int64) for name in ("val", "test")}
    negatives: dict[str, np.ndarray] = {}
    for name in edges:
        path = folder / f"{_SPLIT_FILES[name]}.pt"
        if not path.exists():
            continue
        found = load_torch(path, options.workspace)
        if not isinstance(found, dict):
            raise DataError(f"{path} holds a {type(found).__name__}; expected a dict with edge, or source_node")
        # Sets that are ranked per edge have sources and destinations; others have pairs.
        if {"source_node", "target_node"} <= found.keys():
            ends = [_tensor(found[end], f"{path}: {end}").reshape(-1) for end in ("source_node", "target_node")]
            if len(ends[0]) != len(ends[1]):
                raise DataError(
                    f"{path}: source_node and target_node have {len(ends[0]):,} and {counted(len(ends[1]), 'row')}"
                )
            edges[name] = np.stack(ends)
            if "target_node_neg" in found:
                notes.append(f"{path.name}: target_node_neg, negatives of each edge, are not used; others are drawn")
        elif isinstance(found.get("edge"), np.ndarray):
            edges[name] = checked_pairs(found["edge"], f"{path}: edge", rows=True)
            if isinstance(found.get("edge_neg"), np.ndarray):
                negatives[name] = checked_pairs(found["edge_neg"], f"{path}: edge_neg", rows=True)
        else:
            raise DataError(
                f"{path} holds neither edge nor source_node and target_node, but {', '.join(map(str, found))}"
            )
    return GivenEdges(edges["val"], edges["test"], negatives, HELD_EDGES, f"source: split/{folder.name}")


def _tensor(found: object, name: str) -> np.ndarray:
    """Check `found`, a tensor of signed integers. Raises DataError where it is none."""
    if not isinstance(found, np.ndarray):
        raise DataError(f"{name} must be a tensor, but it is a {type(found).__name__}")
    return whole_numbers(found, name)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
