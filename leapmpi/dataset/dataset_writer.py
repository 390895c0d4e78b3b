"""Writer of partitioned datasets: vertices are renumbered part by part; each part has a file."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import numpy as np

from leapmpi.dataset import column_encoders as encoder_files
from leapmpi.dataset.graph import Graph, content_uuid, counts, split_sizes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.row_blocks import BLOCK_BYTES, row_blocks, row_ranges
from leapmpi.dataset.hdf5.writer import NewFile, new_file, write_array, write_attributes
from leapmpi.dataset.names_of_vertices import FILE, OF_DATASET
from leapmpi.dataset.part_writer import PartWriter, Renumbering, renumber, type_offsets
from leapmpi.dataset.partitioned import column_bounds
from leapmpi.errors import DataError, counted
from leapmpi.system.atomic_files import remove_abandoned, written_aside

_COPIES = {
    FILE: OF_DATASET,
    encoder_files.FILE: encoder_files.OF_DATASET,
    encoder_files.KEYS: encoder_files.KEYS_OF_DATASET,
}
"""Names in a dataset of the files beside a graph file, by the attributes that name these."""

_NOTHING: Mapping[str, Path | None] = MappingProxyType({})

_FILES_AT_ONCE = 256
"""Most open files; the graph is read once per group of so many parts."""


def _check_assignment(assignment: np.ndarray, graph: Graph, parts: int) -> None:
    if parts < 1 or assignment.shape != (graph.vertices,):
        raise DataError(
            f"cannot cut {counted(graph.vertices, 'vertex')} into {counted(parts, 'part')} by {assignment.shape} part "
            "numbers"
        )
    if assignment.min() < 0 or assignment.max() >= parts:
        row = int(np.argmax((assignment < 0) | (assignment >= parts)))
        raise DataError(f"vertex {row} was assigned to part {assignment[row]}, but parts are 0..{parts - 1}")


def _check_columns(graph: Graph) -> None:
    """Raise DataError where the features of `graph` cannot be written by columns."""
    if graph.typed is not None:
        raise DataError("the features of a typed graph are not written by columns; leave out --layout columns")
    if graph.features is None:
        raise DataError("the graph has no features that could be written by columns; leave out --layout columns")
    if graph.sparse:
        raise DataError("sparse features are not written by columns: p3 reads its own from rows; leave out --layout")


def dataset_uuid(graph_uuid: str, offsets: np.ndarray, original_ids: Iterable[np.ndarray]) -> str:
    """Return the identity of a partitioned dataset: a hash of its graph, its offsets and the ordered original ids."""
    state = hashlib.blake2b(graph_uuid.encode(), digest_size=names.DIGEST_BYTES)
    state.update(np.ascontiguousarray(offsets, "<i8"))
    for block in original_ids:
        state.update(np.ascontiguousarray(block, "<i8"))
    return state.hexdigest()


def _in_new_order(original_id: np.ndarray, order: Renumbering) -> Iterator[np.ndarray]:
    """Yield the original ids in the order of the new numbers, in blocks."""
    ordered = np.empty(len(original_id), np.int64)
    for start, stop in row_ranges(len(original_id), 16):
        ordered[order.new_of[start:stop]] = original_id[start:stop]
    return row_blocks(ordered)


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
    columns: bool = False,
    communities: np.ndarray | None = None,
    beside: Mapping[str, Path | None] = _NOTHING,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int], object] | None = None,
    made: Iterable[Path] = (),
) -> None:
    """Write `graph`, cut by `assignment` (int[n], part numbers), to `folder`, which appears only when complete.

    The graph must be valid (validation.py). It is read in blocks of `block_bytes`; a mapped one may exceed memory, of
    which this takes 16 bytes per vertex. figures: attributes of the partition (edge_cut, balance). columns: also write
    features by columns, which reads them once more for each part. communities: all vertices (integers[n]), in their
    order within parts; None: that of the graph. beside: files to copy, by the attributes that name them.
    progress: called with the number of finished vertices. made: the files of all parts, if `write_part_files` has made
    them on the same file system.

    Raises DataError if a part would be empty or `folder` may not be used; ResourceError if the disk is full.
    """
    # Refuse bad input before anything is written.
    folder = Path(folder).absolute()
    check_folder(folder, overwrite)
    order, common = _renumbered(graph, assignment, parts, columns, communities)

    # The folder appears under its name when all files are complete.
    remove_abandoned(folder)
    with written_aside(folder, overwrite=overwrite, into_empty=True) as aside:
        aside.mkdir()
        _write_files(aside, graph, order, [] if made else range(parts), common, block_bytes, progress)
        for file in made:
            os.link(file, aside / file.name)
        root = {names.SOURCE: "", **_copied(graph, aside, beside), **figures, names.COMMAND: command}
        _write_root(aside, graph, order, {**root, "method": method, "seed": seed, **common})


def write_part_files(
    folder: Path,
    graph: Graph,
    assignment: np.ndarray,
    parts: int,
    chosen: Sequence[int],
    *,
    columns: bool = False,
    communities: np.ndarray | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int], object] | None = None,
) -> list[Path]:
    """Write the files of the consecutive parts `chosen` to the existing `folder`; return their paths.

    Other arguments are those of `write_dataset`, which makes a dataset of the files of all parts.
    """
    order, common = _renumbered(graph, assignment, parts, columns, communities)
    _write_files(folder, graph, order, chosen, common, block_bytes, progress)
    return [folder / names.part_file_name(part) for part in chosen]


def _renumbered(
    graph: Graph, assignment: np.ndarray, parts: int, columns: bool, communities: np.ndarray | None
) -> tuple[Renumbering, Attributes]:
    """Return the new numbers of the vertices, and the attributes of dataset.h5 and of all parts."""
    _check_assignment(assignment, graph, parts)
    if columns:
        _check_columns(graph)
    if communities is not None and graph.typed is not None:
        # Vertices of a part are sorted by type, and by community within a type.
        communities = communities[np.argsort(graph.typed.types_of(communities), kind="stable")]
    order = renumber(graph, assignment, parts, communities)
    if len(empty := np.flatnonzero(np.diff(order.offsets) == 0)):
        raise DataError(f"part {empty[0]} has no vertices; use fewer parts or another method")
    graph_uuid = graph.uuid or content_uuid(graph)
    common = {
        **counts(graph),
        names.GRAPH_UUID: graph_uuid,
        names.UUID: dataset_uuid(graph_uuid, order.offsets, _in_new_order(graph.original_id, order)),
        "parts": parts,
    }
    common |= {names.HAS_COLUMNS: True} if columns else {}
    common |= {names.VERTEX_ORDER: names.COMMUNITIES} if communities is not None else {}
    return order, common


def _copied(graph: Graph, aside: Path, beside: Mapping[str, Path | None]) -> Attributes:
    """Copy the files `beside` a graph to `aside`; return the attributes of the graph, which name the copies.

    beside: the attribute that names each file, and the file, if any.
    """
    found = {f"graph_{k}" if k == names.COMMAND else k: v for k, v in graph.attributes.items() if k not in _COPIES}
    for attribute, file in beside.items():
        if file is not None:
            shutil.copyfile(file, aside / _COPIES[attribute])
            found[attribute] = _COPIES[attribute]
    return found


def check_folder(folder: Path, overwrite: bool) -> None:
    """Check that `folder` may become a dataset. Only datasets and empty folders are replaced.

    Raises DataError. Callers check it before minutes of work.
    """
    # The place.
    folder = folder.absolute()
    if not folder.parent.is_dir():
        raise DataError(f"{folder}: its folder {folder.parent} does not exist; make it first")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; a dataset is a folder, choose another name")

    # What it holds.
    content = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    if content and not overwrite:
        raise DataError(f"{folder} exists already; choose another name, or pass --overwrite to replace it")
    for name in content:
        if name not in (names.DATASET_FILE, *_COPIES.values()) and not (
            name.startswith("part-") and name.endswith(".h5")
        ):
            raise DataError(f"{folder} also holds {name}, which is not a part of a dataset; choose another folder")


def _write_files(
    aside: Path,
    graph: Graph,
    order: Renumbering,
    chosen: Sequence[int],
    common: Attributes,
    block_bytes: int,
    progress: Callable[[int], object] | None,
) -> None:
    """Write the files of the consecutive parts `chosen`, as many at a time as may be open."""
    # One pass over the graph writes a group of parts: files open at once are limited, and the graph may be on disk.
    for first in range(0, len(chosen), _FILES_AT_ONCE):
        group = chosen[first : first + _FILES_AT_ONCE]
        with ExitStack() as opened:
            files = [opened.enter_context(new_file(aside / names.part_file_name(part))) for part in group]
            PartWriter(graph, order, group[0], files, block_bytes).write(progress)
            for part, file in zip(group, files, strict=True):
                _finish_part(file, graph, order, part, common)


def _finish_part(file: NewFile, graph: Graph, order: Renumbering, part: int, common: Attributes) -> None:
    """Write the feature columns of `part`, if the dataset has some, and its attributes."""
    if names.HAS_COLUMNS in common:
        assert isinstance(graph.features, np.ndarray), "`_renumbered` has seen to it"
        _write_columns(file, graph.features, order, part)
    rows, edges = int(order.offsets[part + 1] - order.offsets[part]), int(order.edges[part])
    write_attributes(file, names.PART_FORMAT, {**common, "part": part, "part_vertices": rows, "part_edges": edges})


def _write_columns(file: NewFile, features: np.ndarray, order: Renumbering, part: int) -> None:
    """Write the columns of `features` [n, F] that `part` holds, of all vertices in their new order."""
    first, end = column_bounds(features.shape[1], len(order.edges))[part : part + 2].tolist()

    # The vertex of the graph that gets each new number.
    old_of = np.empty_like(order.new_of)
    old_of[order.new_of] = np.arange(len(old_of), dtype=old_of.dtype)

    # Gathers read whole rows, so the size of a block counts all columns.
    ranges = row_ranges(len(features), features.dtype.itemsize * features.shape[1])
    blocks = (np.asarray(features[old_of[start:stop], first:end]) for start, stop in ranges)
    write_array(file, names.COLUMNS, (len(features), end - first), features.dtype, blocks)


def _write_root(aside: Path, graph: Graph, order: Renumbering, root: Attributes) -> None:
    """Write dataset.h5 with the attributes `root` and the sizes of the splits."""
    sizes = split_sizes(graph.split)
    edge_offsets = np.concatenate([[0], np.cumsum(order.edges)]).astype(np.int64)
    with new_file(aside / names.DATASET_FILE) as file:
        write_array(file, names.OFFSETS, order.offsets.shape, "<i8", [order.offsets])
        write_array(file, names.EDGE_OFFSETS, edge_offsets.shape, "<i8", [edge_offsets])
        if graph.typed is not None:
            of_types = {
                names.SCHEMA: graph.typed.types.as_bytes(),
                names.TYPE_OFFSETS: type_offsets(graph, order),
                names.RELATION_EDGES: graph.relation_edges(),
            }
            for name, array in of_types.items():
                write_array(file, name, array.shape, array.dtype, [array])
        # Splits name vertices by their new numbers, in order of original ids.
        for code, name in names.SPLIT_NAMES.items():
            size = root[name] = int(sizes[code])
            write_array(file, f"{names.SPLITS}/{name}", (size,), "<i8", _members(graph.split, code, order))
        if graph.edge_splits:
            for name, edges in graph.edge_splits.pairs().items():
                blocks = (order.new_of[np.asarray(block)].astype(np.int64) for block in row_blocks(edges))
                write_array(file, name, edges.shape, "<i8", blocks)
            for name, array in graph.edge_splits.carried_arrays().items():
                write_array(file, name, array.shape, array.dtype, row_blocks(array))
        # Attributes last: sizes of the splits are known by now, and their digest covers all of them.
        write_attributes(file, names.DATASET_FORMAT, root)


def _members(split: np.ndarray | None, code: int, order: Renumbering) -> Iterator[np.ndarray]:
    """Yield the new numbers of the vertices with the split `code`, in their old order, in blocks."""
    if split is None:
        return
    for start, stop in row_ranges(len(split), 16):
        yield order.new_of[start:stop][split[start:stop] == code]
