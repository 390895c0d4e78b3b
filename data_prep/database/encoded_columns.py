"""Columns of a table as features: statistics of the training period first, then every row encoded by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from data_prep.database.column_values import texts_in
from data_prep.database.encoder import ENCODERS, State, settled
from data_prep.database.table_rows import TableRows
from data_prep.database.table_schema import EncodedColumn
from data_prep.workspace import Workspace
from leapmpi.errors import DataError

LEARNED = "learned"
"""The encoder that makes each category a vertex, whose row is learned and stays with its owner."""

_MOST_CATEGORIES = 1 << 20


class _Categories:
    """Categories of the training period; each becomes a vertex."""

    def __init__(self, name: str) -> None:
        self._counts: Counter[str] = Counter()
        self._name = name

    def take(self, column: pyarrow.Array) -> None:
        for each in compute.unique(texts_in(column).drop_null()).to_pylist():
            self._counts[each] += 1
        if len(self._counts) > _MOST_CATEGORIES:
            raise DataError(f"{self._name} has more than {_MOST_CATEGORIES:,} categories; encode it as hashed")

    def state(self) -> State:
        return {"categories": sorted(self._counts)}


def fitted(rows: TableRows, until: int | None, training: np.ndarray | None) -> dict[str, State]:
    """Return the states of the encoders of a table by column, from the rows of the training period alone.

    until: rows of this time and later are left out, and so are rows without a time where the table has times; None:
    none. training: bool[rows], the rows that train, where the table is the target; else None. Tables without times
    count whole.
    """
    found: dict[str, Any] = {}
    for each in rows.schema.columns:
        name = rows.name_of(each.column)
        if each.encoder == LEARNED:
            found[each.column] = _Categories(name)
            continue
        member = ENCODERS.load(each.encoder)
        found[each.column] = member.statistics(settled(member, each.options, name), name)
    for place, columns in rows.batches(list(found)):
        # What is known only after the training period must not shape an encoder.
        chosen = None if training is None else training[place]
        if chosen is None and until is not None and rows.times is not None:
            chosen = rows.times[place] < until
        mask = None if chosen is None or chosen.all() else pyarrow.array(chosen)
        for column, statistics in found.items():
            statistics.take(columns[column] if mask is None else columns[column].filter(mask))
    kinds = {each.column: each.encoder for each in rows.schema.columns}
    return {column: {"encoder": kinds[column], **statistics.state()} for column, statistics in found.items()}


def encoded(rows: TableRows, states: Mapping[str, State], workspace: Workspace) -> np.ndarray:
    """Encode the columns of a table in the order of the schema: float32[rows, F]; a column of ones where none is.

    Raises DataError naming the row of a number that float32 does not hold.
    """
    columns = [each for each in rows.schema.columns if each.encoder != LEARNED]
    members = {each.column: ENCODERS.load(each.encoder) for each in columns}
    widths = [members[each.column].width(states[each.column]) for each in columns]
    ends = np.cumsum([0, *widths]).tolist()
    out = workspace.array("features", (rows.rows, max(1, ends[-1])), np.float32)
    if not columns:
        out[:] = 1
        return out
    for place, found in rows.batches([each.column for each in columns]):
        for each, low, high in zip(columns, ends, ends[1:], strict=False):
            state, name = states[each.column], rows.name_of(each.column)
            some = members[each.column].encode(state, found[each.column], name)
            if not (finite := np.isfinite(some).all(axis=1)).all():
                row = place.start + int(np.argmin(finite))
                raise DataError(f"{name}, row {row} (counted from 0): a number is infinite, or too large for float32")
            out[place, low:high] = some
    return out


def category_rows(rows: TableRows, each: EncodedColumn, state: State, workspace: Workspace) -> np.ndarray:
    """Return the category of each row, int32[rows]: 0 for those that training did not have, -1 for a missing one."""
    out = workspace.array("categories", (rows.rows,), np.int32)
    known = pyarrow.array(state["categories"], pyarrow.large_string())
    for place, columns in rows.batches([each.column]):
        texts = texts_in(columns[each.column])
        codes = compute.add(compute.fill_null(compute.index_in(texts, known), -1), 1)
        out[place] = compute.if_else(texts.is_valid(), codes, -1).to_numpy(zero_copy_only=False)
    return out
