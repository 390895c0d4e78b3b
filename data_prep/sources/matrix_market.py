"""Matrix Market coordinate files (Boisvert, Pozo, Remington, NIST 1996): entry (i, j) is the edge from i to j.

Its value is the weight of the edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import Chunk, record_type
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, far_too_many
from data_prep.formats.array_files import read_companions
from data_prep.formats.integer_lines import check_between, read_pairs, third_numbers
from data_prep.formats.numeric_text import open_bytes
from leapmpi.errors import DataError, counted

SUMMARY = "Matrix Market .mtx, also .gz: the coordinates of an adjacency matrix"
OPTIONS = frozenset({"features", "labels"})

_FIELDS = {"pattern": 2, "real": 3, "integer": 3}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")


def can_read(path: Path) -> bool:
    """Recognise the suffix, .gz after it or not."""
    return path.name.endswith((".mtx", ".mtx.gz")) and path.is_file()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph whose adjacency matrix is in `path`; of a symmetric one, both directions."""
    words, symmetry, vertices, stated, line = _header(path)
    if far_too_many(vertices, stated):
        raise DataError(f"{path}, line {line}: {counted(vertices, 'row')}, but only {counted(stated, 'entry')}")
    kind = f"row and column{'' if words == 2 else ' and value'}"

    symmetric, mirrored = symmetry != "general", -1 if symmetry == "skew-symmetric" else 1
    carries = record_type(weight=True) if words == 3 else None

    def chunks() -> Iterator[Chunk]:
        found = 0
        for block, lines, whole_lines in read_pairs(path, skip=line, words=range(words, words + 1), kind=kind):
            check_between(block, lines, 1, vertices, path)
            found += len(block)
            if found > stated:
                raise DataError(
                    f"{path}, line {lines[len(block) - (found - stated)]}: more than {counted(stated, 'entry')}"
                )

            # The other triangle of a symmetric matrix, without the diagonal.
            edges = block.T - 1
            other = edges[0] != edges[1]
            whole = np.concatenate([edges, edges[::-1, other]], axis=1) if symmetric else edges
            if carries is None:
                yield whole
                continue
            values, records = third_numbers(path, whole_lines), np.empty(whole.shape[1], carries)
            with np.errstate(over="ignore"):  # what overflows is found when it is placed
                records["weight"] = np.concatenate([values, mirrored * values[other]]) if symmetric else values
            yield whole, records
        if found < stated:
            raise DataError(f"{path} ends after {found:,} of {counted(stated, 'entry')}; is it truncated?")

    features, labels = read_companions(options)
    return RawGraph(vertices, EdgeStream(chunks, carries=carries), features, labels, edges_name=str(path))


def _header(path: Path) -> tuple[int, str, int, int, int]:
    """Read words per line, the symmetry, rows, entries, and the number of the line of sizes."""
    # The banner, and the first line that is not a comment.
    with open_bytes(path) as file:
        banner = file.readline(1000)
        number = 1
        sizes = b""
        while (text := file.readline()) and not sizes:
            number += 1
            sizes = b"" if text.startswith(b"%") else text.strip()

    # What is stored, and how.
    shown = banner.decode("utf-8", "backslashreplace").strip()[:80]
    words = shown.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise DataError(f"{path}, line 1: {shown!r} is not a Matrix Market header, '%%MatrixMarket matrix ...'")
    if words[2] != "coordinate" or words[3] not in _FIELDS or words[4] not in _SYMMETRIES:
        raise DataError(
            f"{path}, line 1: a matrix {' '.join(words[2:])!r} is not read; expected coordinate, then one of "
            f"{', '.join(_FIELDS)}, then one of {', '.join(_SYMMETRIES)}"
        )

    # Rows, columns and entries.
    numbers = sizes.split()
    if len(numbers) != 3 or not all(word.isdigit() and len(word) <= 15 for word in numbers):
        line = sizes[:60].decode("utf-8", "backslashreplace")
        raise DataError(f"{path}, line {number}: {line!r} should be the numbers of rows, columns and entries")
    rows, columns, entries = map(int, numbers)
    if rows != columns:
        raise DataError(f"{path}, line {number}: the matrix is {rows} x {columns}; an adjacency matrix must be square")
    return _FIELDS[words[3]], words[4], rows, entries, number


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
