"""From the TypedRawGraph of a source to a typed Graph: edges by relation, features by type, labels of the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from data_prep.assembly.assemble import AssemblyOptions, labels_and_codes, origin_attributes
from data_prep.assembly.output import Summary
from data_prep.assembly.stored_dtype import as_stored
from data_prep.assembly.typed_splits import held_back
from data_prep.assembly.vertex_data import make_features, make_times
from data_prep.edges.components import components, induced
from data_prep.edges.edge_sort import Adjacency, EdgeCounts
from data_prep.edges.raw_graph import SparseRows, far_too_many
from data_prep.edges.sorted_edges import SortedEdges, adjacency_of, check_memory, sorted_before
from data_prep.edges.typed_graph import TypedEdges, TypedRawGraph
from data_prep.progress import SILENT, Progress, Steps
from data_prep.workspace import Workspace
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_types import GraphTypes, VertexType, relation_dtype
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.typed_rows import TypedRows
from leapmpi.errors import ConfigError, DataError, counted

_KEYS_AT_ONCE = 1 << 22
NO_TIME = np.iinfo(np.int64).min
"""Time of vertices of types without times: earlier than any."""


def make_typed_graph(
    raw: TypedRawGraph, options: AssemblyOptions, where: str, workspace: Workspace, steps: Steps | None = None
) -> tuple[Graph, Summary]:
    """Build the cleaned Graph of `raw`, and its Summary; large arrays are temporary files of `workspace`.

    `where` opens the messages about features, labels and splits. Raises DataError for the first fault of the source,
    ConfigError for options without a meaning for typed graphs.
    """
    steps = steps or Steps(silent=True)
    target = _target(raw, options, where)
    _refuse(options, where)
    for name, each in raw.vertices.items():
        if each.count < 0:
            raise DataError(f"{where}: type {name} states {counted(each.count, 'vertex')}")
    edges = TypedEdges(raw, reverse=options.add_reverse, carried=options.edge_data == "keep")
    if edges.vertices < 1:
        raise DataError(f"{where} has no vertices")
    # Edges first: the component of a vertex depends on edges of all types.
    with steps.step("sort edges") as progress:
        of_sources = _all_times(raw, where) if raw.times_of_sources and options.edge_data == "keep" else None
        adjacency, counts = _sorted(edges, raw, where, workspace, progress, of_sources)
    with steps.step("find components") as progress:
        parts = components(adjacency, symmetric=False, progress=progress)
    with steps.step("vertex data") as progress:
        # The vertices that stay, by type.
        keep = parts.root == parts.largest_root if options.largest_component and parts.count > 1 else None
        original_id = np.arange(edges.vertices) if keep is None else np.flatnonzero(keep)
        adjacency = adjacency if keep is None else induced(adjacency, keep, workspace)
        bases = np.cumsum([0, *(each.count for each in raw.vertices.values())]).tolist()
        kept = [None if keep is None else keep[low:high] for low, high in pairwise(bases)]

        # Features of each type, and labels and splits of the target.
        types, stored = _features(raw, options, kept, where, workspace, progress)
        schema = _schema(edges, types, target, where)
        features, scales = tuple(each.rows for each in stored), tuple(each.scale for each in stored)
        typed = TypedRows.of(schema, original_id, features, scales)
        labelled, notes = _target_data(raw, target, options, kept, typed, where, workspace)
        notes = [*raw.notes, *(note for each in stored for note in each.notes), *notes]
        times = _times(raw, kept, where)
    splits, split_notes = held_back(raw.edge_splits, edges, adjacency, original_id, where)
    attributes = origin_attributes(
        None if target is None else raw.vertices[target].class_names,
        *(raw.split_origin, replace(options, directed=True)),
        features=any(each.rows is not None for each in stored),
        splits="split" in labelled,
    )
    if raw.edge_splits is not None:
        attributes["edge_split_origin"] = raw.edge_splits.origin
    graph = Graph(
        adjacency.indptr,
        adjacency.indices,
        original_id=original_id,
        attributes=attributes,
        edge_data=adjacency.data,
        edge_splits=splits,
        time=times,
        typed=typed,
        **labelled,
    )
    return graph, Summary(counts, bases[-1], parts.count, parts.largest, parts.isolated, notes + split_notes)


def _target_data(
    raw: TypedRawGraph,
    target: str | None,
    options: AssemblyOptions,
    kept: list[np.ndarray | None],
    typed: TypedRows,
    where: str,
    workspace: Workspace,
) -> tuple[dict[str, Any], list[str]]:
    """Return labels and splits of the target type that stay, as fields of a Graph of all types, and notes.

    kept: by type bool[count], the vertices that stay; None for all.
    """
    if target is None:
        return {}, []
    place, vertices = list(raw.vertices).index(target), raw.vertices[target]
    labels, codes, notes = labels_and_codes(vertices, vertices.count, options, kept[place], f"{where}: type {target}")
    n, rows = int(typed.offsets[-1]), slice(*typed.offsets[place : place + 2].tolist())
    fields: dict[str, Any] = {}
    if labels is not None:
        fields |= {"classes": labels.classes, "regression": labels.regression}
        fields["labels"] = _spread(labels.values, n, rows, workspace)
    if codes is not None:
        fields["split"] = _spread(codes, n, rows, workspace)
    return fields, notes


def _schema(edges: TypedEdges, types: tuple[VertexType, ...], target: str | None, where: str) -> GraphTypes:
    """Return the schema of the graph. Raises DataError where names stand twice or relations name unknown types."""
    try:
        return GraphTypes(types, tuple(edges.relations), target)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _target(raw: TypedRawGraph, options: AssemblyOptions, where: str) -> str | None:
    """Return the type with labels and splits. Raises DataError where --target names another, or several have some."""
    known = raw.labelled_types()
    if options.target is not None:
        if options.target not in raw.vertices:
            raise DataError(f"--target {options.target}: {where} has the types {', '.join(raw.vertices)}")
        return options.target
    if raw.target is not None or not known:
        return raw.target
    if len(known) > 1:
        raise DataError(f"{where}: the types {', '.join(known)} have labels; choose one by --target {known[0]}")
    return known[0]


def _refuse(options: AssemblyOptions, where: str) -> None:
    """Raise ConfigError for options that have no meaning for a typed graph."""
    if options.features is not None:
        raise ConfigError(
            f"--features {options.features.text}: {where} is a typed graph; types without features stay without"
        )
    if options.feature_storage == "sparse":
        raise ConfigError(f"--feature-storage sparse: {where} is a typed graph, whose features are dense")
    if options.edge_label_values != "classes":
        raise ConfigError(f"--edge-label-values: {where} is a typed graph, whose edges have relations")


def _sorted(
    edges: TypedEdges,
    raw: TypedRawGraph,
    where: str,
    workspace: Workspace,
    progress: Progress,
    of_sources: np.ndarray | None,
) -> tuple[Adjacency, EdgeCounts]:
    """Sort all edges by destination, relation and source; returns the adjacency and the counts of edges.

    of_sources: times int64[n] of all vertices, which edges have from their sources; None where streams carry them.
    """
    n, relations = edges.vertices, len(edges.relations)
    if edges.resumable and (before := sorted_before(workspace)):
        raw.notes += before.notes
        return before.adjacency, before.counts
    if edges.count is not None:
        _check_number(n, edges.count, where)
    check_memory(n, workspace)
    edges.read_in_shares(workspace, progress)

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        yield from edges.chunks()
        _check_number(n, edges.read, where)

    progress.start(edges.count, "edges taken")
    columns, added_from = relations * n, len(raw.relations) * n
    found = adjacency_of(chunks, n, edges.carries, True, "edges", workspace, progress, columns, added_from)
    raw.notes += found.notes
    # Distinct edges of the source, without those of relations that were added.
    keyed, written = found.adjacency, found.counts.written
    added = _edges_from(keyed, added_from)
    duplicates = edges.read - edges.loops - (written - added)
    counts = replace(
        found.counts, read=edges.read, loops=edges.loops, duplicates=duplicates, reverse_added=added, written=written
    )
    adjacency = _by_relation(keyed, n, relations, workspace, of_sources)
    if edges.resumable:
        SortedEdges(adjacency, counts).record(workspace)
    return adjacency, counts


def _check_number(vertices: int, edges: int, where: str) -> None:
    """Raise DataError where so few edges make a stated number of vertices unlikely."""
    if far_too_many(vertices, edges):
        raise DataError(
            f"{where}: {counted(vertices, 'vertex')} are stated, but the graph has only {counted(edges, 'edge')}"
        )


def _edges_from(keyed: Adjacency, first: int) -> int:
    """Count the entries of `keyed` from key `first` on."""
    blocks = range(0, len(keyed.indices), _KEYS_AT_ONCE)
    return sum(int((keyed.indices[start : start + _KEYS_AT_ONCE] >= first).sum()) for start in blocks)


def _by_relation(
    keyed: Adjacency, n: int, relations: int, workspace: Workspace, of_sources: np.ndarray | None
) -> Adjacency:
    """Split keys into relation and source: the adjacency of `n` vertices, in temporary files.

    of_sources: as in `_sorted`.
    """
    dtypes = np.dtype(names.index_dtype(n)), np.dtype(relation_dtype(relations))
    indices, relation, time = (workspace.path(name) for name in ("sources", "relations", "times"))
    total = len(keyed.indices)
    with (
        workspace.written(indices) as index_file,
        workspace.written(relation) as relation_file,
        workspace.written(time) as time_file,
    ):
        # A key packs relation and source. Read a few at a time, so that memory does not grow with the edges.
        for start in range(0, total, _KEYS_AT_ONCE):
            keys = np.asarray(keyed.indices[start : start + _KEYS_AT_ONCE])
            sources, of_edge = np.empty(len(keys), dtypes[0]), np.empty(len(keys), dtypes[1])
            np.remainder(keys, n, out=sources, casting="unsafe")
            np.floor_divide(keys, n, out=of_edge, casting="unsafe")
            index_file.write(sources.data)
            relation_file.write(of_edge.data)
            if of_sources is not None:
                time_file.write(of_sources[sources].data)
    data = replace(keyed.data, relation=workspace.map(relation, dtypes[1], (total,)), relations=relations)
    if of_sources is not None:
        data = replace(data, time=workspace.map(time, of_sources.dtype, (total,)))
    return Adjacency(keyed.indptr, workspace.map(indices, dtypes[0], (total,)), data)


@dataclass(frozen=True)
class _Stored:
    """Features of a type as they are stored: rows (an array or FeatureRows) or None, scale of int8 or None, notes."""

    rows: Any = None
    scale: np.ndarray | None = None
    notes: tuple[str, ...] = ()


def _features(
    raw: TypedRawGraph,
    options: AssemblyOptions,
    kept: list[np.ndarray | None],
    where: str,
    workspace: Workspace,
    progress: Progress = SILENT,
) -> tuple[tuple[VertexType, ...], list[_Stored]]:
    """Return the types with their widths and dtypes, and their features as they are stored.

    kept: by type bool[count], the vertices that stay; None for all.
    """
    chosen = options.feature_dtypes(list(raw.vertices), where)
    types, stored = [], []
    for (name, each), keep in zip(raw.vertices.items(), kept, strict=True):
        if each.features is None:
            types.append(VertexType(name, each.count))
            stored.append(_Stored())
            continue
        # Narrow types are made from exact rows: rounding twice would lose more than one step.
        dtype = chosen.get(name) or ("float16" if _is_half(each.features) else "float32")
        plain = "float16" if dtype == "float16" else "float32"
        place = f"{where}: type {name}"
        rows = make_features(each.features, each.count, plain, options.normalise, place)
        rows = rows if keep is None else rows.among(np.flatnonzero(keep))
        types.append(VertexType(name, each.count, rows.shape[1], dtype))
        if dtype == plain and (dtype == "float32" or _is_half(each.features)):
            stored.append(_Stored(rows))
            continue
        small = as_stored(rows.exact(), dtype, place, workspace, progress)
        stored.append(_Stored(small.rows, small.scale, (f"{name}: {small.note(dtype)}",)))
    return tuple(types), stored


def _is_half(features: np.ndarray | SparseRows) -> bool:
    return isinstance(features, np.ndarray) and features.dtype == np.float16


def _spread(values: np.ndarray, n: int, rows: slice, workspace: Workspace) -> np.ndarray:
    """Return an array of `n` rows that has `values` in `rows`, and is unlabelled, or in no split, elsewhere."""
    out = workspace.array("target", (n, *values.shape[1:]), values.dtype)
    if values.dtype != np.int8:
        out[:] = np.nan if values.dtype.kind == "f" else names.UNLABELLED
    out[rows] = values
    return out


def _times(raw: TypedRawGraph, kept: list[np.ndarray | None], where: str) -> np.ndarray | None:
    """Return the times of the vertices that stay, NO_TIME in types without; None where no type has times."""
    if all(each.times is None for each in raw.vertices.values()):
        return None
    times, keep = _all_times(raw, where), [each for each in kept if each is not None]
    return times[np.concatenate(keep)] if keep else times


def _all_times(raw: TypedRawGraph, where: str) -> np.ndarray:
    """Return the times int64[n] of all vertices, NO_TIME in types without."""
    found = []
    for name, each in raw.vertices.items():
        known = each.times is not None
        found.append(
            make_times(each.times, each.count, f"{where}: type {name}") if known else np.full(each.count, NO_TIME)
        )
    return np.concatenate(found)
