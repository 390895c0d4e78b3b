"""Rows as a table in text: each rank writes its rows to a file of its own, which rank 0 joins in order."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.errors import DataError
from leapmpi.inference.output.delivery import Window
from leapmpi.inference.output.raw_files import Places, RawFile
from leapmpi.system.atomic_files import explain


class CsvFile(RawFile):
    """A line of names, then `vertex`, or the keys of new rows, and predictions; rows without a vertex are left out."""

    def create(self, path: Path, about: dict[str, Any]) -> Places:
        shape, _ = self.rows
        columns = self.words.of_columns(shape[1] if len(shape) > 1 else 0)
        try:
            with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow([*self.words.key_columns, *columns])
        except OSError as error:
            raise explain(error, path) from error
        return {}

    def open(self, path: Path, places: Places) -> None:
        if not path.is_file():
            raise DataError(f"{path} cannot be seen on all nodes; let --out name one in a file system that all share")
        self.path = _of_rank(path, self.rank)
        try:
            self._file = self.path.open("w", encoding="utf-8", errors="surrogatepass", newline="")
        except OSError as error:
            raise explain(error, self.path) from error
        self._writer = csv.writer(self._file, lineterminator="\n")

    def write(self, window: Window) -> None:
        there = window.vertices >= 0
        keys, rows = self.words.keys_of(window.vertices[there]), window.rows[there]
        values = self.words.of_classes(rows) if rows.dtype == np.int32 else rows
        try:
            self._writer.writerows([*key, *_texts(row)] for key, row in zip(keys, values, strict=True))
        except OSError as error:
            raise explain(error, self.path) from error

    def close(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise explain(error, self.path) from error

    def join(self, path: Path, ranks: int) -> None:
        try:
            with path.open("ab") as whole:
                for rank in range(ranks):
                    with _of_rank(path, rank).open("rb") as part:
                        shutil.copyfileobj(part, whole)
                os.fsync(whole.fileno())
            self.drop(path, ranks)
        except OSError as error:
            raise explain(error, path) from error

    def drop(self, path: Path, ranks: int) -> None:
        for rank in range(ranks):
            _of_rank(path, rank).unlink(missing_ok=True)


def _of_rank(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank-{rank}")


def _texts(row: Any) -> list[str]:
    """Return the values of a row, or one value, as texts."""
    return [each if isinstance(each, str) else f"{each:.9g}" for each in (row if np.ndim(row) else [row])]
