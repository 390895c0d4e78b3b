"""RDF in N-Triples (.nt, .nt.gz), with the files of labels that AIFB, MUTAG, BGS and AM have beside it.

All subjects and objects are vertices of one type, literals too; predicates are relations. trainingSet.tsv and
testSet.tsv name vertices and their labels, in columns of any order: the one that begins with "label" holds the labels,
"id" is read past, and the first other one names vertices (W3C, RDF 1.1 N-Triples, 2014).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.assembly.id_map import Numbering
from data_prep.assembly.triples import ENTITY, Lines, TripleBatch, numbered_triples
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import RawVertices, TypedRawGraph
from data_prep.formats.numeric_text import open_text
from data_prep.formats.tables import CsvTable
from leapmpi.errors import DataError

SUMMARY = "RDF as N-Triples, .nt or .nt.gz, with trainingSet.tsv and testSet.tsv beside it"
OPTIONS = frozenset({"label_column"})

_SUFFIXES = (".nt", ".nt.gz")
_SPLITS = {"train": "trainingSet.tsv", "test": "testSet.tsv"}
_TERM = r'<[^<>]*>|_:[^\s<>"]+'
_LITERAL = r'"(?:[^"\\\n\r]|\\.)*"(?:\^\^<[^<>\s]*>|@[A-Za-z]+(?:-[A-Za-z0-9]+)*)?'
_LINE = re.compile(rf"\s*({_TERM})\s*(<[^<>]*>)\s*({_TERM}|{_LITERAL})\s*\.\s*(?:#.*)?$")
_LINES_AT_ONCE = 1 << 16


def can_read(path: Path) -> bool:
    """Recognise a file by its suffix, and a folder with exactly one such file."""
    return _file(path) is not None


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the triples of the file `path`, or of the only one in the folder `path`, and the labels beside it.

    options.label_column: the column of the labels. Raises DataError naming file and line of the first fault.
    """
    file = _file(path)
    if file is None:
        raise DataError(f"{path} must be an .nt or .nt.gz file, or a folder with one")
    found = numbered_triples({"train": _batches(file)}, options.workspace)
    vertices = RawVertices(found.vertices, names=found.names)
    graph = TypedRawGraph({ENTITY: vertices}, found.edges_of("train", str(file)))
    graph.files[file.name] = "edges"

    # Labels by the files of the splits, whose classes are numbered together.
    tables = {name: file.parent / each for name, each in _SPLITS.items() if (file.parent / each).is_file()}
    if "train" not in tables:
        return graph
    # Files of splits name entities by their texts.
    names = [str(number) for number in range(found.vertices)] if found.names is None else found.names
    numbering = Numbering(list(map(str, names)), lambda row: f"{file}, vertex {row}")
    members = {name: _members(each, options.label_column, numbering) for name, each in tables.items()}
    classes = sorted({label for _, labels in members.values() for label in labels})
    vertices.labels = np.full(found.vertices, -1)
    vertices.splits = {}
    for name, (ids, labels) in members.items():
        vertices.labels[ids] = [classes.index(label) for label in labels]
        vertices.splits[name] = ids
        graph.files[tables[name].name] = "labels"
    vertices.class_names, graph.target = classes, ENTITY
    graph.split_origin = " and ".join(each.name for each in tables.values())
    return graph


def _file(path: Path) -> Path | None:
    """Find the file of triples: `path`, or the only one in the folder `path`."""
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    found = [each for each in files if each.is_file() and each.name.lower().endswith(_SUFFIXES)]
    return found[0] if len(found) == 1 else None


def _batches(path: Path) -> Iterator[TripleBatch]:
    """Yield the triples in `path`; IRIs without brackets, literals and blank nodes as they are written."""
    line = 0
    with open_text(path) as file:
        while lines := list(islice(file, _LINES_AT_ONCE)):
            rows, places = [], []
            for text in lines:
                line += 1
                if not text.strip() or text.lstrip().startswith("#"):
                    continue
                match = _LINE.match(text)
                if match is None:
                    raise DataError(f"{path}, line {line}: {text.strip()[:60]!r} is not a triple in N-Triples")
                rows.append([_plain(term) for term in match.groups()])
                places.append(line)
            heads, relations, tails = zip(*rows, strict=True) if rows else ((), (), ())
            yield TripleBatch(heads, relations, tails, Lines(path, places))


def _plain(term: str) -> str:
    return term[1:-1] if term.startswith("<") else term


def _members(path: Path, label_column: str | None, numbering: Numbering) -> tuple[np.ndarray, list[str]]:
    """Return the vertices int64[k] in the table `path` and the labels of each."""
    table = CsvTable(path)
    label = label_column or next((name for name in table.names if name.lower().startswith("label")), None)
    vertex = next((name for name in table.names if name not in (label, "id")), None)
    if label not in table.names or vertex is None:
        raise DataError(
            f"{path} has the columns {', '.join(table.names)}; one must name vertices, and another, called label..., "
            "their labels: name it by --label-column"
        )
    ids: list[np.ndarray] = []
    labels: list[str] = []
    for batch in table.batches([vertex, label]):
        texts = batch.columns[vertex], batch.columns[label]
        ids.append(numbering.numbers(texts[0], batch.place))
        labels += map(str, texts[1])
    return np.concatenate([np.empty(0, np.int64), *ids]), labels


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
