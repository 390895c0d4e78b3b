"""A column of class names or numbers made into class numbers."""

from __future__ import annotations

import numpy as np

from data_prep.formats.columns import TableColumns
from leapmpi.errors import DataError

_UNLABELLED = ("", "-1", "nan", "none", "null")


def class_numbers(table: TableColumns, name: str) -> tuple[np.ndarray, list[str] | None]:
    """Labels of the rows of `table` from its column `name`, and the names of the classes if it holds texts.

    Whole numbers are taken as they are; texts are numbered in their alphabetical order. Empty is -1, unlabelled.
    Raises DataError when no row has a label.
    """
    column = table.columns[name]
    if isinstance(column, np.ndarray):
        return column, None
    texts = [text.strip() for text in column]
    given = {text for text in texts if text.lower() not in _UNLABELLED}
    if not given:
        raise DataError(f"{table.path}: no row has a label in column {name!r}")
    numeric = all(text.isascii() and text.isdigit() and len(text) <= 18 for text in given)
    numbers = {text: int(text) for text in given} if numeric else {text: at for at, text in enumerate(sorted(given))}
    labels = np.fromiter((numbers.get(text, -1) for text in texts), np.int64, len(texts))
    return labels, None if numeric else sorted(given)
