"""Tables with keys, in a folder of Parquet or CSV or in a SQLite or DuckDB file, and their schema in TOML.

Rows become vertices of their table's type, foreign keys relations. The schema is a file that `--schema` names, or
schema.toml in the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.database.table_schema import DatabaseSchema, read_schema
from data_prep.database.user_functions import check_code
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.toml_sections import begins_with_sections
from leapmpi.dataset.column_encoders import read_encoders
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.hdf5.names import DATASET_FILE
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError, DataError

SUMMARY = "tables with primary and foreign keys, by a schema in TOML: [tables.NAME]"
OPTIONS = frozenset({"schema", "encoders", "refuse", "code"})

SCHEMA_FILE = "schema.toml"


def can_read(path: Path) -> bool:
    """Recognise a folder whose schema.toml has a section of tables."""
    return path.is_dir() and begins_with_sections(path / SCHEMA_FILE, "tables")


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the tables in `path` by their schema. Raises DataError for the first fault."""
    try:
        from data_prep.database.read_database import read_database
        from data_prep.database.table_rows import FAULTS
    except ImportError as error:
        raise ConfigError(
            f"tables are read by pyarrow, which is missing ({error}); pip install 'leapmpi[tables]'"
        ) from None
    schema = options.schema or path / SCHEMA_FILE
    if not schema.is_file():
        raise DataError(f"{schema} is not a file; --guess-schema {schema} writes a first one for the tables in {path}")
    refused = options.refuse.split(",") if options.refuse else []
    if strange := sorted({*refused} - {*FAULTS}):
        raise ConfigError(f"--refuse {options.refuse}: {strange[0]!r} is none of {', '.join(FAULTS)}")
    assert options.workspace is not None
    stored = None if options.encoders is None else _stored(options.encoders)
    tables = read_schema(schema)
    check_code(_code_in(tables, stored), options.code or ())
    return read_database(path, tables, options.workspace, refused, stored)


def _code_in(schema: DatabaseSchema, stored: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield places and functions of the columns that code of users encodes, by the schema or as `stored`."""
    for name, table in schema.tables.items():
        for each in table.columns:
            options = each.options if stored is None else stored["tables"].get(name, {}).get(each.column, {})
            if "function" in options:
                yield f"{table.where}: columns.{each.column}", options["function"]


def _stored(path: Path) -> dict[str, Any]:
    """Return the encoders of the graph file or dataset `path`."""
    if path.is_dir():
        return read_encoders(path / DATASET_FILE, open_dataset(path, typed=True).attributes)
    return read_encoders(path, open_graph(path).attributes)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
