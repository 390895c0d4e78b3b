"""Raw files of OGB's typed graphs, ogbn-mag and ogbl-biokg: relations/A___RELATION___B/edge.csv.gz and others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import SPLIT_NAMES, ReadOptions
from data_prep.edges.typed_graph import RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.numeric_text import open_text, read_numbers
from data_prep.formats.typed_folders import counted, relation_of
from leapmpi.errors import ConfigError, DataError

_COUNTS, _RELATIONS = "num-node-dict", "relations"
_SPLIT_FILES = {"train": "train", "val": "valid", "test": "test"}
_SEPARATOR = "___"


def csv_in(folder: Path, name: str) -> Path | None:
    """Return the file `name` in `folder`, compressed or not, or None."""
    return next((file for suffix in (".csv.gz", ".csv") if (file := folder / f"{name}{suffix}").exists()), None)


def typed_folder(path: Path) -> Path | None:
    """Find the folder with the raw files of a typed graph: path/raw or `path` itself; None where neither has them."""
    return next((each for each in (path / "raw", path) if csv_in(each, _COUNTS) and (each / _RELATIONS).is_dir()), None)


def read_typed(path: Path, raw: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the typed graph in `raw`, and its split below `path`. Raises DataError naming the file with a fault."""
    counts_file = csv_in(raw, _COUNTS)
    assert counts_file is not None, "`typed_folder` has found it"
    stated = _counts(counts_file)
    graph = TypedRawGraph({}, [])
    files = {counts_file: "counts"}
    for folder in sorted(each for each in (raw / _RELATIONS).iterdir() if each.is_dir()):
        named = relation_of(folder.name, _SEPARATOR, stated)
        file = csv_in(folder, "edge")
        if named is None or file is None:
            raise DataError(f"{folder} must be SOURCE{_SEPARATOR}RELATION{_SEPARATOR}DESTINATION with edge.csv.gz")
        stream = EdgeStream(partial(_counted, file, csv_in(folder, "num-edge-list")))
        features = csv_in(folder, "edge-feat")
        carried = read_numbers(features, np.float32, options.workspace) if features else None
        graph.relations.append(RawRelation(*named, stream, str(file), EdgeArrays(str(folder), features=carried)))
        files[file] = "edges"

    # What vertices carry.
    nodes = {name: RawVertices(count) for name, count in stated.items()}
    rows: dict[str, dict[str, int]] = {}
    kinds = (("node-feat", "node-feat", "features", np.float32), ("node-feat", "node_year", "times", np.int64))
    for folder_name, stem, field, dtype in (*kinds, ("node-label", "node-label", "labels", np.float64)):
        for name, each in nodes.items():
            if file := csv_in(raw / folder_name / name, stem):
                array = read_numbers(file, dtype, options.workspace if field == "features" else None)
                setattr(each, field, array.reshape(-1) if field == "times" else array)
                rows.setdefault(name, {})[str(file)] = len(array)
                files[file] = field
    # All files must agree with the stated counts before anything is written.
    counted(stated, rows, graph.relations, str(counts_file))
    graph.vertices = nodes
    _add_splits(graph, path, options, files)
    graph.files = {str(file.relative_to(path)): what for file, what in files.items() if file.is_relative_to(path)}
    return graph


def _counts(path: Path) -> dict[str, int]:
    """Read the numbers of vertices by type: a line of names and a line of numbers."""
    with open_text(path) as file:
        lines = [line.strip().split(",") for line in file if line.strip()]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]) or len(set(lines[0])) < len(lines[0]):
        raise DataError(f"{path} must hold a line of types and a line with their numbers, of a single graph")
    for number in lines[1]:
        if not (number.isascii() and number.isdigit() and len(number) < 16):
            raise DataError(f"{path}: {number[:40]!r} is not a number of vertices")
    return {name: int(number) for name, number in zip(*lines, strict=True)}


def _counted(path: Path, count_file: Path | None) -> Iterator[Chunk]:
    """Yield the edges in `path`. Raises DataError where `count_file` states another number of them."""
    found = 0
    for chunk, _ in with_records(edge_stream(path)[0].chunks()):
        found += chunk.shape[1]
        yield chunk
    stated = read_numbers(count_file, np.int64).reshape(-1).tolist() if count_file else [found]
    if stated != [found]:
        raise DataError(f"{path} holds {found:,} edges, but {count_file} says {stated[:2]}; is it truncated?")


def _add_splits(graph: TypedRawGraph, path: Path, options: ReadOptions, files: dict[Path, str]) -> None:
    """Add the splits of one scheme, by type."""
    places = [each / "split" for each in (path, path.parent if path.name == "raw" else path)]
    folder = next((each for each in places if each.is_dir()), None)
    schemes = sorted(each for each in folder.iterdir() if each.is_dir()) if folder else []
    index = options.split_index or 0
    if (options.split_index is not None or schemes) and index >= len(schemes):
        raise ConfigError(f"--split-index {index}: {path} has {len(schemes)} splits, counted from 0")
    for scheme in schemes[index : index + 1]:
        graph.split_origin = f"split/{scheme.name}"
        for name, each in graph.vertices.items():
            found = {split: csv_in(scheme / name, stem) for split, stem in _SPLIT_FILES.items()}
            splits = {split: file for split in SPLIT_NAMES if (file := found[split])}
            if splits:
                each.splits = {split: read_numbers(file, np.int64).reshape(-1) for split, file in splits.items()}
                files |= dict.fromkeys(splits.values(), "splits")
        if left := sorted(each.name for each in scheme.glob("*.pt")):
            graph.notes.append(f"not used: {', '.join(left)} of {scheme}")
