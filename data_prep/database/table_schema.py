"""The schema of tables: keys, times, columns with their encoders, and the task, read from TOML.

[tables.orders]                      # a table of the folder or database; each row becomes a vertex
primary_key = ["shop", "number"]     # one column, or several
time = "ordered_at"                  # a row is seen from this time on

[tables.orders.foreign_keys]
customer_id = "customers"            # COLUMN = TABLE, or NAME = several columns:
branch = {columns = ["country", "shop"], table = "branches"}

[tables.orders.columns]              # COLUMN = encoder, or with options
price = "log"
status = {encoder = "one-hot", most = 32}

[tasks.churn]                        # a table of rows to predict, which no other row sees
foreign_keys.customer_id = "customers"
time = "asked_at"
label = "churned"
train_until = 2026-01-01             # rows before train; then, before val_until, validate; the others test
val_until = 2026-02-01
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from data_prep.formats.toml_sections import checked_section, column_of, columns_of, read_toml, sections_of
from leapmpi.dataset.hdf5.names import LABEL_KINDS
from leapmpi.errors import DataError, counted, nearest

TABLES, TASKS = "tables", "tasks"
TARGET = "target"
_OF_LABEL = {"label", "kind", "separator", "split", "train_until", "val_until"}
_OF_TABLE = {"files", "primary_key", "time", "foreign_keys", "columns", "text", *_OF_LABEL}


@dataclass(frozen=True)
class ForeignKey:
    """Columns that name a row of `table` by its primary key. `name` is that of the relation."""

    name: str
    columns: tuple[str, ...]
    table: str


@dataclass(frozen=True)
class EncodedColumn:
    """A column that becomes features: the name of its encoder and the encoder's options."""

    column: str
    encoder: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelColumns:
    """Labels of a table's rows, and which of them train.

    kind: one of LABEL_KINDS, or None: as the values look. separator: divides a text into several labels. split: the
    column of train, val and test, or None. train_until, val_until: times, in seconds where they are dates; rows of
    earlier times train, then validate.
    """

    columns: tuple[str, ...]
    kind: str | None = None
    separator: str | None = None
    split: str | None = None
    train_until: int | None = None
    val_until: int | None = None


@dataclass(frozen=True)
class TableSchema:
    """One table. `seen`: whether rows of other tables see its rows; those of a task are seen by none.

    where: what messages call it. files: a pattern or a list, from the folder; None: the table of that name. text:
    columns of CSV that are texts, whatever they look like.
    """

    name: str
    where: str
    seen: bool
    files: object = None
    primary_key: tuple[str, ...] = ()
    time: str | None = None
    foreign_keys: tuple[ForeignKey, ...] = ()
    columns: tuple[EncodedColumn, ...] = ()
    text: tuple[str, ...] = ()
    label: LabelColumns | None = None


@dataclass(frozen=True)
class DatabaseSchema:
    """All tables by name, and the one whose labels are predicted, or None."""

    tables: dict[str, TableSchema]
    target: str | None


def stored_table(table: TableSchema) -> dict[str, Any]:
    """Return what new rows of `table` are read by, as JSON holds it: its name, keys, time, columns and texts."""
    keys = [{"name": key.name, "columns": list(key.columns), "table": key.table} for key in table.foreign_keys]
    columns = [[each.column, each.encoder] for each in table.columns]
    return {
        "name": table.name,
        "primary_key": list(table.primary_key),
        "time": table.time,
        "foreign_keys": keys,
        "columns": columns,
        "text": list(table.text),
    }


def restored_table(stored: Mapping[str, Any], where: str) -> TableSchema:
    """Return the table that `stored_table` has stored, without files and labels; `where` opens messages about it."""
    keys = [ForeignKey(each["name"], tuple(each["columns"]), each["table"]) for each in stored["foreign_keys"]]
    return TableSchema(
        stored["name"],
        where,
        False,
        primary_key=tuple(stored["primary_key"]),
        time=stored["time"],
        foreign_keys=tuple(keys),
        columns=tuple(EncodedColumn(column, encoder) for column, encoder in stored["columns"]),
        text=tuple(stored["text"]),
    )


def read_schema(path: Path) -> DatabaseSchema:
    """Read the schema in the file `path`. Raises DataError naming section and key of a fault."""
    about = read_toml(path)
    if unknown := sorted(set(about) - {TABLES, TASKS, "target"}):
        raise DataError(f"{path}: {unknown[0]!r} is none of [tables.NAME], [tasks.NAME] and target")
    sections = [(TABLES, sections_of(about, TABLES, path))]
    sections += [(TASKS, sections_of(about, TASKS, path))] if TASKS in about else []
    tables: dict[str, TableSchema] = {}
    for kind, found in sections:
        for name, each in found.items():
            if name in tables:
                raise DataError(f"{path}: {name!r} is a table and a task; give one of them another name and `files`")
            tables[name] = _table(path, kind, name, each)
    for each in tables.values():
        _check_keys(each, tables)
    return DatabaseSchema(tables, _target(about.get("target"), tables, path))


def _target(chosen: object, tables: dict[str, TableSchema], path: Path) -> str | None:
    labelled = [each.name for each in tables.values() if each.label]
    if chosen is None:
        if len(labelled) > 1:
            raise DataError(f'{path}: {", ".join(labelled)} have labels; choose one: target = "{labelled[0]}"')
        return labelled[0] if labelled else None
    if chosen not in labelled:
        raise DataError(f"{path}: target {str(chosen)[:40]!r} is not a table with a label ({', '.join(labelled)})")
    return str(chosen)


def _table(path: Path, kind: str, name: str, about: dict[str, Any]) -> TableSchema:
    where = checked_section(path, f"{kind}.{name}", about, _OF_TABLE)
    if kind == TASKS and ("label" not in about or not about.get("foreign_keys")):
        raise DataError(f"{where}: a task has a label, and a foreign key to what it is about")
    return TableSchema(
        name,
        where,
        kind == TABLES,
        about.get("files"),
        columns_of(about, "primary_key", where),
        column_of(about, "time", where),
        tuple(_foreign_key(name, each, where) for name, each in _section(about, "foreign_keys", where).items()),
        tuple(_encoded(name, each, where) for name, each in _section(about, "columns", where).items()),
        columns_of(about, "text", where),
        _label(about, where),
    )


def _section(about: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    found = about.get(key, {})
    if not isinstance(found, dict):
        raise DataError(f"{where}: {key} is {str(found)[:40]!r}; expected lines of COLUMN = VALUE")
    return found


def _foreign_key(name: str, about: object, where: str) -> ForeignKey:
    if isinstance(about, str):
        return ForeignKey(name, (name,), about)
    if isinstance(about, dict) and set(about) == {"columns", "table"} and isinstance(about["table"], str):
        return ForeignKey(name, columns_of(about, "columns", f"{where}: foreign_keys.{name}"), about["table"])
    raise DataError(f'{where}: foreign_keys.{name} must be a table, or {{columns = ["A", "B"], table = "TABLE"}}')


def _encoded(name: str, about: object, where: str) -> EncodedColumn:
    if isinstance(about, str):
        return EncodedColumn(name, about)
    if isinstance(about, dict) and isinstance(about.get("encoder"), str):
        return EncodedColumn(name, about["encoder"], {key: each for key, each in about.items() if key != "encoder"})
    raise DataError(f'{where}: columns.{name} must be an encoder, or {{encoder = "NAME", ...}}')


def _label(about: dict[str, Any], where: str) -> LabelColumns | None:
    if "label" not in about:
        if given := sorted(_OF_LABEL & set(about)):
            raise DataError(f"{where}: {given[0]} needs a label")
        return None
    kind, separator = (column_of(about, key, where) for key in ("kind", "separator"))
    if kind is not None and kind not in LABEL_KINDS:
        raise DataError(f"{where}: kind {kind!r} is unknown; {nearest(kind, LABEL_KINDS)}")
    bounds = [
        seconds_of(about[key], f"{where}: {key}") if key in about else None for key in ("train_until", "val_until")
    ]
    split = column_of(about, "split", where)
    # Splits come from times or from a column, not from both.
    train, val = bounds
    if val is not None and (train is None or val < train):
        raise DataError(f"{where}: val_until needs a train_until that is not later")
    if train is not None and ("time" not in about or split is not None):
        raise DataError(f"{where}: train_until needs a time column, and no split column")
    columns = columns_of(about, "label", where)
    if not columns:
        raise DataError(f"{where}: label names no column")
    return LabelColumns(columns, kind, separator, split, train, val)


def seconds_of(value: object, where: str) -> int:
    """Return a time of a schema in seconds since 1970, UTC; whole numbers stay. Raises DataError for another value."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise DataError(f"{where} is {value[:40]!r}, which is not a date") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**63:
        return int(value)
    if type(value) is not int:
        raise DataError(f"{where} is {str(value)[:40]!r}; expected a date, or a whole number as in the time column")
    return value


def _check_keys(table: TableSchema, tables: dict[str, TableSchema]) -> None:
    """Raise DataError for a foreign key without a table, or that does not fit the primary key of its table."""
    for key in table.foreign_keys:
        where = f"{table.where}: foreign key {key.name}"
        other = tables.get(key.table)
        if other is None or not other.seen:
            known = [each.name for each in tables.values() if each.seen]
            raise DataError(f"{where} names the table {key.table!r}; {nearest(key.table, known)}")
        if len(other.primary_key) != len(key.columns):
            key_of = f"{len(other.primary_key)} columns" if other.primary_key else "none"
            raise DataError(
                f"{where} has {counted(len(key.columns), 'column')}, the primary key of {key.table} has {key_of}"
            )
