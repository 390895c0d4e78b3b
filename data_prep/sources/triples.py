"""Knowledge graphs as triples: train.txt, valid.txt and test.txt with head, relation and tail separated by tabs.

FB15k-237, WN18RR, YAGO3-10, CoDEx; and those of OpenKE, train2id.txt and so on: a line with their number, then numbers
of head, tail and relation, in this order. entities.dict and relations.dict, or entity2id.txt and relation2id.txt, give
numbers and names. Training triples are the edges; the others are held back for validation and test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from data_prep.assembly.id_map import Numbering, names_of
from data_prep.assembly.triples import ENTITY, Lines, TripleBatch, numbered_triples
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import GivenTriples, RawVertices, TypedRawGraph
from data_prep.formats.numeric_text import open_text
from leapmpi.errors import DataError

SUMMARY = "folder of triples: train.txt, valid.txt, test.txt, or train2id.txt and so on of OpenKE"
OPTIONS = frozenset[str]()

_PLAIN, _OPENKE = ".txt", "2id.txt"
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
_ENTITIES, _RELATIONS = ("entities.dict", "entity2id.txt"), ("relations.dict", "relation2id.txt")
_LINES_AT_ONCE = 1 << 16


def can_read(path: Path) -> bool:
    """Recognise a folder with OpenKE's training triples, or with train.txt and test.txt of three fields a line."""
    if not path.is_dir():
        return False
    if (path / f"train{_OPENKE}").is_file():
        return True
    files = [path / f"{name}{_PLAIN}" for name in ("train", "test")]
    return all(file.is_file() for file in files) and _has_three_fields(files[0])


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the triples in the folder `path`. Raises DataError naming file and line of the first fault."""
    numbers = (path / f"train{_OPENKE}").is_file()
    suffix = _OPENKE if numbers else _PLAIN
    files = {name: path / f"{stem}{suffix}" for name, stem in _SPLITS.items()}
    if not files["train"].is_file():
        raise DataError(f"{path} must hold train{_PLAIN} or train{_OPENKE}")
    lists = [
        next((path / name for name in known if (path / name).is_file()), None) for known in (_ENTITIES, _RELATIONS)
    ]
    # OpenKE's files hold numbers, which mean nothing without the lists.
    if numbers and None in lists:
        raise DataError(
            f"{path} must hold {_ENTITIES[1]} and {_RELATIONS[1]}, which name the numbers of {files['train']}"
        )
    entities, relations = (None if each is None else _listed(each) for each in lists)

    # Where triples are numbers, the lists name them afterwards.
    taken = {file: name for name, file in files.items() if file.is_file()}
    batches = {name: _batches(file, numbers) for file, name in taken.items()}
    known = None if entities is None else Numbering(_numbers(entities) if numbers else entities, _place(lists[0]))
    numbered = _numbers(relations) if numbers and relations is not None else relations
    found = numbered_triples(batches, options.workspace, known, numbered)
    names = names_of(entities) if entities is not None else found.names
    edges = found.edges_of("train", str(files["train"]))
    for relation, name in zip(edges, relations or found.relations, strict=True):
        relation.name = name

    graph = TypedRawGraph({ENTITY: RawVertices(found.vertices, names=names)}, edges)
    if held := {name: found.splits[name] for name in ("val", "test") if name in found.splits}:
        none = found.splits["train"][:0]
        graph.edge_splits = GivenTriples(held.get("val", none), held.get("test", none), "source: files of triples")
    graph.files = {file.name: f"{name} edges" for file, name in taken.items()}
    graph.files |= {each.name: "names" for each in lists if each is not None}
    return graph


def _has_three_fields(path: Path) -> bool:
    """Return whether the first line of `path` has three fields between tabs."""
    try:
        with open_text(path) as file:
            return next(file, "").rstrip("\r\n").count("\t") == 2
    except (DataError, OSError):
        return False


def _batches(path: Path, numbers: bool) -> Iterator[TripleBatch]:
    """Yield the triples in `path`: texts between tabs, or numbers of OpenKE in the order head, tail, relation."""
    with open_text(path) as file:
        stated, read, line = _stated(file, path) if numbers else None, 0, int(numbers)
        while lines := list(islice(file, _LINES_AT_ONCE)):
            rows, places = [], []
            for text in lines:
                line += 1
                fields = text.split() if numbers else text.rstrip("\r\n").split("\t")
                if fields in ([], [""]):
                    continue
                if len(fields) != 3 or not all(each.strip() for each in fields):
                    raise DataError(f"{path}, line {line}: {text.strip()[:60]!r} is not a triple of three fields")
                rows.append(fields)
                places.append(line)
            read += len(rows)
            columns = list(zip(*rows, strict=True)) or [(), (), ()]
            # OpenKE writes head, tail, relation.
            heads, relations, tails = (columns[i] for i in ((0, 2, 1) if numbers else (0, 1, 2)))
            yield TripleBatch(heads, relations, tails, Lines(path, places))
    if stated is not None and stated != read:
        raise DataError(f"{path}: line 1 states {stated:,} triples, but {read:,} follow")


def _stated(file: Iterator[str], path: Path) -> int:
    """Read the number of triples or names in the first line."""
    text = next(file, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise DataError(f"{path}, line 1: {text[:60]!r} is not the number of lines that OpenKE's files begin with")
    return int(text)


def _listed(path: Path) -> list[str]:
    """Read the names in `path` by their numbers: lines of number and name, or of OpenKE, of name and number."""
    openke = path.name.endswith(_OPENKE)
    names: dict[int, str] = {}
    with open_text(path) as file:
        stated = _stated(file, path) if openke else None
        for line, text in enumerate(file, 1 + openke):
            fields = text.rstrip("\r\n").split("\t") if "\t" in text else text.split()
            if fields in ([], [""]):
                continue
            number, name = (fields[::-1] if openke else fields) if len(fields) == 2 else ("", "")
            number = number.strip()
            if not (number.isascii() and number.isdigit() and len(number) < 16) or not name.strip():
                raise DataError(f"{path}, line {line}: {text.strip()[:60]!r} is not a name with its number")
            if names.setdefault(int(number), name.strip()) != name.strip():
                raise DataError(f"{path}, line {line}: number {number} stands twice")
    # Numbers are positions in the list of names.
    if sorted(names) != list(range(len(names))) or stated not in (None, len(names)):
        raise DataError(f"{path} must number its names from 0 on without gaps, as many as it states")
    return [names[number] for number in range(len(names))]


def _numbers(names: list[str]) -> list[str]:
    return [str(number) for number in range(len(names))]


def _place(path: Path | None) -> Callable[[int], str]:
    return lambda row: f"{path}, name {row}"


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
