"""Tables in Parquet, read whole or by batches of rows, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_prep.formats.columns import TableColumns
from leapmpi.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"


class ParquetTable:
    """The table in the file `path`; `names` are those of its columns of texts, numbers and lists of numbers.

    unread: the names of columns of other types. integers: the names of columns of whole numbers.
    Raises DataError when the file is damaged, also while rows are read, ConfigError when pyarrow is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            from pyarrow import parquet, types
        except ImportError as error:
            raise ConfigError(
                "Parquet files are read by pyarrow, which is not installed; pip install pyarrow, or save them as CSV"
            ) from error
        with _faults(path):
            self._file = parquet.ParquetFile(path)
            schema = self._file.schema_arrow
        self.names = [field.name for field in schema if _is_readable(field.type)]
        self.unread = tuple(sorted(field.name for field in schema if not _is_readable(field.type)))
        self.integers = frozenset(field.name for field in schema if types.is_integer(_kind(field.type)))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._file.metadata.num_rows

    def read(self, only: Sequence[str] | None = None) -> TableColumns:
        """The columns `only`, or all, of all rows.

        Lists of several lengths are no rows of a matrix: such a column is among the `unread` of the result.
        """
        with _faults(self.path):
            return self._columns(self._file.read(self._chosen(only)), 0)

    def batches(self, rows_at_once: int, only: Sequence[str] | None = None) -> Iterator[TableColumns]:
        """The columns `only`, or all, of at most `rows_at_once` rows at a time."""
        import pyarrow

        first_row = 0
        with _faults(self.path):
            for batch in self._file.iter_batches(rows_at_once, columns=self._chosen(only)):
                found = self._columns(pyarrow.Table.from_batches([batch]), first_row)
                yield found
                first_row += found.rows

    def _chosen(self, only: Sequence[str] | None) -> list[str]:
        """The names `only`, or all."""
        return list(self.names if only is None else only)

    def _columns(self, table: pyarrow.Table, first_row: int) -> TableColumns:
        found = {name: _array(table.column(name)) for name in table.column_names}
        read = {name: column for name, column in found.items() if column is not None}
        unread = tuple(sorted({*self.unread, *(found.keys() - read.keys())}))
        return TableColumns(self.path, read, table.num_rows, None, first_row, unread)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises in the body into a DataError."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        sentence = str(error).split("\n")[0]
        raise DataError(f"{path} is damaged or truncated, or no Parquet file ({sentence})") from error


def _kind(arrow_type: pyarrow.DataType) -> pyarrow.DataType:
    """The type of a column's values, also where they are stored as a dictionary."""
    from pyarrow import types

    return arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type


def _is_text(arrow_type: pyarrow.DataType) -> bool:
    from pyarrow import types

    return types.is_string(arrow_type) or types.is_large_string(arrow_type)


def _is_list(arrow_type: pyarrow.DataType) -> bool:
    from pyarrow import types

    return types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)


def _is_readable(arrow_type: pyarrow.DataType) -> bool:
    from pyarrow import types

    kind = _kind(arrow_type)
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return plain or _is_text(kind) or _is_list(kind)


def _array(column: pyarrow.ChunkedArray) -> list[str] | np.ndarray | None:
    """A column of pyarrow as texts or numbers; missing texts become "", missing numbers NaN.

    None: a column of lists that are no rows of a matrix.
    """
    import pyarrow

    kind = _kind(column.type)
    if _is_text(kind):
        return [text or "" for text in column.to_pylist()]
    if not _is_list(kind):
        return column.to_numpy()

    # Lists: a matrix where all of them have one length.
    whole = pyarrow.concat_arrays(column.chunks) if column.num_chunks else None
    if whole is None or whole.null_count:
        return None
    flat = whole.flatten().to_numpy(zero_copy_only=False)
    width = len(flat) // len(whole) if len(whole) else 0
    same = all(len(values) == width for values in whole)
    return flat.reshape(len(whole), width) if same and flat.dtype.kind in "biuf" else None
