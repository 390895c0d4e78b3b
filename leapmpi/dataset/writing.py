"""Writing a partitioned dataset: renumber the vertices part by part, stream their data into one file per part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leapmpi.compiled import compiled
from leapmpi.dataset import format as names
from leapmpi.dataset.graph import Graph, content_uuid, counts, stored_dtype
from leapmpi.dataset.storage import Attributes, new_file, row_blocks, row_ranges, write_array, write_attributes
from leapmpi.errors import DataError
from leapmpi.files import written_aside


@compiled
def _renumbered_lists(indptr, indices, rows, new_of, out):
    """Write the in-neighbours of the vertices `rows`, in their order and renumbered by `new_of`, to `out`."""
    position = 0
    for v in rows:
        for e in range(indptr[v], indptr[v + 1]):
            out[position] = new_of[indices[e]]
            position += 1


@dataclass(frozen=True)
class _Renumbering:
    """old_of: int64[n], the vertex of the graph that gets each new number; new_of: its inverse; offsets: int64[P+1]."""

    old_of: np.ndarray
    new_of: np.ndarray
    offsets: np.ndarray


def _renumber(assignment: np.ndarray, parts: int) -> _Renumbering:
    n = len(assignment)
    sizes = np.bincount(assignment, minlength=parts)
    # A stable sort keeps the vertices of a part in the order of the graph, which is that of original ids.
    old_of = np.argsort(assignment, kind="stable")
    new_of = np.empty(n, names.index_dtype(n))
    new_of[old_of] = np.arange(n)
    return _Renumbering(old_of, new_of, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def _check_assignment(assignment: np.ndarray, graph: Graph, parts: int) -> None:
    if parts < 1 or assignment.shape != (graph.vertices,):
        raise DataError(f"cannot cut {graph.vertices} vertices into {parts} parts by {assignment.shape} part numbers")
    if assignment.min() < 0 or assignment.max() >= parts:
        row = int(np.argmax((assignment < 0) | (assignment >= parts)))
        raise DataError(f"vertex {row} was assigned to part {assignment[row]}, but parts are 0..{parts - 1}")
    if len(empty := np.flatnonzero(np.bincount(assignment, minlength=parts) == 0)):
        raise DataError(f"part {empty[0]} has no vertices; use fewer parts or another method")


def dataset_uuid(graph_uuid: str, offsets: np.ndarray, original_id: np.ndarray) -> str:
    """The identity of a partitioned dataset: of its graph, its offsets and the original ids in the new order."""
    state = hashlib.blake2b(graph_uuid.encode(), digest_size=names.DIGEST_BYTES)
    state.update(np.ascontiguousarray(offsets, "<i8"))
    for block in row_blocks(original_id):
        state.update(np.ascontiguousarray(block, "<i8"))
    return state.hexdigest()


def write_dataset(
    folder: Path | str,
    graph: Graph,
    assignment: np.ndarray,
    parts: int,
    *,
    method: str,
    figures: Attributes,
    seed: int,
    overwrite: bool = False,
    command: str = "",
) -> None:
    """Write `graph`, cut as `assignment` (int[n] -> part) says, as a dataset in `folder`, whole or not at all.

    The graph must be valid (see validate). `figures`: what is known of the cut (edge_cut, balance). Features go from
    the graph to the files in blocks of rows, so a mapped graph may be larger than memory.

    Raises DataError when a part would be empty or `folder` may not be used; ResourceError when the disk is full.
    """
    folder = Path(folder).absolute()
    _check_assignment(assignment, graph, parts)
    replace = check_folder(folder, overwrite)
    order = _renumber(assignment, parts)
    graph_uuid = graph.uuid or content_uuid(graph)
    common = {
        **counts(graph),
        names.GRAPH_UUID: graph_uuid,
        names.UUID: dataset_uuid(graph_uuid, order.offsets, graph.original_id[order.old_of]),
        "parts": parts,
    }
    with written_aside(folder, overwrite=replace) as aside:
        aside.mkdir()
        edges = [_write_part(aside, graph, order, part, common) for part in range(parts)]
        edge_offsets = np.concatenate([[0], np.cumsum(edges)]).astype(np.int64)
        own = {f"graph_{k}" if k == names.COMMAND else k: v for k, v in graph.attributes.items()}
        root = {names.SOURCE: "", **own, **figures, "method": method, "seed": seed, names.COMMAND: command, **common}
        _write_root(aside, graph, order, edge_offsets, root)


def check_folder(folder: Path, overwrite: bool) -> bool:
    """Whether what stands at `folder` would be replaced by a dataset. Only datasets and empty folders ever are.

    Raises DataError when `folder` may not be used: before minutes of work, rather than after.
    """
    folder = folder.absolute()
    if not folder.parent.is_dir():
        raise DataError(f"{folder}: its folder {folder.parent} does not exist; make it first")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; a dataset is a folder, choose another name")
    content = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    if content and not overwrite:
        raise DataError(f"{folder} exists already; choose another name, or pass --overwrite to replace it")
    for name in content:
        if name != names.DATASET_FILE and not (name.startswith("part-") and name.endswith(".h5")):
            raise DataError(f"{folder} also holds {name}, which is no part of a dataset; choose another folder")
    return folder.is_dir()


def _write_part(aside: Path, graph: Graph, order: _Renumbering, part: int, common: Attributes) -> int:
    """Write the file of one part; returns how many in-edges it holds."""
    rows = order.old_of[order.offsets[part] : order.offsets[part + 1]]
    degrees = graph.indptr[rows + 1] - graph.indptr[rows]
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges, n = int(indptr[-1]), len(rows)
    with new_file(aside / names.part_file_name(part)) as file:
        write_array(file, names.INDPTR, (n + 1,), "<i8", [indptr])
        write_array(
            file, names.INDICES, (edges,), names.index_dtype(graph.vertices), _lists(graph, order, rows, indptr)
        )
        write_array(file, names.ORIGINAL_ID, (n,), "<i8", [graph.original_id[rows]])
        for name, array in ((names.SPLIT, graph.split), (names.LABELS, graph.labels), (names.FEATURES, graph.features)):
            if array is not None:
                write_array(file, name, (n, *array.shape[1:]), stored_dtype(array), _gathered(array, rows))
        write_attributes(file, names.PART_FORMAT, {**common, "part": part, "part_vertices": n, "part_edges": edges})
    return edges


def _lists(graph: Graph, order: _Renumbering, rows: np.ndarray, indptr: np.ndarray) -> Iterator[np.ndarray]:
    arrays = (np.asarray(graph.indptr), np.asarray(graph.indices))
    for start, stop in row_ranges(len(rows), 8 * (int(indptr[-1]) // max(1, len(rows)) + 1)):
        out = np.empty(indptr[stop] - indptr[start], order.new_of.dtype)
        _renumbered_lists(*arrays, rows[start:stop], order.new_of, out)
        yield out


def _gathered(array: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start, stop in row_ranges(len(rows), array.nbytes // max(1, len(array))):
        yield array[rows[start:stop]]


def _write_root(aside: Path, graph: Graph, order: _Renumbering, edge_offsets: np.ndarray, root: Attributes) -> None:
    with new_file(aside / names.DATASET_FILE) as file:
        write_array(file, names.OFFSETS, order.offsets.shape, "<i8", [order.offsets])
        write_array(file, names.EDGE_OFFSETS, edge_offsets.shape, "<i8", [edge_offsets])
        for code, name in names.SPLIT_NAMES.items():
            members = np.flatnonzero(graph.split == code) if graph.split is not None else np.empty(0, np.int64)
            write_array(file, f"{names.SPLITS}/{name}", members.shape, "<i8", [order.new_of[members]])
            root[name] = len(members)
        write_attributes(file, names.DATASET_FORMAT, root)
