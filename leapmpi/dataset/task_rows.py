"""New rows of a dataset's target table: a file in the format of a part, which stands behind the dataset's own parts.

`leapmpi-prep task-table` writes it and `leapmpi predict --task-table` reads it. Its vertices follow those of the
dataset, in number and in original id, so that nothing of the dataset is renumbered. `task/texts` holds the keys and
times of the rows as the user wrote them: lines of CSV in UTF-8, the names of the columns first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.reader import map_array, opened
from leapmpi.dataset.hdf5.writer import new_file, write_array, write_attributes
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import DataError, counted
from leapmpi.system.atomic_files import remove_abandoned, written_aside

TEXTS = "task/texts"
ROWS, EDGES = "part_vertices", "part_edges"


@dataclass(frozen=True)
class RowTexts:
    """Columns by which a user knows the rows of a task table: their names, and the values of each row as texts."""

    columns: list[str]
    rows: list[list[str]]


def target_at_end(dataset: Dataset) -> GraphTypes:
    """Return the schema of `dataset`. Raises DataError unless its target is the last type, so that rows can follow."""
    types = dataset.types
    if types is None or types.target_number != len(types.vertices) - 1:
        raise DataError(
            f"{dataset.folder} has no target table as its last type; import the tables again with this version"
        )
    return types


def write_task_rows(
    path: Path, dataset: Dataset, arrays: Mapping[str, np.ndarray], texts: RowTexts, *, overwrite: bool
) -> None:
    """Write new target rows to the file `path`, whole or not at all.

    arrays: those of a part by their names in files, without original ids. texts: of the same rows. Raises DataError
    where the file exists and `overwrite` is false.
    """
    types, rows = target_at_end(dataset), len(arrays[names.INDPTR]) - 1
    original = np.arange(rows, dtype=np.int64) + types.bases[-1]
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\n").writerows([texts.columns, *texts.rows])
    text = np.frombuffer(lines.getvalue().encode("utf-8", "surrogatepass"), np.uint8)
    attributes: Attributes = {
        names.GRAPH_UUID: dataset.graph_uuid,
        names.UUID: dataset.uuid,
        "part": dataset.parts,
        ROWS: rows,
        EDGES: len(arrays[names.INDICES]),
    }
    # Written beside its place, and renamed when it is whole.
    remove_abandoned(path)
    with written_aside(path, overwrite=overwrite) as aside, new_file(aside) as file:
        for name, array in {**arrays, names.ORIGINAL_ID: original, TEXTS: text}.items():
            write_array(file, name, array.shape, array.dtype, [array])
        write_attributes(file, names.PART_FORMAT, attributes)


def _check_made_for(dataset: Dataset, path: Path) -> None:
    """Raise DataError for a file that is damaged, or that `leapmpi-prep task-table` did not make for `dataset`."""
    fault = f"{path} was not made for {dataset.folder}"
    try:
        with opened(path, names.PART_FORMAT) as (_, found):
            fits = found.get(names.UUID) == dataset.uuid and found.get("part") == dataset.parts
    except DataError as error:
        # What a reader of other parts advises is not how to make this file.
        fits, fault = False, str(error).partition(";")[0]
    if not fits:
        raise DataError(f"--task-table {fault}; make it by leapmpi-prep task-table {dataset.folder} TABLE ROWS.h5")


def with_task_rows(dataset: Dataset, path: Path) -> tuple[Dataset, RowTexts]:
    """Return `dataset` with the rows of the file `path` as one part more, and the texts of these rows.

    Raises DataError for a file that is missing, damaged, or was made for another dataset.
    """
    types = target_at_end(dataset)
    if not path.is_file():
        raise DataError(f"--task-table {path}: there is no such file; leapmpi-prep task-table makes it of a table")
    _check_made_for(dataset, path)
    with opened(path, names.PART_FORMAT) as (file, found):
        rows, edges = (int(found.get(name, 0)) for name in (ROWS, EDGES))
        stored = map_array(file, TEXTS, ("|u1",), file.array(TEXTS).shape)
        first, *others = csv.reader(io.StringIO(stored.tobytes().decode("utf-8", "surrogatepass"), newline=""))
        if [len(each) for each in others] != [len(first)] * rows:
            raise DataError(
                f"--task-table {path}: {TEXTS} does not hold the texts of {counted(rows, 'row')}; make the file again"
            )
        relation = map_array(file, names.RELATION, ("|u1", "<u2"), (edges,))
        if relation.max(initial=0) >= len(types.relations):
            raise DataError(
                f"--task-table {path}: relation {relation.max()} is not one of {dataset.folder}; make the file again"
            )
        counts = np.bincount(relation, minlength=len(types.relations))
    # The target is the last type, so that its new rows take the ids after all others.
    last = types.vertices[-1]
    grown = replace(types, vertices=(*types.vertices[:-1], replace(last, vertices=last.vertices + rows)))
    assert dataset.type_offsets is not None, "typed datasets say where types begin"
    assert dataset.relation_edges is not None, "typed datasets count the edges of relations"
    n, sections = dataset.vertices, np.full(len(types.vertices) + 1, dataset.vertices)
    sections[-1] = n + rows
    longer = replace(
        dataset,
        attributes={**dataset.attributes, "vertices": n + rows, "edges": dataset.edges + edges},
        offsets=np.append(dataset.offsets, n + rows),
        edge_offsets=np.append(dataset.edge_offsets, dataset.edges + edges),
        vertices=n + rows,
        edges=dataset.edges + edges,
        parts=dataset.parts + 1,
        types=grown,
        type_offsets=np.vstack([dataset.type_offsets, sections]),
        relation_edges=dataset.relation_edges + counts,
        last_part=path,
    )
    return longer, RowTexts(first, others)


def part_of_rows(dataset: Dataset, indptr: np.ndarray, edges: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a part of new target rows that follow from their lists and from `dataset`.

    indptr: int64[k + 1]; edges: sources by number, relations and times of all lists, integers[e] each. The rows are
    unlabelled and in no split.
    """
    rows, (sources, relations, times) = len(indptr) - 1, edges
    first, found = dataset.part(0), {names.INDPTR: indptr}
    found[names.INDICES] = sources.astype(names.index_dtype(dataset.vertices + rows))
    assert first.edge_data.relation is not None, "the dataset is typed"
    found[names.RELATION] = relations.astype(first.edge_data.relation.dtype)
    if first.edge_data.time is not None:
        found[names.EDGE_TIME] = times.astype(first.edge_data.time.dtype)
    if first.labels is not None:
        nothing = np.nan if first.labels.dtype.kind == "f" else names.UNLABELLED
        found[names.LABELS] = np.full((rows, *first.labels.shape[1:]), nothing, first.labels.dtype)
    if first.split is not None:
        found[names.SPLIT] = np.zeros(rows, np.int8)
    return found
