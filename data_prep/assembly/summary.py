"""The table at the end of `import` and `synth`: what was read, dropped, added and written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from data_prep.assembly.vertex_data import labelled
from data_prep.edges.edge_sort import EdgeCounts
from leapmpi.dataset.graph import Graph, split_sizes
from leapmpi.dataset.sparse_features import SparseFeatures


@dataclass(frozen=True)
class Summary:
    """What happened on the way from source to graph. Components are those of the whole source."""

    edges: EdgeCounts
    source_vertices: int
    components: int
    largest: int
    isolated: int
    notes: list[str] = field(default_factory=list)


def table(graph: Graph, summary: Summary, file: Path) -> str:
    """The lines of the table at the end, which say what was done."""
    edges, attributes = summary.edges, graph.attributes
    direction = (
        "--directed: each edge one way" if attributes["directed"] else "made symmetric; --directed keeps one way"
    )

    # Name, number and note of each row.
    rows = [
        ("vertices", graph.vertices, _subset_note(graph, summary)),
        ("edges read", edges.read, ""),
        ("self-loops dropped", edges.loops, ""),
        ("duplicates dropped", edges.duplicates, ""),
        ("reverse edges added", edges.reverse_added, direction),
        ("edges written", graph.edges, ""),
        ("components", summary.components, f"largest {summary.largest:,} vertices; {summary.isolated:,} isolated"),
        *_vertex_rows(graph),
        ("bytes", file.stat().st_size, str(file)),
    ]
    lines = [f"  {name:<20}{value:>15,}  {note}".rstrip() for name, value, note in rows]
    return "\n".join(lines + [f"  note: {note}" for note in summary.notes])


def _subset_note(graph: Graph, summary: Summary) -> str:
    if graph.vertices == summary.source_vertices:
        return ""
    return f"largest component of {summary.source_vertices:,}"


def _vertex_rows(graph: Graph) -> list[tuple[str, int, str]]:
    """The rows about features, classes and splits: name, number, note."""
    rows = [("features", graph.feature_dim, "none in the source")]
    if graph.features is not None:
        how = f"{graph.features.dtype}, normalised: {graph.attributes['feature_normalisation']}"
        if (origin := graph.attributes["feature_origin"]) != "source":
            how += f", from {origin}"
        if isinstance(graph.features, SparseFeatures):
            share = len(graph.features.indices) / (len(graph.features) * graph.feature_dim)
            how += f", stored sparse: {len(graph.features.indices):,} entries, {share:.2%}"
        rows = [("features", graph.feature_dim, how)]

    if graph.labels is None:
        rows.append(("classes", 0, "no labels in the source"))
    else:
        kind = "multi-label, " if graph.multilabel else ""
        rows.append(("classes", graph.classes, f"{kind}{int((~labelled(graph.labels)).sum()):,} vertices unlabelled"))
    return rows + _split_rows(graph)


def _split_rows(graph: Graph) -> list[tuple[str, int, str]]:
    if graph.split is None:
        return [("in no split", graph.vertices, "no splits in the source; --splits makes them")]
    rest, train, val, test = (int(size) for size in split_sizes(graph.split))
    return [
        ("train", train, f"splits: {graph.attributes['split_origin']}"),
        ("val", val, "" if val else "no validation set"),
        ("test", test, "" if test else "no test set"),
        ("in no split", rest, ""),
    ]
