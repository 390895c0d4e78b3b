"""Edge lists of SNAP (snap.stanford.edu): comments, then two vertex ids per line; ids are sparse and in any order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from data_prep.edges.edge_records import Chunk
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.array_files import read_companions
from data_prep.formats.columns import EdgeColumns
from data_prep.formats.edge_text import carried_columns, shares_of_text
from data_prep.formats.integer_lines import check_between, read_pairs
from data_prep.formats.numeric_text import find_layout, open_bytes
from leapmpi.errors import DataError

SUMMARY = "SNAP's edge lists .txt, also .gz: any ids, under a comment with FromNodeId or Nodes: N Edges: M"
OPTIONS = frozenset({"features", "labels", "edge_columns", "edge_labels"})

_HEAD_BYTES = 4096
_SIGNS = re.compile(rb"FromNodeId|Nodes:\s*\d+\s+Edges:\s*\d+")
_LARGEST = 10**18


def can_read(path: Path) -> bool:
    """Recognise a text by the comments of SNAP at its beginning."""
    if not path.name.lower().endswith((".txt", ".txt.gz")) or not path.is_file():
        return False
    try:
        head = _head(path)
    except (DataError, OSError):
        return False  # a damaged file gets its message from the source that reads it
    return _SIGNS.search(head) is not None


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph of the edges in `path`. Vertices are numbered by ascending id, and their ids kept as names.

    Features and labels that `options` name have a row per vertex in that order.
    """

    layout = find_layout(path)
    given = options.edge_columns, options.edge_labels
    carried = EdgeColumns() if layout is None else carried_columns(path, layout, *given)

    def chunks(share: tuple[int, int] = (0, 1)) -> Iterator[Chunk]:
        rows = 0
        for pairs, lines, block in read_pairs(path, share=share):
            check_between(pairs, lines, 0, _LARGEST, path)
            yield (
                pairs.T if layout is None or not carried else (pairs.T, carried.of_text(path, block.text, layout, rows))
            )
            rows += len(pairs)

    features, labels = read_companions(options)
    edges = EdgeStream(chunks, carries=carried.dtype, share=shares_of_text(path, chunks))
    graph = RawGraph(0, edges, features, labels, edges_name=str(path), compact=True)

    # Called once all edges have been read: only then vertices are counted.
    def vertices(largest: int, count: int) -> int:
        if count == 0:
            raise DataError(f"{path} holds no edges")
        found = largest + 1
        stated = re.search(rb"Nodes:\s*(\d{1,15})\b", _head(path))
        if stated and int(stated[1]) != found:
            named = f"{path.name} states {int(stated[1]):,} vertices, but its edges name {found:,}"
            graph.notes.append(f"{named}: only these are imported")
        return found

    graph.vertices = vertices
    return graph


def _head(path: Path) -> bytes:
    """Read the comments at the beginning of `path`, as far as they reach into its first bytes."""
    with open_bytes(path) as file:
        lines = file.read(_HEAD_BYTES).splitlines(keepends=True)
    return b"".join(takewhile(lambda line: line.startswith(b"#"), lines))


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
