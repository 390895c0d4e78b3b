"""Rows of a table of vertices, read by batches: ids, classes and splits are held, features go to a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain

import numpy as np

from data_prep.assembly.id_map import BYTES_PER_TEXT
from data_prep.edges.edge_records import narrowed
from data_prep.formats.columns import Table, TableColumns, numbers_in
from data_prep.formats.numeric_text import is_number
from data_prep.workspace import Workspace, require
from leapmpi.errors import DataError, counted

_BYTES_PER_REPEATED_TEXT = 32


def rows_held(table: Table, id_column: str, others: Sequence[str], workspace: Workspace | None = None) -> TableColumns:
    """Read the columns `id_column` and `others`, of few distinct texts, of all rows of `table`.

    Raises DataError for a damaged table, ResourceError when the `workspace` has not the memory.
    """
    names = [id_column, *others]
    collected: dict[str, list] = {name: [] for name in names}
    lines: list[np.ndarray] = []
    rows = 0
    for batch in table.batches(names):
        rows += batch.rows

        # Refuse ids that outgrow the memory allowed, as soon as they do.
        texts = [name for name, column in batch.columns.items() if isinstance(column, list)]
        per_row = BYTES_PER_TEXT * (id_column in texts) + _BYTES_PER_REPEATED_TEXT * len(names)
        if workspace:
            advice = "allow more, or number the vertices and keep features, labels and splits in .npy files"
            require(workspace.memory, rows * per_row, f"{table.path}: holding the ids of {rows:,} rows or more", advice)

        # Texts of few distinct values are interned: each is held once.
        for name in names:
            column = _column(batch, name)
            collected[name].append(list(map(sys.intern, column)) if name in texts and name != id_column else column)
        lines += [] if batch.lines is None else [batch.lines]
    columns = {
        name: np.concatenate(found) if found and isinstance(found[0], np.ndarray) else list(chain.from_iterable(found))
        for name, found in collected.items()
    }
    return TableColumns(table.path, columns, rows, np.concatenate(lines) if lines else None)


def _column(batch: TableColumns, name: str) -> list[str] | np.ndarray:
    """Return the column `name` of `batch`. Raises DataError where it is missing, as lists of another length are."""
    if name not in batch.columns:
        raise DataError(f"{batch.place(0)}: in this row or soon after, the list in column {name!r} has another length")
    return batch.columns[name]


def read_features(
    table: Table, names: Sequence[str], rows: int, workspace: Workspace | None = None
) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Read the columns of numbers among `names` as float32[rows, F], into a temporary file of `workspace` if given.

    Also returns the names of columns of texts, and of columns that cannot be read. A column of texts counts as numbers
    if its first field is a number. Raises DataError, naming the row, for a later field that is not a number.
    """
    features: np.ndarray | None = None
    numeric: list[str] | None = None
    widths: list[int] = []
    texts: list[str] = []
    unread = list(table.unread)
    for batch in table.batches(names) if names else ():
        # The first batch says which columns are numbers.
        if numeric is None:
            held = [name for name in names if name in batch.columns]
            numeric = [
                name for name in held if isinstance(column := batch.columns[name], np.ndarray) or is_number(column[0])
            ]
            texts = [name for name in held if name not in numeric]
            unread = list(batch.unread)
        if not numeric:
            break

        # Each column is one or several features wide; the first batch says how many.
        blocks = [_numbers(batch, name) for name in numeric]
        if features is None:
            widths = [block.shape[1] for block in blocks]
            shape = (rows, sum(widths))
            features = workspace.array("features", shape, np.float32) if workspace else np.empty(shape, np.float32)
        for name, block, width in zip(numeric, blocks, widths, strict=True):
            if block.shape[1] != width:
                raise DataError(
                    f"{batch.place(0)}: lists in column {name!r} have {counted(block.shape[1], 'number')}, not {width}"
                )
        np.concatenate(blocks, axis=1, out=features[batch.first_row : batch.first_row + batch.rows])
    return features, texts, unread


def _numbers(batch: TableColumns, name: str) -> np.ndarray:
    """Return the column as float32[rows, k]."""
    _column(batch, name)
    column = numbers_in(batch, name)
    found, lost = narrowed(column.reshape(batch.rows, -1), np.dtype(np.float32))
    if lost >= 0:
        row, value = lost // found.shape[1], column.reshape(-1)[lost]
        raise DataError(f"{batch.place(row)}: {value} in column {name!r} is too large for float32")
    return found
