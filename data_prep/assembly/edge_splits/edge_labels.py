"""Labels of edges brought into the form a Graph holds: class numbers, int32, -1 for unlabelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from data_prep.workspace import Workspace
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.errors import DataError

CLASSES, DISTINCT = "classes", "distinct"
"""Meanings of numbers that label edges: classes from 0 on and -1 for unlabelled, or any distinct values in order."""

_MOST_CLASSES = 1 << 20


def with_classes(data: EdgeData, values: str, where: str, workspace: Workspace) -> tuple[EdgeData, list[int] | None]:
    """Replace labels of `data`, whole numbers int64[m] as read, by class numbers in a temporary file.

    values: CLASSES or DISTINCT. Returns the number that stands behind each class too, where they are the distinct ones.
    Raises DataError for numbers that are not classes, or for too many.
    """
    labels = data.labels
    if labels is None:
        return data, None
    known = _distinct(labels, where) if values == DISTINCT else None
    classes = _counted(labels, where) if known is None else len(known)

    path = workspace.path("edge-classes")
    with workspace.written(path) as file:
        for block in row_blocks(labels):
            # Distinct values are ascending, so a search gives the class number.
            numbers = block if known is None else np.searchsorted(known, block)
            file.write(np.ascontiguousarray(numbers, "<i4").data)
    mapped = workspace.map(path, np.dtype("<i4"), (len(labels),))
    return replace(data, labels=mapped, classes=classes), None if known is None else known.tolist()


def _counted(labels: np.ndarray, where: str) -> int:
    """Count the classes that `labels` name."""
    largest, first = -1, 0
    for block in _filled(labels):
        if block.min() < names.UNLABELLED:
            row = int(np.argmax(block < names.UNLABELLED))
            raise DataError(
                f"{where}: the label of an edge is {block[row]}; labels are classes from 0 on, or -1 for unlabelled. "
                "--edge-label-values distinct makes a class of each number that occurs"
            )
        largest, first = max(largest, int(block.max())), first + len(block)
    if largest < 0:
        raise DataError(f"{where}: no edge has a label; name another column, or leave out --edge-labels")
    # A class takes a column of the model's output: ids or times as labels would take all memory.
    if largest >= _MOST_CLASSES:
        raise DataError(
            f"{where}: the label of an edge is {largest:,}, so that there were more than {_MOST_CLASSES:,} classes; "
            "--edge-label-values distinct makes a class of each number that occurs"
        )
    return largest + 1


def _distinct(labels: np.ndarray, where: str) -> np.ndarray:
    """List the numbers that occur, ascending: int64[classes]."""
    known = np.empty(0, np.int64)
    for block in _filled(labels):
        known = np.union1d(known, block)
        if len(known) > _MOST_CLASSES:
            raise DataError(f"{where}: labels of edges have more than {_MOST_CLASSES:,} distinct values")
    return known


def _filled(labels: np.ndarray) -> Iterator[np.ndarray]:
    return (np.asarray(block) for block in row_blocks(labels) if len(block))
