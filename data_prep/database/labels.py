"""Labels of the rows of the target table, and their splits by time or by a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute, types

from data_prep.database.column_values import NEVER, is_list, is_text, numbers_in, plain, texts_in, words_in
from data_prep.database.table_rows import TableRows
from data_prep.database.table_schema import LabelColumns
from data_prep.edges.edge_records import whole_values
from data_prep.edges.raw_graph import SPLIT_NAMES
from data_prep.workspace import Workspace
from leapmpi.dataset.hdf5.names import MULTI_CLASS, MULTI_LABEL, REGRESSION
from leapmpi.errors import DataError

_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def labels_of(
    rows: TableRows, known: Sequence[str] | None, workspace: Workspace
) -> tuple[np.ndarray, list[str] | None]:
    """Return the labels of a table, and the names of the classes where they are texts.

    Classes are int64[rows], -1 without one; targets float64[rows, k], NaN without one; several labels float32[rows, C].
    known: names of the classes of a dataset that these follow. Raises DataError for a value that is not a label.
    """
    label = rows.schema.label
    assert label is not None
    kinds = [plain_type(rows, column) for column in label.columns]
    texts = is_text(kinds[0]) or types.is_boolean(kinds[0])
    several = is_list(kinds[0]) or label.separator is not None or label.kind == MULTI_LABEL
    if len(label.columns) == 1 and several and (texts or is_list(kinds[0])):
        return _several(rows, label, known, workspace)
    if len(label.columns) == 1 and texts and label.kind != REGRESSION:
        return _classes(rows, label.columns[0], known, workspace)
    return _numbers(rows, label, workspace), None


def plain_type(rows: TableRows, column: str) -> pyarrow.DataType:
    """Return the type of the values of a column."""
    kind = rows.table.schema.field(column).type
    return kind.value_type if types.is_dictionary(kind) else kind


def _names(rows: TableRows, label: str, separator: str | None, known: Sequence[str] | None) -> list[str]:
    """Return the names of the classes in alphabetical order, or those that are `known`."""
    if known is not None:
        return list(known)
    found: set[str] = set()
    for _, columns in rows.batches([label]):
        _, words = words_in(texts_in(columns[label], separator))
        found.update(compute.unique(words).to_pylist())
    return sorted(found)


def _classes(
    rows: TableRows, column: str, known: Sequence[str] | None, workspace: Workspace
) -> tuple[np.ndarray, list[str]]:
    classes = _names(rows, column, None, known)
    out = workspace.array("labels", (rows.rows,), np.int64)
    held = pyarrow.array(classes, pyarrow.large_string())
    for place, columns in rows.batches([column]):
        texts = texts_in(columns[column])
        codes = compute.fill_null(compute.index_in(texts, held), -1).to_numpy(zero_copy_only=False)
        # A row without a text is unlabelled, which is no fault.
        strange = (codes < 0) & texts.is_valid().to_numpy(zero_copy_only=False)
        if strange.any():
            row = int(np.argmax(strange))
            raise DataError(
                f"{rows.name_of(column)}, row {place.start + row} (counted from 0): {texts[row].as_py()[:40]!r} is no "
                f"class of the dataset whose encoders are used ({', '.join(classes[:8])})"
            )
        out[place] = codes
    return out, classes


def _several(
    rows: TableRows, label: LabelColumns, known: Sequence[str] | None, workspace: Workspace
) -> tuple[np.ndarray, list[str]]:
    column = label.columns[0]
    classes = _names(rows, column, label.separator, known)
    out = workspace.array("labels", (rows.rows, max(1, len(classes))), np.float32)
    held = pyarrow.array(classes, pyarrow.large_string())
    for place, columns in rows.batches([column]):
        texts = texts_in(columns[column], label.separator)
        found, words = words_in(texts)
        some = np.zeros((len(texts), out.shape[1]), np.float32)
        codes = compute.fill_null(compute.index_in(words, held), -1).to_numpy(zero_copy_only=False)
        some[found[codes >= 0], codes[codes >= 0]] = 1
        some[texts.is_null().to_numpy(zero_copy_only=False)] = np.nan
        out[place] = some
    return out, classes


def _numbers(rows: TableRows, label: LabelColumns, workspace: Workspace) -> np.ndarray:
    """Return classes int64[rows] where all numbers are whole, unless the kind is regression, else float64[rows, k]."""
    out = workspace.array("targets", (rows.rows, len(label.columns)), np.float64)
    for place, columns in rows.batches(label.columns):
        for number, column in enumerate(label.columns):
            out[place, number] = numbers_in(plain(columns[column]), rows.name_of(column))
    if label.kind in (REGRESSION, MULTI_LABEL) or len(label.columns) > 1:
        return out
    known = ~np.isnan(out[:, 0])
    if label.kind != MULTI_CLASS and not (out[known, 0] == np.floor(out[known, 0])).all():
        return out
    place = f"{rows.name_of(label.columns[0])}, row"
    return whole_values(
        np.where(known, out[:, 0], -1),
        lambda row: f"{place} {row} (counted from 0): the class",
        "classes are whole numbers from 0 on",
    )


def splits_of(
    rows: TableRows, labelled: np.ndarray, *, trains: bool
) -> tuple[dict[str, np.ndarray] | None, int | None]:
    """Return the splits of the labelled rows as masks bool[rows], and the end of the training period, None without.

    The end is train_until, or one second after the last training row. Rows without a time are in no split. There
    are no splits where no row trains and none has to (`trains` is false). Raises DataError for an unknown word.
    """
    label = rows.schema.label
    assert label is not None
    if label.train_until is not None:
        assert rows.times is not None
        usable = labelled & (rows.times != NEVER)
        # Four ends make three periods; that of validation is empty without val_until.
        ends: list[int] = [np.iinfo(np.int64).min, label.train_until]
        ends += [label.train_until if label.val_until is None else label.val_until, NEVER]
        masks = {
            name: usable & (rows.times >= ends[number]) & (rows.times < ends[number + 1])
            for number, name in enumerate(SPLIT_NAMES)
        }
        if not masks["train"].any():
            if not trains:
                return None, label.train_until
            raise DataError(f"{rows.schema.where}: no labelled row is earlier than train_until")
        return {name: mask for name, mask in masks.items() if mask.any()}, label.train_until
    if label.split is None:
        return None, None
    masks = _by_column(rows, label.split, labelled)
    if "train" not in masks:
        return (masks or None) if trains else None, None
    if rows.times is None:
        return masks, None
    # Encoders are fitted on rows before this time, so that they see no later one.
    times = rows.times[masks["train"]]
    known = times[times != NEVER]
    return masks, int(known.max()) + 1 if len(known) else None


def _by_column(rows: TableRows, column: str, labelled: np.ndarray) -> dict[str, np.ndarray]:
    masks: dict[str, Any] = {name: np.zeros(rows.rows, bool) for name in SPLIT_NAMES}
    for place, columns in rows.batches([column]):
        words = compute.fill_null(compute.utf8_lower(compute.utf8_trim_whitespace(texts_in(columns[column]))), "")
        for word in compute.unique(words).to_pylist():
            if word and word not in _WORDS:
                raise DataError(f"{rows.name_of(column)}: split {word[:40]!r} is none of train, val, test and empty")
            if word:
                masks[_WORDS[word]][place] |= compute.equal(words, word).to_numpy(zero_copy_only=False)
    return {name: mask & labelled for name, mask in masks.items() if (mask & labelled).any()}
