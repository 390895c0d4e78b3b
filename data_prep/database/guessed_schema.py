"""A first schema of tables, for the user to edit: keys by names and by the overlap of values, encoders by types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import compute, types

from data_prep.database.column_values import is_list, is_text, plain
from data_prep.database.row_keys import KeyTable, keys_of
from data_prep.formats.arrow_tables import ArrowTable, open_arrow_table, tables_in
from data_prep.workspace import Workspace
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import check_place, written_aside

_LOOKED_AT = 1 << 17
"""Rows of each table that are looked at, besides its keys."""

_LEAST_OVERLAP = 0.5
"""Share of the values of a foreign key that name a row."""

_MOST_CATEGORIES, _FEW_CATEGORIES = 64, 16
_KEY_ENDS = ("_id", "id", "_key", "_no", "_code", "_uuid")
_TIME_NAMES = ("time", "date", "timestamp", "created", "_at", "_on", "datetime")


@dataclass
class _Guess:
    """Findings about a table: its key, and its foreign keys with the share of their values that name a row."""

    table: ArrowTable
    sample: pyarrow.RecordBatch
    key: str | None = None
    keys: KeyTable | None = None
    foreign: dict[str, tuple[str, float]] = field(default_factory=dict)


def write_guess(source: Path, path: Path, workspace: Workspace, *, overwrite: bool) -> list[str]:
    """Write a schema of the tables in `source` to the file `path`; returns what to look at, in lines.

    Raises DataError where the source has no tables, or `path` exists and `overwrite` is false.
    """
    check_place(path, overwrite)
    if not source.exists():
        raise DataError(f"{source} does not exist; give the folder or the database that holds the tables")
    guesses = {}
    for name, files in tables_in(source).items():
        table = open_arrow_table(name, files, workspace)
        batch = next(table.batches(table.schema.names), None)
        if batch is None:
            batch = pyarrow.RecordBatch.from_pylist([], table.schema)
        guesses[name] = _Guess(table, batch.slice(0, _LOOKED_AT))
    for name, guess in guesses.items():
        guess.key, guess.keys = _primary_key(name, guess, workspace)
    # Keys of all tables must be known before a column can name one.
    for guess in guesses.values():
        guess.foreign = _foreign_keys(guess, guesses)
    with written_aside(path, overwrite=overwrite) as aside:
        aside.write_text("\n".join(_lines(source, guesses)) + "\n", encoding="utf-8")
    return [*_summary(guesses), f"{path} is a first guess: check keys, times and columns, and name a label"]


def _words(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def _stems(table: str) -> set[str]:
    """Return how columns call a row of a table: orders, order; categories, category."""
    low = _words(table)
    found = {low, low.removesuffix("s"), low.removesuffix("es")}
    return found | ({low[:-3] + "y"} if low.endswith("ies") else set())


def _can_be_key(kind: pyarrow.DataType) -> bool:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_integer(kind) or is_text(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind)


def _primary_key(name: str, guess: _Guess, workspace: Workspace) -> tuple[str | None, KeyTable | None]:
    """Return the column that numbers the rows: by its name, if no value is missing or stands twice."""
    own = {each for stem in _stems(name) for each in (f"{stem}_id", f"{stem}id", f"{stem}_key", stem, f"{stem}_no")}
    columns = [field.name for field in guess.table.schema if _can_be_key(field.type)]
    likely = [each for each in columns if _words(each) in ("id", *own)]
    likely += [each for each in columns if each not in likely and _words(each).endswith(_KEY_ENDS)][:1]
    for column in likely:
        if guess.sample.column(column).null_count:
            continue
        # Only all rows prove a key; the first repeated or missing one ends the look.
        table = KeyTable(guess.table.rows, workspace)
        for batch in guess.table.batches([column]):
            table.add(*keys_of([batch.column(0)], column))
            if table.repeated or table.missing:
                break
        else:
            return column, table
    return None, None


def _foreign_keys(guess: _Guess, guesses: dict[str, _Guess]) -> dict[str, tuple[str, float]]:
    """Return the tables that columns name rows of: those whose keys hold most of the values, of likely names first."""
    found: dict[str, tuple[str, float]] = {}
    for field_ in guess.table.schema:
        if field_.name == guess.key or not _can_be_key(field_.type):
            continue
        scored = []
        for other, its in guesses.items():
            if its.keys is None or its.key is None or not _alike(field_.type, its.table.schema.field(its.key).type):
                continue
            # Values alone prove little: small numbers occur in every table, so names must agree too.
            words = _words(field_.name)
            named = any(stem in words for stem in _stems(other) if len(stem) > 2) or words == _words(its.key)
            if not named or words == "id":
                continue
            # A few rows of the column against all keys of the other table.
            keys, there = keys_of([guess.sample.column(field_.name)], field_.name)
            _, dangling = its.keys.rows_of(keys, there)
            share = 1 - dangling / max(1, int(there.sum()))
            scored.append((share, words == _words(its.key), other))
        if scored and (best := max(scored))[0] >= _LEAST_OVERLAP:
            found[field_.name] = best[2], best[0]
    return found


def _alike(one: pyarrow.DataType, other: pyarrow.DataType) -> bool:
    kinds = [each.value_type if types.is_dictionary(each) else each for each in (one, other)]
    return is_text(kinds[0]) == is_text(kinds[1])


def _encoder(column: pyarrow.Array) -> str | None:
    """Return the encoder of a column as it stands in a schema; None where no encoder suits."""
    column = plain(column)
    kind = column.type
    if types.is_boolean(kind):
        return '"boolean"'
    if types.is_date(kind) or types.is_timestamp(kind):
        return '"date"'
    if types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind):
        values = compute.drop_null(column)
        if types.is_integer(kind) and len(values) and len(compute.unique(values)) <= _FEW_CATEGORIES:
            return '"one-hot"'
        return '"log"' if len(values) and _skewed(values.cast(pyarrow.float64())) else '"standard"'
    if is_list(kind):
        if types.is_floating(kind.value_type):
            return '"vector"'
        return '"hashed"' if is_text(kind.value_type) or types.is_integer(kind.value_type) else None
    # Texts that hardly repeat are names or prose, which no encoder here reads.
    if is_text(kind):
        words = compute.drop_null(column)
        different = len(compute.unique(words))
        if different > max(_FEW_CATEGORIES, len(words) // 2):
            return None
        return '"one-hot"' if different <= _MOST_CATEGORIES else '"hashed"'
    return None


def _skewed(values: pyarrow.Array) -> bool:
    """Return whether amounts spread over more than two powers of ten."""
    found = values.to_numpy(zero_copy_only=False)
    found = np.abs(found[np.isfinite(found) & (found != 0)])
    return len(found) > 0 and float(np.quantile(found, 0.99)) > 100 * float(np.quantile(found, 0.25))


def _time(guess: _Guess) -> str | None:
    """Return the column of the times of rows: the first of dates, one with a likely name before others."""
    kinds = {field.name: field.type for field in guess.table.schema}
    times = [name for name, kind in kinds.items() if types.is_timestamp(kind) or types.is_date(kind)]
    if not times:
        times = [
            name for name, kind in kinds.items() if types.is_integer(kind) and _words(name) in ("time", "timestamp")
        ]
    likely = [name for name in times if _words(name).endswith(_TIME_NAMES)]
    return (likely or times or [None])[0]


def _lines(source: Path, guesses: dict[str, _Guess]) -> Iterator[str]:
    """Yield the lines of the schema."""
    yield f"# Guessed from {source}: check every line. data_prep/TABLES.md describes all keys."
    yield "# To train, name a label: label = COLUMN under a table, with train_until and val_until, or split = COLUMN."
    yield "# A table of rows to predict (an entity, a time and a label) is a [tasks.NAME] instead of a [tables.NAME]."
    for name, guess in guesses.items():
        # Keys and times come first, since they make vertices and edges of rows.
        time = _time(guess)
        yield ""
        yield f"[tables.{_key(name)}]   # {guess.table.rows:,} rows"
        if guess.key:
            yield f"primary_key = {_text(guess.key)}"
        if time:
            yield f"time = {_text(time)}"
        if guess.foreign:
            yield f"[tables.{_key(name)}.foreign_keys]"
        for column, (other, share) in guess.foreign.items():
            yield f"{_key(column)} = {_text(other)}" + f"   # {share:.1%} of its values name a row" * (share < 1)
        yield f"[tables.{_key(name)}.columns]"
        # What is no key may be a feature. Columns without an encoder stay as comments, for the user to decide.
        for field_ in guess.table.schema:
            if field_.name == guess.key or field_.name in guess.foreign:
                continue
            encoder = _encoder(guess.sample.column(field_.name))
            line = f"{_key(field_.name)} = {encoder}"
            yield line if encoder else f"# {_key(field_.name)}: {field_.type}, too many different values for a category"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if name and name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _text(name)


def _summary(guesses: dict[str, _Guess]) -> list[str]:
    """Return a line for each table."""
    found = []
    for name, guess in guesses.items():
        keys = ", ".join(f"{column} -> {other}" for column, (other, _) in guess.foreign.items()) or "none"
        time = _time(guess) or "none"
        found.append(f"{name}: {guess.table.rows:,} rows; key {guess.key or 'none'}; time {time}; foreign keys {keys}")
    return found
