"""Words beside numbers in files of predictions: names of vertices, and of classes."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.column_encoders import CLASSES, read_encoders
from leapmpi.dataset.column_encoders import FILE as ENCODERS
from leapmpi.dataset.hdf5.names import DATASET_FILE
from leapmpi.dataset.names_of_vertices import VertexNames, missing_names, open_names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.task_rows import RowTexts


@dataclass(frozen=True)
class Words:
    """Names of vertices by original id, of classes by number, and of columns of a table; None where there are none."""

    vertices: VertexNames | None = None
    classes: list[str] | None = None
    column: str = "value"
    """The name of the only column, or what names of several columns begin with."""
    first: int = 0
    """The original id of the vertex that is called 0, where ids count within a type."""
    texts: RowTexts | None = None
    """Keys and times of new rows of a task table, which are numbered from 0."""

    @property
    def key_columns(self) -> list[str]:
        """Names of the columns that say which vertex a row is about."""
        return ["vertex"] if self.texts is None else self.texts.columns

    def keys_of(self, ids: np.ndarray) -> list[list[str]]:
        """Return the texts of these columns for the original ids, or numbers of new rows, `ids` (int64[k])."""
        if self.texts is None:
            return [[name] for name in self.of_vertices(ids)]
        return [self.texts.rows[each] for each in ids.tolist()]

    def of_vertices(self, ids: np.ndarray) -> list[str]:
        """Return the names of the original ids `ids` (int64[k]), which are their numbers where they have no others."""
        return (
            list(map(str, ids.tolist()))
            if self.vertices is None
            else self.vertices.of(np.where(ids < 0, -1, ids + self.first))
        )

    def of_columns(self, count: int) -> list[str]:
        """Return the names of `count` columns: those of the classes, where these are the columns, else numbered."""
        if self.column == "class" or count == 0:
            return [self.column]
        if self.classes is not None and len(self.classes) == count and self.column in ("logit", "label"):
            return [f"{self.column}_{name}" for name in self.classes]
        return [f"{self.column}_{number}" for number in range(count)]

    def of_classes(self, numbers: np.ndarray) -> np.ndarray:
        """Return the names of the classes `numbers` (integers) in their shape; an unknown one stays a number."""
        names = self.classes or []
        found = [names[each] if 0 <= each < len(names) else str(each) for each in numbers.reshape(-1).tolist()]
        return np.array(found, object).reshape(numbers.shape)


def vertex_names(dataset: Dataset, check: bool) -> tuple[VertexNames | None, list[str]]:
    """Open the names of the vertices of `dataset`; None without, and with a note where their file was left behind.

    Raises DataError where the file, which `check` reads as a whole, holds other names.
    """
    file = dataset.folder / DATASET_FILE
    if missing := missing_names(file, dataset.attributes):
        return None, [f"{missing}; vertices are numbers, their original ids, in what is read and written"]
    return open_names(file, dataset.attributes, check), []


def class_names(dataset: Dataset, of_edges: bool = False) -> list[str] | None:
    """Return the names of the classes of vertices, or of edges, as the source had them; None without.

    Raises DataError where the file of a dataset of tables that holds them is missing.
    """
    found = dataset.attributes.get("edge_class_names" if of_edges else "class_names")
    if found or of_edges or ENCODERS not in dataset.attributes:
        return list(map(str, json.loads(str(found)))) if found else None
    # Attributes hold no long lists of names, but tables keep theirs beside the encoders.
    return read_encoders(dataset.folder / DATASET_FILE, dataset.attributes).get(CLASSES)
