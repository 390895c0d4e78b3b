"""Verification of graph files and datasets: every value, order, count and digest, and the identity of the content.

Values are checked before digests: a wrong value can be reported by row, a wrong digest cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.content_hash import uuid_of
from leapmpi.dataset.dataset_writer import dataset_uuid
from leapmpi.dataset.edge_splits import check_apart, check_edge_splits
from leapmpi.dataset.graph import Graph, whole_lanes
from leapmpi.dataset.graph_file import check_entries, label_kind, open_graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.digests import Digests, check_digest
from leapmpi.dataset.hdf5.reader import reading
from leapmpi.dataset.hdf5.row_blocks import row_blocks, row_ranges
from leapmpi.dataset.held_back_triples import check_triples, check_triples_apart
from leapmpi.dataset.partitioned import Dataset, Part, column_bounds
from leapmpi.dataset.scan import Sink, is_natural, is_scanned, scan
from leapmpi.dataset.validation import (
    check_ascending,
    check_bounds,
    check_distinct,
    check_outline,
    check_scale,
    check_typed,
    check_vertex_data,
)
from leapmpi.errors import DataError, counted


def verify_graph(
    path: Path | str, progress: Callable[[int], object] | None = None, graph: Graph | None = None
) -> Graph:
    """Verify all of the graph file `path`; return the graph.

    progress: called with the number of finished vertices. graph: result of `open_graph`, if it is open. Raises
    DataError naming file, array, row and value of the first fault.
    """
    path = Path(path)
    graph = graph or open_graph(path)
    compare_content(path, graph, [verify_share(path, graph, progress=progress)])
    return graph


def verify_share(
    path: Path, graph: Graph, index: int = 0, count: int = 1, progress: Callable[[int], object] | None = None
) -> list[int]:
    """Verify share `index` of `count` of the graph file `path`; return the two sums of its content's hashes.

    These are for `compare_content`. A share is a range of vertices, of about as many bytes, and the digests of some
    arrays: that of an array is a chain over its bytes. `progress` and errors are as in `verify_graph`.
    """
    with reading(path):
        check_outline(graph, str(path))
        scan_graph = partial(_scan_graph, path, graph, progress=progress)
        # Values are checked and hashed in one pass: files may be larger than memory.
        if count == 1:
            lanes = _verify_arrays(path, names.GRAPH_FORMAT, graph.file_arrays(), lambda sinks: scan_graph(sinks=sinks))
        else:
            arrays, rows = _share(graph, index, count)
            lanes = scan_graph(share=rows)
            check_digest(path, names.GRAPH_FORMAT, arrays)
        if index == 0:
            lanes += _verify_whole_graph(path, graph)
    return lanes.tolist()


def _scan_graph(path: Path, graph: Graph, **arguments: Any) -> np.ndarray:
    original_of = None if is_natural(graph.original_id) else graph.original_id
    return scan(graph, original_of, graph.vertices, 0, str(path), **arguments)


def _verify_whole_graph(path: Path, graph: Graph) -> np.ndarray:
    """Check what concerns no single range of vertices; return its lanes."""
    if graph.types is None:
        check_edge_splits(graph.edge_splits, graph, graph.original_id, str(path))
    else:
        check_triples(graph.edge_splits, graph, graph.types, graph.original_id, str(path))
        lists = graph.indptr, graph.indices, graph.edge_data.relation
        check_triples_apart(graph.edge_splits, lists, graph.types, 0, graph.original_id, str(path))
    with np.errstate(over="ignore"):
        return whole_lanes(graph, graph.original_id, graph.edge_splits)


def _share(graph: Graph, index: int, count: int) -> tuple[dict[str, np.ndarray], tuple[float, float]]:
    """Return the arrays whose digests share `index` of `count` compares, and begin and end of its share of the rows."""
    # The largest arrays first, each to the share that has least.
    sizes = {name: array for name, array in graph.file_arrays().items() if array is not None}
    loads, chosen = np.zeros(count), {}
    for name, array in sorted(sizes.items(), key=lambda item: -item[1].nbytes):
        least = int(np.argmin(loads))
        loads[least] += array.nbytes
        if least == index:
            chosen[name] = array

    # Rows fill all shares to one level, as far as arrays leave it open: to check a byte takes as long as its digest.
    total = loads.sum()
    level = np.min((total + np.cumsum(np.sort(loads))) / np.arange(1, count + 1))
    ends = np.cumsum(np.maximum(0, level - loads)) / total
    ends[-1] = 1
    return chosen, (float(ends[index - 1]) if index else 0.0, float(ends[index]))


def compare_content(path: Path, graph: Graph, lanes: Sequence[list[int]]) -> None:
    """Compare what `verify_share` returned for all shares with the uuid of the graph file. Raises DataError."""
    total = np.sum(np.array(lanes, np.uint64), axis=0)
    found = uuid_of(total, graph.vertices, graph.edges, graph.feature_dim, graph.classes)
    _check_uuid(path, names.GRAPH_UUID, graph.uuid, found)


def verify_lists(path: Path, graph: Graph) -> None:
    """Verify all but features, digests and the content's identity: enough for cutting. Raises DataError."""
    with reading(path):
        check_outline(graph, str(path))
        _scan_graph(path, graph, features=False, hashed=False)


def _verify_arrays(
    path: Path, kind: str, arrays: Mapping[str, np.ndarray | None], scan_into: Callable[[dict[str, Sink]], np.ndarray]
) -> np.ndarray:
    """Compare `arrays` of the file `path` with their digests, which `scan_into` feeds; return its lanes."""
    # Large arrays are digested while they are scanned.
    digests = Digests()
    lanes = scan_into({name: digests.sink(name) for name in arrays if is_scanned(name)})

    # The others are small enough to be read once more.
    for name, array in arrays.items():
        if not is_scanned(name):
            digests.take(name, array)
    digests.compare(path, kind)
    return lanes


def verify(
    dataset: Dataset,
    *,
    parts: Iterable[int] | None = None,
    features: bool = True,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Verify `dataset`, or only some of its `parts`; `features=False` skips the features.

    Facts about all parts (each vertex once, splits, edge cut, uuids) are checked only if all parts are verified; the
    content's uuid also needs the features. `progress` and errors are as in `verify_graph`.
    """
    original_of = _original_ids(dataset)
    lanes = np.zeros(2, np.uint64)
    cut = 0

    # Each part by itself.
    for number in range(dataset.parts) if parts is None else list(parts):
        part = dataset.part(number)
        with reading(part.path):
            found = _verify_part(part, dataset, original_of, features, parts is None and features, progress)
            cut += _edges_out(part, int(dataset.offsets[number]))
            first = int(dataset.offsets[number])
            if dataset.types is None:
                check_apart(dataset.edge_splits, part, first, original_of, str(part.path))
            else:
                lists = part.indptr, part.indices, part.edge_data.relation
                check_triples_apart(dataset.edge_splits, lists, dataset.types, first, original_of, str(part.path))
            if features and part.columns is not None:
                check_digest(part.path, names.PART_FORMAT, {names.COLUMNS: part.columns})
                _verify_columns(part, part.columns, dataset)
            with np.errstate(over="ignore"):
                lanes += found

    # The dataset as a whole.
    if parts is None:
        _verify_whole(dataset, original_of, cut)
    if parts is None and features:
        counts = (dataset.vertices, dataset.edges, dataset.feature_dim, dataset.classes)
        with np.errstate(over="ignore"):
            lanes += whole_lanes(dataset.part(0), original_of, dataset.edge_splits)
        _check_uuid(dataset.folder, names.GRAPH_UUID, dataset.graph_uuid, uuid_of(lanes, *counts))


def verify_digests(dataset: Dataset, parts: Iterable[int], features: bool = True) -> None:
    """Verify `parts` by their digests, and that ids stay inside arrays, without reading other parts.

    Unlike in `verify`, memory does not grow with the vertices of the dataset, and the order of in-neighbours is that of
    the digested content. Raises DataError naming file and array of the first fault.
    """
    for number in parts:
        part = dataset.part(number)
        with reading(part.path):
            _verify_outline(part, dataset)
            _check_original_ids(part, dataset)
            check_digest(part.path, names.PART_FORMAT, part.arrays(features=features))
            _verify_splits(part, dataset)


def verify_ranges(dataset: Dataset, parts: Iterable[int]) -> None:
    """Check that the in-neighbours, labels and split of `parts` stay inside their arrays.

    Features are not checked (a shard of sparse ones checks the columns that it reads), nor are digests. Raises
    DataError naming file, array, row and value.
    """
    for number in parts:
        part = dataset.part(number)
        with reading(part.path):
            _verify_outline(part, dataset)


def _check_original_ids(part: Part, dataset: Dataset) -> None:
    """Check that the original ids of a part ascend; in another vertex order, that they are distinct."""
    check = check_ascending if dataset.vertex_order == names.SOURCE_ORDER else check_distinct
    check(part.original_id, str(part.path), names.ORIGINAL_ID)


def _verify_outline(part: Part, dataset: Dataset) -> None:
    """Check the bounds of the lists of in-neighbours, the labels and the split of one part."""
    check_bounds(part.indptr, len(part.indices), str(part.path))
    if part.features is not None:
        check_scale(part.feature_scale, part.features, str(part.path))
        if part.feature_scale is not None:
            first = dataset.part(0).feature_scale
            if first is None or not np.array_equal(part.feature_scale, first):
                raise DataError(f"{part.path}: {names.FEATURE_SCALE} is not that of part 0; partition again")
    _verify_scales(part, dataset)
    check_typed(part, str(part.path))
    # What the file says of its labels, whatever classes the dataset is opened for.
    regression = label_kind(dataset.attributes, part.path) == names.REGRESSION
    check_vertex_data(part.labels, part.split, int(dataset.attributes["classes"]), str(part.path), regression)


def _verify_scales(part: Part, dataset: Dataset) -> None:
    """Check steps and middles of int8 features by type, which are the same in all parts."""
    first = dataset.part(0).typed
    if part.typed is None or first is None:
        return
    for t, (scale, other) in enumerate(zip(part.typed.scales, first.scales, strict=True)):
        if scale is not None and other is not None and not np.array_equal(scale, other):
            raise DataError(f"{part.path}: {names.type_scale(t)} is not that of part 0; partition again")


def _original_ids(dataset: Dataset) -> np.ndarray:
    """Return the original ids int64[n] of all vertices, checked in each part."""
    ids = np.empty(dataset.vertices, np.int64)
    for number in range(dataset.parts):
        part = dataset.part(number)
        with reading(part.path):
            _check_original_ids(part, dataset)
            ids[dataset.offsets[number] : dataset.offsets[number + 1]] = part.original_id
    return ids


def _verify_part(
    part: Part,
    dataset: Dataset,
    original_of: np.ndarray,
    features: bool,
    hashed: bool,
    progress: Callable[[int], object] | None,
) -> np.ndarray:
    """Verify one part by itself; return its content lanes if `hashed`."""
    where, first = str(part.path), int(dataset.offsets[part.number])
    _verify_outline(part, dataset)
    report = progress and (lambda done: progress(first + done))
    scan_part = partial(scan, part, original_of, dataset.vertices, first, where, progress=report)
    lanes = _verify_arrays(
        *(part.path, names.PART_FORMAT, part.arrays(features=features)),
        lambda sinks: scan_part(features=features, hashed=hashed, sinks=sinks),
    )

    _verify_splits(part, dataset)
    return lanes


def _verify_splits(part: Part, dataset: Dataset) -> None:
    """Compare the members of the splits as the part and as dataset.h5 list them."""
    if part.split is not None:
        first, root = int(dataset.offsets[part.number]), dataset.folder / names.DATASET_FILE
        for code, name in names.SPLIT_NAMES.items():
            _verify_split(part, part.split, getattr(dataset.splits, name), code, name, first, root)


def _verify_split(
    part: Part, codes: np.ndarray, members: np.ndarray, code: int, name: str, first: int, root: Path
) -> None:
    """Compare the members of one split in this part, by dataset.h5, with the `codes` in the part."""
    local = members[(members >= first) & (members < first + len(part.original_id))] - first
    listed = np.zeros(len(part.original_id), bool)
    listed[local] = True
    if len(local) != listed.sum():
        raise DataError(f"{root}: {names.SPLITS}/{name} names a vertex of part {part.number} twice; partition again")
    if len(wrong := np.flatnonzero(listed != (codes == code))):
        raise DataError(
            f"{part.path}: {names.SPLIT}, row {wrong[0]} is {codes[wrong[0]]}, but {root} "
            f"{'lists' if listed[wrong[0]] else 'does not list'} the vertex in {names.SPLITS}/{name}; partition again"
        )


def _verify_columns(part: Part, columns: np.ndarray, dataset: Dataset) -> None:
    """Compare the feature `columns` of `part` with the feature rows of all parts."""
    first, end = column_bounds(dataset.feature_dim, dataset.parts)[part.number : part.number + 2]
    for number, begin in enumerate(dataset.offsets[:-1]):
        rows = dataset.part(number).dense_features
        for start, stop in row_ranges(len(rows), rows.strides[0]):
            differs = rows[start:stop, first:end] != columns[begin + start : begin + stop]
            if differs.any():
                row, column = np.argwhere(differs)[0]
                raise DataError(
                    f"{part.path}: {names.COLUMNS} of vertex {begin + start + row}, column {first + column}, is not "
                    f"what {names.FEATURES} of part {number} holds; partition again"
                )


def _edges_out(part: Part, first: int) -> int:
    """Count the in-edges of the part that come from other parts."""
    stop = first + len(part.original_id)
    inside = 0
    for block in row_blocks(part.indices):
        inside += int(np.count_nonzero((block >= first) & (block < stop)))
    return len(part.indices) - inside


def _verify_whole(dataset: Dataset, original_of: np.ndarray, cut: int) -> None:
    """Check what concerns all parts: each vertex in one part, order of the splits, edge cut `cut`, and the uuid."""
    path = dataset.folder / names.DATASET_FILE
    # Each part has distinct ids by its own check, so a repeated one is in two parts.
    ordered = np.sort(original_of)
    if len(repeated := ordered[1:][ordered[1:] == ordered[:-1]]):
        raise DataError(f"{dataset.folder}: {names.ORIGINAL_ID} {repeated[0]} stands in two parts; partition again")
    # Epochs are shuffled from this order, which must not depend on the partition (rule R1).
    for name in names.SPLIT_NAMES.values():
        members = original_of[getattr(dataset.splits, name)]
        check_ascending(members, f"{path} (in original ids)", f"{names.SPLITS}/{name}")

    if dataset.types is not None and dataset.relation_edges is not None:
        check_triples(dataset.edge_splits, dataset.part(0), dataset.types, original_of, str(path))
        in_parts = [dataset.part(number).relation_edges() for number in range(dataset.parts)]
        if not np.array_equal(np.sum(in_parts, axis=0), dataset.relation_edges):
            raise DataError(
                f"{path}: {names.RELATION_EDGES} does not count the edges of each relation; partition again"
            )

    # What dataset.h5 says about the parts.
    stored = dataset.attributes.get("edge_cut", cut)
    if stored != cut:
        raise DataError(
            f"{path}: attribute edge_cut is {stored}, but {counted(cut, 'edge')} cross parts; partition again"
        )
    found = dataset_uuid(dataset.graph_uuid, dataset.offsets, row_blocks(original_of))
    _check_uuid(path, names.UUID, dataset.uuid, found)
    if dataset.sparse:
        entries = sum(len(dataset.part(number).sparse_features.indices) for number in range(dataset.parts))
        check_entries(dataset.attributes.get(names.FEATURE_ENTRIES), entries, path)


def _check_uuid(path: Path, name: str, stored: str | None, found: str) -> None:
    if stored != found:
        raise DataError(f"{path}: attribute {name} is {stored}, but the content gives {found}; make it again")
