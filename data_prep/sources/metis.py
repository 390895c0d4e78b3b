"""Graph files of METIS, as Chaco, KaHIP and the 10th DIMACS challenge use them too (METIS manual, section 4.1).

A line of sizes, `vertices edges [format [constraints]]`, then one line per vertex with its neighbours, counted from 1.
Edge weights are kept; vertex sizes and vertex weights are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.edges.edge_records import Chunk, record_type
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.array_files import read_companions
from data_prep.formats.edge_text import shares_of_text
from data_prep.formats.integer_lines import COMMENT, blocks, check_between, lines_with_content
from data_prep.formats.numeric_text import open_bytes
from leapmpi.errors import DataError, counted

SUMMARY = "METIS or DIMACS .graph, also .metis and .gz: a line of neighbours per vertex"
OPTIONS = frozenset({"features", "labels"})

_SUFFIXES = (".graph", ".graph.gz", ".metis", ".metis.gz")


class _Header(NamedTuple):
    """The first line: counts, how many numbers precede the neighbours, and where its line is (from 1)."""

    vertices: int
    edges: int
    before: int
    edge_weights: bool
    line: int


def can_read(path: Path) -> bool:
    """Recognise the suffix, but leave .graph files of Planetoid and WebGraph to those formats."""
    if not path.name.endswith(_SUFFIXES) or not path.is_file():
        return False
    return not path.match("ind.*.graph") and not path.with_suffix(".properties").exists()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in `path`: an edge from each vertex to each neighbour on its line."""
    header = _header(path)
    features, labels = read_companions(options)
    carries = record_type(weight=True) if header.edge_weights else None
    chunks = partial(_chunks, path, header)
    edges = EdgeStream(chunks, 2 * header.edges, carries=carries, share=shares_of_text(path, chunks))
    return RawGraph(header.vertices, edges, features, labels, edges_name=str(path))


def _chunks(path: Path, header: _Header, share: tuple[int, int] = (0, 1)) -> Iterator[Chunk]:
    """Yield the edges int64[2, k] by blocks of lines, with weights. Raises DataError for counts unlike the header's.

    share: as in `whole_lines`. Its first vertex is found by counting the lines before it.
    """
    i, n = share
    first = sum(lines_with_content(path, header.line, (before, n)) for before in range(i))
    found = 0
    for block in blocks(path, skip=header.line, share=share):
        # The lines of vertices; only empty ones may follow the last vertex.
        kept = np.flatnonzero(block.lengths != COMMENT)
        lengths = block.lengths[kept].astype(np.int64)
        lines = kept + block.first_line
        left = max(0, header.vertices - first)
        surplus = np.flatnonzero(lengths[left:])
        if len(surplus):
            line = lines[left + surplus[0]]
            raise DataError(f"{path}, line {line}: one line more than the {counted(header.vertices, 'vertex')} stated")

        # Their neighbours, counted from 1.
        lengths = lengths[:left]
        neighbours, row, weights = _neighbours(block.values, lengths, lines, header, path)
        check_between(neighbours, lines[row], 1, header.vertices, path)
        edges = np.stack([first + row, neighbours - 1])
        if weights is None:
            yield edges
        else:
            records = np.empty(len(row), record_type(weight=True))
            records["weight"] = weights
            yield edges, records
        first += len(lengths)
        found += len(neighbours)

    # As many as the header states. Shares are counted together.
    if first < header.vertices and i + 1 == n:
        raise DataError(
            f"{path} ends after the lines of {first:,} of {counted(header.vertices, 'vertex')}; is it truncated?"
        )
    if found != 2 * header.edges and n == 1:
        raise DataError(
            f"{path}: line {header.line} states {counted(header.edges, 'edge')}, which is {2 * header.edges:,} "
            "neighbours, "
            f"but {found:,} are listed"
        )


def _header(path: Path) -> _Header:
    """Read the sizes that the first line states. Raises DataError where it is not a header."""
    # The first line that is not a comment.
    with open_bytes(path) as file:
        number = 0
        words: list[bytes] = []
        while not words and (text := file.readline()):
            number += 1
            words = text.split() if not text.lstrip().startswith(b"%") else []
    plain = 2 <= len(words) <= 4 and all(word.isdigit() and len(word) <= 15 for word in words)
    if not plain or (len(words) > 2 and (len(words[2]) > 3 or set(words[2]) - set(b"01"))):
        shown = b" ".join(words)[:60].decode("utf-8", "backslashreplace")
        hint = "" if path.with_suffix(".properties").exists() else "; a WebGraph needs its .properties beside it"
        raise DataError(
            f"{path}, line {max(number, 1)}: {shown!r} is not a header of a METIS graph; expected the numbers of "
            f"vertices and of edges, then perhaps a format of 0s and 1s and a number of weights{hint}"
        )

    # The format: three digits for vertex sizes, vertex weights and edge weights.
    form = (words[2] if len(words) > 2 else b"0").rjust(3, b"0")
    sizes, vertex_weights, edge_weights = (digit == ord("1") for digit in form)
    before = sizes + vertex_weights * (int(words[3]) if len(words) == 4 else 1)
    return _Header(int(words[0]), int(words[1]), before, edge_weights, number)


def _neighbours(
    values: np.ndarray, lengths: np.ndarray, lines: np.ndarray, header: _Header, path: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Parse the neighbours on some lines, counted from 1, the number of the line of each, and its weight."""
    vertex = np.repeat(np.arange(len(lengths)), lengths)
    if not header.before and not header.edge_weights:
        return values, vertex, None

    # Lines too short for the weights before the neighbours, or with a weight missing after one.
    odd = (lengths < header.before) | ((lengths - header.before) % (1 + header.edge_weights) != 0)
    if odd.any():
        first = int(np.argmax(odd))
        announced = f"{header.before} weights first" if header.before else "a weight after each neighbour"
        both = " and a weight after each neighbour" if header.before and header.edge_weights else ""
        raise DataError(
            f"{path}, line {lines[first]}: {counted(lengths[first], 'number')}, but line {header.line} announces "
            f"{announced}{both}"
        )

    # Neighbours are the numbers after the first weights, every second one where edges have weights.
    place = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths) - header.before
    kept = (place >= 0) & ((place % 2 == 0) | (not header.edge_weights))
    weights = values[(place >= 0) & (place % 2 == 1)] if header.edge_weights else None
    return values[kept], vertex[kept], weights


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
