"""Heterogeneous Graph Benchmark (Lv et al., KDD 2021): node.dat, link.dat, label.dat, label.dat.test, info.dat.

Fields are separated by tabs. node.dat: id, name, type and perhaps features; ids count over all types. link.dat: source,
destination, type of link, weight. label.dat: id, name, type, label or labels; label.dat.test has those of the test
vertices. info.dat names types and links in JSON; where it does not, they are called by their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.numeric_text import open_text
from data_prep.formats.typed_folders import mark_reverses
from data_prep.workspace import require_whole
from leapmpi.errors import DataError, counted

SUMMARY = "folder of the Heterogeneous Graph Benchmark: node.dat, link.dat, label.dat, label.dat.test"
OPTIONS = frozenset[str]()

_NODES, _LINKS, _INFO = "node.dat", "link.dat", "info.dat"
_LABELS = {"train": "label.dat", "test": "label.dat.test"}
_LINES_AT_ONCE = 1 << 14
_TIMES = 6
"""Memory that reading takes, as a multiple of the files."""


def can_read(path: Path) -> bool:
    """Recognise a folder with node.dat and link.dat."""
    return path.is_dir() and (path / _NODES).is_file() and (path / _LINKS).is_file()


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the graph in the folder `path`. Raises DataError naming file and line of the first fault."""
    size = sum((path / name).stat().st_size for name in (_NODES, _LINKS))
    require_whole(str(path), size, _TIMES, options.workspace)
    kind, names, features = _nodes(path / _NODES)
    info = _info(path / _INFO)
    types = _type_names(info, int(kind.max(initial=-1)) + 1)
    number = np.empty(len(kind), np.int64)
    vertices: dict[str, RawVertices] = {}
    # The file numbers all vertices together; each type here counts from 0.
    for t, name in enumerate(types):
        ids = np.flatnonzero(kind == t)
        number[ids] = np.arange(len(ids))
        vertices[name] = RawVertices(len(ids), features.get(t), names=[names[v] for v in ids.tolist()])
    graph = TypedRawGraph(vertices, _relations(path / _LINKS, kind, number, types, info))
    mark_reverses(graph.relations)
    graph.files = {_NODES: "vertices", _LINKS: "edges"}
    if (path / _LABELS["train"]).is_file():
        _add_labels(graph, path, kind, number, types)
    return graph


def _rows(path: Path, least: int) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of the lines of `path`, with at least `least` fields."""
    with open_text(path) as file:
        line = 0
        while texts := list(islice(file, _LINES_AT_ONCE)):
            for text in texts:
                line += 1
                fields = text.rstrip("\r\n").split("\t")
                if fields == [""]:
                    continue
                if len(fields) < least:
                    raise DataError(
                        f"{path}, line {line}: {counted(len(fields), 'field')} between tabs; expected {least}"
                    )
                yield line, fields


def _whole(text: str, path: Path, line: int, most: int) -> int:
    """Return the number `text`, below `most`."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) >= most:
        raise DataError(f"{path}, line {line}: {text[:40]!r} is not a number from 0 to {most - 1:,}")
    return int(text)


def _nodes(path: Path) -> tuple[np.ndarray, list[str], dict[int, np.ndarray]]:
    """Return the type int64[n] and the name of each vertex, and features by type, of types that have some."""
    # A first pass counts, so that ids can be checked and arrays have their size.
    rows = sum(1 for _ in _rows(path, 3))
    kind, names = np.full(rows, -1, np.int64), [""] * rows
    found: dict[int, list[tuple[int, np.ndarray]]] = {}
    for line, fields in _rows(path, 3):
        v, t = _whole(fields[0], path, line, rows), _whole(fields[2], path, line, 256)
        if kind[v] >= 0:
            raise DataError(f"{path}, line {line}: vertex {v} is listed twice")
        kind[v], names[v] = t, fields[1]
        if len(fields) > 3 and fields[3].strip():
            try:
                row = np.array(fields[3].split(","), np.float32)
            except ValueError:
                raise DataError(f"{path}, line {line}: features {fields[3][:40]!r} are not numbers") from None
            found.setdefault(t, []).append((v, row))
    features = {}
    # Lines may come in any order of vertices.
    for t, listed in found.items():
        if len(listed) != int((kind == t).sum()) or len({len(row) for _, row in listed}) > 1:
            raise DataError(f"{path}: features of type {t} are missing in some lines, or of another number of columns")
        features[t] = np.stack([row for _, row in sorted(listed, key=lambda pair: pair[0])])
    return kind, names, features


def _info(path: Path) -> dict[str, Any]:
    """Read info.dat where it is JSON; Freebase has a text."""
    if not path.is_file():
        return {}
    try:
        with open_text(path) as file:
            found = json.load(file)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _section(info: dict[str, Any], key: str) -> dict[str, Any]:
    found = info.get(key)
    found = found if isinstance(found, dict) else {}
    inner = found.get("node type" if key == "node.dat" else "link type", found)
    return inner if isinstance(inner, dict) else {}


def _type_names(info: dict[str, Any], count: int) -> list[str]:
    """Return the names of types by number: those of info.dat where it has distinct ones for all."""
    held = _section(info, _NODES)
    names = [held.get(str(t)) for t in range(count)]
    plain = [name for name in names if isinstance(name, str) and name]
    return plain if len(set(plain)) == count else [str(t) for t in range(count)]


def _relations(
    path: Path, kind: np.ndarray, number: np.ndarray, types: list[str], info: dict[str, Any]
) -> list[RawRelation]:
    """Read the links by their types; all links of a type join the same two types of vertices."""
    found: dict[int, list[tuple[int, int, float]]] = {}
    for line, fields in _rows(path, 3):
        u, v = (_whole(text, path, line, len(kind)) for text in fields[:2])
        r = _whole(fields[2], path, line, 1 << 16)
        try:
            weight = float(fields[3]) if len(fields) > 3 else 1.0
        except ValueError:
            raise DataError(f"{path}, line {line}: the weight {fields[3][:40]!r} is not a number") from None
        first = found.setdefault(r, [])
        if first and (kind[u] != kind[first[0][0]] or kind[v] != kind[first[0][1]]):
            raise DataError(f"{path}, line {line}: links of type {r} join vertices of other types before")
        first.append((u, v, weight))
    # Weights of 1 throughout say nothing.
    weighted = any(weight != 1 for links in found.values() for _, _, weight in links)
    named = _section(info, _LINKS)
    relations = []
    for r, links in sorted(found.items()):
        ends = np.array([link[:2] for link in links], np.int64).T
        about = named.get(str(r))
        name = str(about.get("meaning") or r) if isinstance(about, dict) else str(r)
        weight = np.array([link[2] for link in links], np.float32) if weighted else None
        source, destination = types[kind[ends[0, 0]]], types[kind[ends[1, 0]]]
        arrays = EdgeArrays(str(path), weight=weight)
        relations.append(RawRelation(source, name, destination, number[ends], str(path), arrays))
    # Different types of links may have one meaning in the description; a relation needs a name of its own.
    if len({str(each) for each in relations}) < len(relations):
        for r, each in zip(sorted(found), relations, strict=True):
            each.name = f"{each.name} {r}"
    return relations


def _add_labels(graph: TypedRawGraph, path: Path, kind: np.ndarray, number: np.ndarray, types: list[str]) -> None:
    """Read the labels of training and test vertices, of one type; several of a vertex make columns."""
    members: dict[str, dict[int, list[int]]] = {}
    for split, name in _LABELS.items():
        file = path / name
        if not file.is_file():
            continue
        listed = members[split] = {}
        for line, fields in _rows(file, 4):
            v = _whole(fields[0], file, line, len(kind))
            if v in listed:
                raise DataError(f"{file}, line {line}: vertex {v} is listed twice")
            listed[v] = [_whole(text, file, line, 1 << 16) for text in fields[3].split(",") if text.strip()]
        graph.files[name] = "labels"
    # Training and test labels together decide the type, and whether labels are classes.
    known = {v: labels for listed in members.values() for v, labels in listed.items()}
    of_types = {int(kind[v]) for v in known}
    if len(of_types) != 1:
        raise DataError(f"{path}: the labels are those of {counted(len(of_types), 'type')} of vertices; expected one")
    graph.target = types[of_types.pop()]
    target = graph.vertices[graph.target]
    classes = 1 + max((label for labels in known.values() for label in labels), default=-1)
    ids = number[np.fromiter(known, np.int64, len(known))]
    # One label for every vertex is a class; any other count makes multi-label data.
    if any(len(labels) != 1 for labels in known.values()):
        target.labels = np.full((target.count, classes), np.nan, np.float32)
        target.labels[ids] = 0
        for v, labels in known.items():
            target.labels[number[v], labels] = 1
    else:
        target.labels = np.full(target.count, -1)
        target.labels[ids] = [labels[0] for labels in known.values()]
    target.splits = {
        split: np.sort(number[np.fromiter(listed, np.int64, len(listed))])
        for split, listed in members.items()
        if listed
    }
    graph.split_origin = " and ".join(_LABELS[split] for split in members)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
