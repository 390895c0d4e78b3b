"""Rows of a table of vertices: ids, classes and splits held, features written to a file, a batch of rows at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from data_prep.assembly.id_map import BYTES_PER_TEXT
from data_prep.formats.columns import TableColumns
from data_prep.formats.tables import ROWS_AT_ONCE, Table
from data_prep.workspace import Workspace, require
from leapmpi.errors import DataError

_BYTES_PER_REPEATED_TEXT = 32


def rows_held(table: Table, id_column: str, others: Sequence[str], workspace: Workspace | None = None) -> TableColumns:
    """The columns `id_column` and `others`, of few distinct texts, of all rows of `table`.

    Raises DataError for a damaged table, ResourceError when the `workspace` has not the memory.
    """
    names = [id_column, *others]
    pieces: dict[str, list] = {name: [] for name in names}
    lines, rows = [], 0
    for batch in table.batches(ROWS_AT_ONCE, names):
        rows += batch.rows
        texts = [name for name, column in batch.columns.items() if isinstance(column, list)]
        per_row = BYTES_PER_TEXT * (id_column in texts) + _BYTES_PER_REPEATED_TEXT * len(names)
        if workspace:
            advice = "allow more, or number the vertices and keep features, labels and splits in .npy files"
            require(workspace.memory, rows * per_row, f"{table.path}: holding the ids of {rows:,} rows or more", advice)
        for name in names:
            column = _column(batch, name)
            pieces[name].append(list(map(sys.intern, column)) if name in texts and name != id_column else column)
        lines += [] if batch.lines is None else [batch.lines]
    columns = {name: _joined(found) for name, found in pieces.items()}
    return TableColumns(table.path, columns, rows, np.concatenate(lines) if lines else None)


def _column(batch: TableColumns, name: str) -> list[str] | np.ndarray:
    if name not in batch.columns:
        raise DataError(f"{batch.place(0)}: in this row or soon after, the list in column {name!r} has another length")
    return batch.columns[name]


def _joined(pieces: list) -> list[str] | np.ndarray:
    if not pieces:
        return []
    return [text for piece in pieces for text in piece] if isinstance(pieces[0], list) else np.concatenate(pieces)


def read_features(
    table: Table, names: Sequence[str], rows: int, workspace: Workspace | None = None
) -> tuple[np.ndarray | None, list[str], list[str]]:
    """The columns of numbers among `names` as float32[rows, F], in a temporary file of `workspace` if given.

    Also the names of columns of texts, and of those that cannot be read. A column of text is one of numbers if its
    first field is one. Raises DataError, naming the row, for a later field that is none.
    """
    features, widths, numeric, texts, unread = None, [], None, [], list(table.unread)
    for batch in table.batches(ROWS_AT_ONCE, names) if names else ():
        if numeric is None:
            numeric = [name for name in names if name in batch.columns and _is_numeric(batch.columns[name])]
            texts = [name for name in names if name in batch.columns and name not in numeric]
            unread = list(batch.unread)
        if not numeric:
            break
        blocks = [_numbers(batch, name) for name in numeric]
        if features is None:
            widths = [block.shape[1] for block in blocks]
            shape = (rows, sum(widths))
            features = workspace.array("features", shape, np.float32) if workspace else np.empty(shape, np.float32)
        for name, block, width in zip(numeric, blocks, widths, strict=True):
            if block.shape[1] != width:
                raise DataError(
                    f"{batch.place(0)}: lists in column {name!r} have {block.shape[1]} numbers, not {width}"
                )
        np.concatenate(blocks, axis=1, out=features[batch.first_row : batch.first_row + batch.rows])
    return features, texts, unread


def _is_numeric(column: list[str] | np.ndarray) -> bool:
    if isinstance(column, np.ndarray):
        return True
    try:
        float(column[0])
    except ValueError:
        return False
    return True


def _numbers(batch: TableColumns, name: str) -> np.ndarray:
    """The column as float32[rows, k]."""
    column = _column(batch, name)
    if isinstance(column, np.ndarray):
        return column.astype(np.float32).reshape(batch.rows, -1)
    out = np.empty((batch.rows, 1), np.float32)
    for row, text in enumerate(column):
        try:
            out[row] = float(text)
        except ValueError:
            raise DataError(f"{batch.place(row)}: {text[:40]!r} in column {name!r} is not a number") from None
    return out
