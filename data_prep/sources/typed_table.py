"""A typed graph in tables (CSV or Parquet) that a schema in TOML names: a section for each type and each relation.

target = "paper"

[vertices.paper]                    # files: a path, a list, or with *; paths from the folder of the schema
files = "papers-*.csv"
id = "paper_id"                     # without: vertices are numbered by rows
features = ["year", "vector"]       # columns of numbers, or of lists of numbers in Parquet
label = "field"                     # split: a column of train, val, test; time: a column of whole numbers
split = "split"

[vertices.venue]                    # a type without a table
count = 20

[edges."author:writes:paper"]       # weight, time and features are columns
files = ["writes.csv"]
source = "author_id"
destination = "paper_id"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep.assembly.typed_tables import EdgeTable, FeatureColumns, VertexTable, read_tables
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.chosen_columns import matching_files
from data_prep.formats.columns import EdgeColumns
from data_prep.formats.toml_sections import (
    begins_with_sections,
    checked_section,
    column_of,
    columns_of,
    read_toml,
    sections_of,
)
from data_prep.formats.typed_folders import relation_of
from leapmpi.errors import DataError

SUMMARY = 'schema in TOML of a typed graph in tables: [vertices.TYPE], [edges."A:RELATION:B"]'
OPTIONS = frozenset[str]()

_VERTICES, _EDGES = "vertices", "edges"
_OF_VERTICES = {"files", "id", "features", "label", "split", "time", "count"}
_OF_EDGES = {"files", "source", "destination", "weight", "time", "features", "reverse_of"}


def can_read(path: Path) -> bool:
    """Recognise a schema by its sections of vertices and of edges."""
    return begins_with_sections(path, _VERTICES, _EDGES)


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the typed graph whose schema is the file `path`. Raises DataError naming section and key of a fault."""
    about = read_toml(path)
    found = {name: sections_of(about, name, path) for name in (_VERTICES, _EDGES)}
    vertices = {name: [_vertex_table(path, name, each)] for name, each in found[_VERTICES].items()}
    edges = [_edge_table(path, name, each, list(vertices)) for name, each in found[_EDGES].items()]
    graph, _ = read_tables(vertices, edges, options)
    target = about.get("target")
    if target is not None and not (isinstance(target, str) and target in graph.vertices):
        raise DataError(f"{path}: target {str(target)[:40]!r} is none of the types {', '.join(graph.vertices)}")
    graph.target, graph.split_origin = target, path.name
    order = [str(each) for each in graph.relations]
    for relation, each in zip(graph.relations, found[_EDGES].values(), strict=True):
        if (other := each.get("reverse_of")) is not None:
            if other not in order:
                raise DataError(f"{path}: {relation} is the reverse of {str(other)[:60]!r}, which is not a relation")
            relation.reverse_of = order.index(other)
    return graph


def _vertex_table(path: Path, name: str, about: dict[str, Any]) -> VertexTable:
    where = checked_section(path, f"{_VERTICES}.{name}", about, _OF_VERTICES)
    count = about.get("count")
    if (count is None) == ("files" not in about):
        raise DataError(f"{where} must have either files or a count")
    if count is not None and (type(count) is not int or count < 0):
        raise DataError(f"{where}: count {str(count)[:40]!r} is not a whole number from 0 on")
    files = [] if count is not None else matching_files(about["files"], path.parent, where)
    features = columns_of(about, "features", where)
    roles = {key: column_of(about, key, where) for key in ("id", "label", "split", "time")}
    return VertexTable(where, files, features=tuple(FeatureColumns((each,)) for each in features), count=count, **roles)


def _edge_table(path: Path, name: str, about: dict[str, Any], types: list[str]) -> EdgeTable:
    where = checked_section(path, f"{_EDGES}.{name}", about, _OF_EDGES)
    relation = relation_of(name, ":", types)
    if relation is None:
        raise DataError(f"{where}: expected SOURCE:RELATION:DESTINATION as its name")
    ends = [column_of(about, key, where) for key in ("source", "destination")]
    if ends[0] is None or ends[1] is None:
        raise DataError(f"{where} must name the columns source and destination")
    carried = EdgeColumns(
        column_of(about, "weight", where), column_of(about, "time", where), columns_of(about, "features", where)
    )
    return EdgeTable(where, relation, matching_files(about.get("files"), path.parent, where), ends[0], ends[1], carried)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
