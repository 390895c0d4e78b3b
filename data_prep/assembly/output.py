"""The last step of `import` and `synth`: the graph file, written whole or not at all, and a table of what was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data_prep.assembly import given_parts
from data_prep.assembly.files_beside import write_encoders, write_keys, write_names, write_parts, written_beside
from data_prep.assembly.vertex_data import labelled
from data_prep.edges.edge_sort import EdgeCounts
from data_prep.edges.typed_graph import RowKeys
from data_prep.progress import Steps
from leapmpi.dataset import column_encoders, names_of_vertices
from leapmpi.dataset.graph import Graph, split_sizes
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.hdf5.names import EDGE_LABELS, RELATION, RELATION_LIST, VERTEX_TYPE_LIST
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import DataError, counted
from leapmpi.system.atomic_files import check_place


@dataclass(frozen=True)
class Summary:
    """Record of the way from source to graph. Components are those of the whole source."""

    edges: EdgeCounts
    source_vertices: int
    components: int
    largest: int
    isolated: int
    notes: list[str] = field(default_factory=list)


def check_output(path: Path, overwrite: bool) -> None:
    """Raise DataError when `path` cannot become a graph file: before minutes of work, rather than after."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the graph file to write, e.g. {path / 'graph.h5'}")
    check_place(path, overwrite)


def write(
    path: Path,
    graph: Graph,
    summary: Summary,
    source: str,
    *,
    overwrite: bool,
    steps: Steps,
    names: Sequence[str] | np.ndarray | None = None,
    parts: np.ndarray | None = None,
    encoders: Mapping[str, Any] | None = None,
    keys: Mapping[str, RowKeys] | None = None,
) -> None:
    """Write `graph` to `path`, `names`, `parts`, `encoders` and `keys` beside it, and print the table below `source`.

    Raises DataError when the graph has a fault, ResourceError when the disk is full.
    """
    with steps.step("write") as progress:
        progress.start(graph.vertices, "vertices")
        # Files beside the graph appear with it, or not at all.
        with ExitStack() as beside:

            def add(suffix: str, kind: str, writer: Callable[[Any, BinaryIO], None], content: Any) -> Path:
                to_file = partial(writer, content)
                return beside.enter_context(written_beside(path, suffix, kind, graph, to_file, overwrite=overwrite))

            if names is not None:
                file = add("names.txt", names_of_vertices.FILE, write_names, names)
                summary.notes.append(f"the source's names of the vertices are in {file}")
            if parts is not None:
                file = add("parts.npy", given_parts.FILE, write_parts, parts)
                summary.notes.append(f"the source's parts are in {file}; partition --method given keeps them")
            if encoders is not None:
                file = add("encoders.json", column_encoders.FILE, write_encoders, encoders)
                summary.notes.append(
                    f"encoders of the columns are in {file}; --encoders {path} encodes other tables alike"
                )
            if keys:
                add("keys.npz", column_encoders.KEYS, write_keys, keys)
            write_graph(path, graph, overwrite=overwrite, progress=progress.reach)
    print(source)
    print(_table(graph, summary, path))
    print("\n".join(steps.table()))


def _table(graph: Graph, summary: Summary, file: Path) -> str:
    """Return the lines of the final table."""
    edges, attributes, whole = summary.edges, graph.attributes, summary.source_vertices
    direction = (
        "--directed: each edge one way" if attributes["directed"] else "made symmetric; --directed keeps one way"
    )
    if graph.types is not None:
        direction = "of relations that --add-reverse adds" if edges.reverse_added else "--add-reverse adds relations"

    # Name, number and note of each row.
    rows = [
        ("vertices", graph.vertices, "" if graph.vertices == whole else f"largest component of {whole:,}"),
        ("edges read", edges.read, ""),
        ("self-loops dropped", edges.loops, ""),
        ("duplicates dropped", edges.duplicates, ""),
        ("reverse edges added", edges.reverse_added, direction),
        ("edges written", graph.edges, ""),
        ("components", summary.components, f"largest {summary.largest:,} vertices; {summary.isolated:,} isolated"),
        *_edge_rows(graph),
        *_held_back_rows(graph),
        *_type_rows(graph),
        *_vertex_rows(graph),
        ("bytes", file.stat().st_size, str(file)),
    ]
    lines = [f"  {name:<20}{value:>15,}  {note}".rstrip() for name, value, note in rows]
    return "\n".join(lines + [f"  note: {note}" for note in summary.notes])


def _edge_rows(graph: Graph) -> list[tuple[str, int, str]]:
    """Return the rows about edge data: name, number of columns, note."""
    rows = [
        (name.replace("_", " "), 1 if array.ndim == 1 else array.shape[1], str(array.dtype))
        for name, array in graph.edge_data.arrays().items()
        if name not in (EDGE_LABELS, RELATION)
    ]
    if graph.edge_data.labels is not None:
        known = sum(int((block >= 0).sum()) for block in row_blocks(graph.edge_data.labels))
        rows.append(("edge classes", graph.edge_data.classes, f"{known:,} edges labelled in training"))
    if graph.time is not None:
        rows.append(("vertex times", 1, str(graph.time.dtype)))
    return rows


def _held_back_rows(graph: Graph) -> list[tuple[str, int, str]]:
    """Return the rows about held-back edges, if any: name, number and note."""
    if graph.edge_splits is None:
        return []
    origin = str(graph.attributes["edge_split_origin"])
    sizes = {name: size for name, size in graph.edge_splits.counts().items() if isinstance(size, int)}
    what = f"{graph.edge_splits.held} held back: {origin}"
    return [(name.replace("_", " "), size, what if "edges" in name else "given") for name, size in sizes.items()]


def _type_rows(graph: Graph) -> list[tuple[str, int, str]]:
    """Return the rows about the types and relations of a typed graph: name, number, note."""
    if graph.typed is None:
        return []
    described = graph.typed.describe(graph.relation_edges())
    rows = []
    for each in described[VERTEX_TYPE_LIST]:
        note = f"{each['feature_dim']:,} features, {each['feature_dtype']}" if each["feature_dim"] else "no features"
        rows.append((f"  {each['name']}", each["vertices"], note + ", the target type" * each["target"]))
    for each in described[RELATION_LIST]:
        rows.append((f"  {each['relation']}", each["edges"], each["reverse_of"] and f"reverse of {each['reverse_of']}"))
    return rows


def _unlabelled(graph: Graph) -> int:
    """Count the vertices without a label, those of the target type in a typed graph."""
    assert graph.labels is not None
    target = None if graph.types is None else graph.types.target_number
    if graph.typed is None or target is None:
        return int((~labelled(graph.labels)).sum())
    return int((~labelled(graph.labels[slice(*graph.typed.offsets[target : target + 2].tolist())])).sum())


def _of_target(graph: Graph) -> str:
    """Return the words for the target of a typed graph, whose other types may have labels; empty without."""
    return f" of {graph.types.target}" if graph.types is not None and graph.types.target else ""


def _vertex_rows(graph: Graph) -> list[tuple[str, int, str]]:
    """Return the rows about features, classes and splits: name, number, note."""
    rows = [("features", graph.feature_dim, "none in the source")] if graph.types is None else []
    if graph.features is not None:
        how = f"{graph.features.dtype}, normalised: {graph.attributes['feature_normalisation']}"
        if (origin := graph.attributes["feature_origin"]) != "source":
            how += f", from {origin}"
        if isinstance(graph.features, SparseFeatures):
            share = len(graph.features.indices) / (len(graph.features) * graph.feature_dim)
            how += f", stored sparse: {counted(len(graph.features.indices), 'entry')}, {share:.2%}"
        rows = [("features", graph.feature_dim, how)]

    if graph.labels is None:
        rows.append(("classes", 0, f"no labels{_of_target(graph)} in the source"))
    else:
        kind = "multi-label, " if graph.multilabel else ""
        noun = "targets" if graph.regression else "classes"
        rows.append((noun, graph.classes, f"{kind}{counted(_unlabelled(graph), 'vertex')} unlabelled"))

    # Splits.
    if graph.split is None:
        return [
            *rows,
            ("in no split", graph.vertices, f"no splits{_of_target(graph)} in the source; --splits makes them"),
        ]
    rest, train, val, test = (int(size) for size in split_sizes(graph.split))
    return [
        *rows,
        ("train", train, f"splits: {graph.attributes['split_origin']}"),
        ("val", val, "" if val else "no validation set"),
        ("test", test, "" if test else "no test set"),
        ("in no split", rest, ""),
    ]
