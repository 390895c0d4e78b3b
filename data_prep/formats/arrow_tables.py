"""Tables as batches of pyarrow: files of Parquet and CSV, and the tables of a SQLite or DuckDB file.

Parquet is read in place. Other tables are first written to a temporary file in Arrow's format, which every pass maps.
Imported only where such tables are read, as pyarrow may not be installed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pyarrow
from pyarrow import csv, ipc, parquet

from data_prep.formats.numeric_text import DELIMITERS, open_text
from data_prep.formats.parquet_table import faults
from data_prep.workspace import Workspace
from leapmpi.errors import ConfigError, DataError

ROWS_AT_ONCE = 1 << 17
"""Most rows of a batch."""

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_MISSING = ["", "NULL", "null", "NaN", "nan", "NA", "N/A", "None"]
_CSV_BLOCK = 1 << 23
_WIDER = {"int64": "double", "bool": "string", "double": "string", "null": "string"}
_BAD_COLUMN = re.compile(r"In CSV column #(\d+): .*?conversion error to (\w+)")
_SQLITE_MAGIC = b"SQLite format 3\x00"
_DUCKDB_MAGIC = b"DUCK"


class ArrowTable:
    """A table: the columns that `schema` names, and `rows`. `name` is what messages call it."""

    def __init__(self, name: str, schema: pyarrow.Schema, rows: int) -> None:
        self.name, self.schema, self.rows = name, schema, rows

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the `columns` of at most ROWS_AT_ONCE rows at a time. Raises DataError where a file is damaged."""
        raise NotImplementedError


class ParquetFiles(ArrowTable):
    """The rows of some Parquet files, one file after the other. Raises DataError where their columns differ."""

    def __init__(self, name: str, paths: Sequence[Path]) -> None:
        self._paths, schema, rows = list(paths), None, 0
        for path in self._paths:
            with faults(path, "cannot be read"), parquet.ParquetFile(path) as file:
                found = file.schema_arrow.remove_metadata()
                rows += file.metadata.num_rows
            if schema is not None and found.names != schema.names:
                raise DataError(f"{path} has the columns {', '.join(found.names)}, but {self._paths[0]} has others")
            schema = schema or found
        assert schema is not None
        super().__init__(name, schema, rows)

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        for path in self._paths:
            with faults(path, "cannot be read"), parquet.ParquetFile(path, memory_map=True) as file:
                yield from file.iter_batches(ROWS_AT_ONCE, columns=list(columns), use_threads=False)


class StagedTable(ArrowTable):
    """A table in a temporary file of Arrow's format, which is mapped."""

    def __init__(self, name: str, path: Path) -> None:
        self._path = path
        with self._opened() as file:
            rows = sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))
            super().__init__(name, file.schema, rows)

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        with self._opened() as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).select(list(columns))
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield batch.slice(start, ROWS_AT_ONCE)

    @contextmanager
    def _opened(self) -> Iterator[ipc.RecordBatchFileReader]:
        with pyarrow.memory_map(str(self._path)) as source, ipc.open_file(source) as file:
            yield file


def tables_in(source: Path) -> dict[str, list[Path]]:
    """Find the tables of a folder or a database file: their names and files, in the order of the names.

    In a folder `orders.parquet`, `orders.csv` and a folder `orders/` of such files are tables called `orders`. Raises
    DataError where there are none, or two have one name.
    """
    if source.is_file():
        return {name: [source] for name in _names_in(source)}
    found: dict[str, list[Path]] = {}
    for entry in sorted(source.iterdir()):
        files = [entry] if _is_table(entry) else sorted(filter(_is_table, entry.rglob("*"))) if entry.is_dir() else []
        if not files or entry.name.startswith((".", "_")):
            continue
        # Names in folders have no suffix to drop, but may have a dot.
        name = entry.name if entry.is_dir() else entry.name.partition(".")[0]
        if name in found:
            raise DataError(f"{source} has two tables called {name!r}, {found[name][0].name} and {entry.name}")
        found[name] = files
    if not found:
        raise DataError(f"{source} holds no tables; expected files in Parquet or CSV, or folders of them")
    return found


def open_arrow_table(name: str, files: Sequence[Path], workspace: Workspace, texts: Sequence[str] = ()) -> ArrowTable:
    """Open the table `name` in `files`, or in the one database file. Columns `texts` of CSV are read as texts.

    Raises DataError for a file that is damaged or mixes kinds, ConfigError where a package is missing.
    """
    if is_database(files[0]):
        batches = _of_sqlite if _begins(files[0], _SQLITE_MAGIC) else _of_duckdb
        return _staged(name, lambda: batches(files[0], name), workspace)
    kinds = {file.name.lower().endswith(".parquet") for file in files}
    if len(kinds) > 1:
        raise DataError(f"{name}: some of its files are Parquet, others CSV; save them alike")
    if kinds == {True}:
        return ParquetFiles(name, files)
    return _staged_csv(name, files, workspace, texts)


def is_database(path: Path) -> bool:
    """Return whether `path` is a file of SQLite or DuckDB."""
    return path.is_file() and (_begins(path, _SQLITE_MAGIC) or _begins(path, _DUCKDB_MAGIC, 8))


def _begins(path: Path, magic: bytes, at: int = 0) -> bool:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(len(magic)) == magic


def _is_table(path: Path) -> bool:
    name = path.name.lower()
    return path.is_file() and name[0] not in "._" and name.endswith((".parquet", *CSV_SUFFIXES))


def _staged(name: str, batches: Callable[[], Iterator[pyarrow.RecordBatch]], workspace: Workspace) -> StagedTable:
    """Write the batches of a table, one at least, to a temporary file."""
    path = workspace.path("table")
    writer = None
    with workspace.written(path) as counted, pyarrow.PythonFile(_Sink(counted), mode="w") as sink:
        for batch in batches():
            writer = writer or ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
    return StagedTable(name, path)


class _Sink:
    """File object of pyarrow over a file whose bytes a workspace counts."""

    closed = False

    def __init__(self, counted) -> None:
        self._counted = counted

    def write(self, content) -> int:
        return self._counted.write(content)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _staged_csv(name: str, files: Sequence[Path], workspace: Workspace, texts: Sequence[str]) -> StagedTable:
    """Write a table of CSV to a temporary file. First rows show types; later rows may widen those of columns."""
    kinds: dict[str, pyarrow.DataType] = dict.fromkeys(texts, pyarrow.string())
    while True:
        names: list[str] = []
        try:
            return _staged(name, lambda: _of_csv(files, kinds, names), workspace)  # noqa: B023 (called at once)
        except pyarrow.ArrowInvalid as error:
            found = _BAD_COLUMN.search(str(error))
            if not found or not names or kinds.get(column := names[int(found[1])]) == pyarrow.string():
                raise DataError(
                    f"{files[0].parent / name}: CSV cannot be read ({str(error).splitlines()[0]})"
                ) from None
            kinds[column] = pyarrow.float64() if _WIDER.get(found[2]) == "double" else pyarrow.string()


def _of_csv(
    files: Sequence[Path], kinds: dict[str, pyarrow.DataType], names: list[str]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches of `files`, of the types of the first file; `names` becomes that of all columns."""
    for file in files:
        with open_text(file) as lines:
            first = next((line for line in lines if line.strip()), "")
        if not first:
            raise DataError(f"{file} is empty; the first line of a table names its columns")
        mark = "\t" if ".tsv" in file.name.lower() else next((each for each in DELIMITERS if each in first), ",")
        parsing = csv.ParseOptions(delimiter=mark, newlines_in_values=True)
        convert = csv.ConvertOptions(column_types=kinds, null_values=_MISSING, strings_can_be_null=True)
        reading = csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=True)
        with csv.open_csv(file, reading, parsing, convert) as reader:
            if names and list(reader.schema.names) != names:
                raise DataError(f"{file} has the columns {', '.join(reader.schema.names)}, but {files[0]} has others")
            names[:] = reader.schema.names
            if len(set(names)) < len(names):
                twice = next(each for each in names if names.count(each) > 1)
                raise DataError(f"{file}, line 1: two columns are called {twice!r}")
            # Later files have the types of the first.
            kinds |= {field.name: field.type for field in reader.schema if field.name not in kinds}
            yield pyarrow.RecordBatch.from_pylist([], reader.schema)
            yield from reader


def _names_in(database: Path) -> list[str]:
    """List the tables of a database file. Raises DataError for another file, or one without tables."""
    if _begins(database, _SQLITE_MAGIC):
        with _sqlite(database) as connection:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            found = sorted(name for (name,) in rows)
    elif _begins(database, _DUCKDB_MAGIC, 8):
        with _duckdb(database) as connection:
            found = sorted(name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall())
    else:
        raise DataError(f"{database} is not a database of SQLite or DuckDB; name a folder of tables, or such a file")
    if not found:
        raise DataError(f"{database} holds no tables")
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise DataError(f"{path} cannot be read as a SQLite database ({error})") from error


def _of_sqlite(path: Path, table: str) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches of a table of SQLite, whose columns hold what each row says: the widest kind counts."""
    with _sqlite(path) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
        # SQLite has a type for each value, Arrow one for each column: ask which kinds a column holds.
        kinds = ("text", "blob", "real", "integer")
        tests = [f"max(typeof({_quoted(name)}) = '{kind}')" for name in names for kind in kinds]
        held = connection.execute(f"SELECT {', '.join(tests)} FROM {_quoted(table)}").fetchone()
        fields, chosen = [], []
        for number, name in enumerate(names):
            here = [kind for kind, found in zip(kinds, held[number * 4 : number * 4 + 4], strict=True) if found]
            kind = here[0] if here else "text"
            if "blob" in here and len(here) > 1:
                raise DataError(f"{path}, table {table}: column {name!r} mixes bytes with other values")
            types = {"text": pyarrow.string(), "blob": pyarrow.binary(), "real": pyarrow.float64()}
            fields.append(pyarrow.field(name, types.get(kind, pyarrow.int64())))
            chosen.append(f"CAST({_quoted(name)} AS {kind})" if len(here) > 1 else _quoted(name))
        # An empty batch tells the columns of a table without rows.
        schema = pyarrow.schema(fields)
        yield pyarrow.RecordBatch.from_pylist([], schema)
        cursor = connection.execute(f"SELECT {', '.join(chosen)} FROM {_quoted(table)}")
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            columns = zip(*rows, strict=True)
            arrays = [pyarrow.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def _duckdb(path: Path) -> Iterator:
    try:
        import duckdb
    except ImportError:
        raise ConfigError(f"{path} is read by duckdb, which is not installed; pip install 'leapmpi[duckdb]'") from None
    try:
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            yield connection
    except duckdb.Error as error:
        raise DataError(f"{path} cannot be read as a DuckDB database ({str(error).splitlines()[0]})") from error


def _of_duckdb(path: Path, table: str) -> Iterator[pyarrow.RecordBatch]:
    with _duckdb(path) as connection:
        found = connection.sql(f"SELECT * FROM {_quoted(table)}")
        # Versions before 2 call it by another name.
        reader = (getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader)(ROWS_AT_ONCE)
        yield pyarrow.RecordBatch.from_pylist([], reader.schema)
        yield from reader
