"""Several tables as one: rows of all files one after the other, with columns under other names."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data_prep.formats.columns import Table, TableColumns
from data_prep.formats.tables import open_table
from leapmpi.errors import DataError


def matching_files(listed: object, folder: Path, where: str) -> list[Path]:
    """Find the files of a table: paths from `folder`, or from here; * stands for any text. Raises DataError."""
    found: list[Path] = []
    for pattern in [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []:
        places = [str(folder / str(pattern)), str(pattern)]
        matches = next((hits for place in places if (hits := sorted(glob.glob(place)))), [])
        if not matches:
            raise DataError(f"{where}: there is no file {pattern}, neither from {folder} nor from here")
        found += map(Path, matches)
    if not found:
        raise DataError(f"{where}: no files are named")
    return found


class ChosenColumns:
    """Rows of all `files`, one after the other; `chosen` maps new names to those of the files.

    A Table. Raises DataError for a file that is damaged or lacks a column.
    """

    unread: tuple[str, ...] = ()

    def __init__(self, files: Sequence[Path], chosen: Mapping[str, str]) -> None:
        self._tables: list[Table] = [open_table(file) for file in files]
        self._chosen = dict(chosen)
        for table in self._tables:
            if missing := [name for name in self._chosen.values() if name not in table.names]:
                raise DataError(
                    f"{table.path} has no column {missing[0]!r} of texts or numbers; it has {', '.join(table.names)}"
                )
        self.path = files[0]
        self.names = list(self._chosen)
        whole = frozenset.intersection(*(table.integers for table in self._tables))
        self.integers = frozenset(name for name, old in self._chosen.items() if old in whole)

        self.pieces = sum(table.pieces for table in self._tables)

    def batches(self, only: Sequence[str], pieces: range | None = None) -> Iterator[TableColumns]:
        """Yield the columns `only` of at most ROWS_AT_ONCE rows at a time. pieces: of all files in their order."""
        pieces = range(self.pieces) if pieces is None else pieces
        names, before, end = list(dict.fromkeys(self._chosen[name] for name in only)), 0, 0
        for table in self._tables:
            begin, end, rows = end, end + table.pieces, 0
            of_table = range(max(pieces.start, begin) - begin, max(min(pieces.stop, end) - begin, 0))
            for batch in table.batches(names, of_table):
                columns = {name: batch.columns[old] for name in only if (old := self._chosen[name]) in batch.columns}
                yield replace(batch, columns=columns, first_row=before + batch.first_row, rows_before=before)
                rows += batch.rows
            before += rows
