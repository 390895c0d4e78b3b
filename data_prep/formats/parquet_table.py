"""Tables in Parquet; imported only where one is read, as pyarrow may not be installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet, types

from data_prep.formats import columns
from data_prep.formats.columns import TableColumns
from leapmpi.errors import DataError


class ParquetTable:
    """The table in the file `path`. Raises DataError when the file is damaged, also while rows are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with faults(path):
            self._file = parquet.ParquetFile(path)
            self.pieces = self._file.num_row_groups
            kinds = {field.name: _kind(field.type) for field in self._file.schema_arrow}
        self.names = [name for name, kind in kinds.items() if kind]
        self.unread = tuple(sorted(name for name, kind in kinds.items() if not kind))
        self.integers = frozenset(name for name, kind in kinds.items() if kind == "integer")

    def batches(self, only: Sequence[str], pieces: range | None = None) -> Iterator[TableColumns]:
        """Yield the columns `only` of at most ROWS_AT_ONCE rows at a time. pieces: row groups, by default all."""
        if pieces is not None and not pieces:
            return
        groups, first_row = None if pieces is None else list(pieces), 0
        with faults(self.path):
            for batch in self._file.iter_batches(columns.ROWS_AT_ONCE, groups, list(only)):
                found = {name: _array(batch.column(name)) for name in batch.schema.names}
                read = {name: column for name, column in found.items() if column is not None}
                unread = tuple(sorted({*self.unread, *(found.keys() - read.keys())}))
                yield TableColumns(self.path, read, batch.num_rows, None, first_row, unread)
                first_row += batch.num_rows


@contextmanager
def faults(path: Path, fault: str = "is damaged or truncated, or no Parquet file") -> Iterator[None]:
    """Turn what pyarrow raises in the body into a DataError about `path`, which says the `fault`."""
    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        sentence = str(error).split("\n")[0]
        raise DataError(f"{path} {fault} ({sentence})") from error


def _kind(arrow_type: pyarrow.DataType) -> str | None:
    """Name the kind of a column, also of values stored as a dictionary: text, list, integer, number; else None."""
    kind = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list"
    if types.is_integer(kind):
        return "integer"
    return "number" if types.is_floating(kind) or types.is_boolean(kind) else None


def _array(column: pyarrow.Array) -> list[str] | np.ndarray | None:
    """Convert a column of pyarrow to texts or numbers; missing texts become "", missing numbers NaN.

    None: a column of lists that are not rows of a matrix.
    """
    kind = _kind(column.type)
    if kind == "text":
        return [text or "" for text in column.to_pylist()]
    if kind != "list":
        return column.to_numpy(zero_copy_only=False)

    # Lists: a matrix where all of them have one length.
    if column.null_count:
        return None
    flat = column.flatten().to_numpy(zero_copy_only=False)
    width = len(flat) // len(column) if len(column) else 0
    same = all(len(values) == width for values in column)
    return flat.reshape(len(column), width) if same and flat.dtype.kind in "biuf" else None
