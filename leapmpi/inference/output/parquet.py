"""Rows as a table in Parquet: a folder with one file for each rank, of columns `vertex` and those of predictions."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError, DataError
from leapmpi.inference.output.delivery import Window
from leapmpi.inference.output.raw_files import Places, RawFile
from leapmpi.system.atomic_files import explain


class ParquetFolder(RawFile):
    """`part-00000.parquet` and so on, in the order of the rows; rows without a vertex are left out.

    Numbers of one column are `class`, several are a list of equal length called `values`. `name` and `class_name` are
    there where the dataset has such names; several classes have a list of them. Keys and times of new rows of a task
    table are there too.
    """

    @classmethod
    def check(cls) -> None:
        """Raise ConfigError without pyarrow."""
        try:
            importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigError(
                "--out in Parquet needs pyarrow, which is not installed; pip install 'leapmpi[parquet]', or let --out "
                "end in .h5 or .npy"
            ) from None

    def create(self, path: Path, about: dict[str, Any]) -> Places:
        try:
            path.mkdir()
        except OSError as error:
            raise explain(error, path) from error
        return {}

    def open(self, path: Path, places: Places) -> None:
        if not path.is_dir():
            raise DataError(f"{path} cannot be seen on all nodes; let --out name one in a file system that all share")
        arrow = self._arrow = importlib.import_module("pyarrow")
        shape, dtype = self.rows
        number = arrow.from_numpy_dtype(dtype)
        column = ("class", number) if len(shape) == 1 else ("values", arrow.list_(number, shape[1]))
        text, types = arrow.string(), {each: arrow.string() for each in (*self._keys, *self._texts)}
        if len(shape) > 1 and "class_name" in types:
            types["class_name"] = arrow.list_(text)
        self._schema = arrow.schema([("vertex", arrow.int64()), *types.items(), column])
        self.path = path / f"part-{self.rank:05d}.parquet"
        try:
            self._file = importlib.import_module("pyarrow.parquet").ParquetWriter(self.path, self._schema)
        except OSError as error:
            raise explain(error, self.path) from error

    def write(self, window: Window) -> None:
        arrow, there = self._arrow, window.vertices >= 0
        rows = np.ascontiguousarray(window.rows[there])
        column = arrow.array(rows.reshape(-1))
        if rows.ndim > 1:
            column = arrow.FixedSizeListArray.from_arrays(column, rows.shape[1])
        texts = {
            "name": lambda: self.words.of_vertices(window.vertices[there]),
            "class_name": lambda: self.words.of_classes(window.rows[there]).tolist(),
        }
        words = [arrow.array(texts[each](), self._schema.field(each).type) for each in self._texts]
        if self._keys:
            columns = zip(*self.words.keys_of(window.vertices[there]), strict=True)
            words = [arrow.array(each, arrow.string()) for each in columns] + words
        try:
            table = arrow.table([arrow.array(window.vertices[there]), *words, column], schema=self._schema)
            self._file.write_table(table)
        except OSError as error:
            raise explain(error, self.path) from error

    @property
    def _keys(self) -> list[str]:
        """The names of the columns of keys of new rows."""
        return [] if self.words.texts is None else self.words.texts.columns

    @property
    def _texts(self) -> list[str]:
        """The names of the columns of words."""
        of_classes = self.words.classes is not None and self.rows.dtype == np.int32
        return ["name"] * (self.words.vertices is not None) + ["class_name"] * of_classes

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise explain(error, self.path) from error
