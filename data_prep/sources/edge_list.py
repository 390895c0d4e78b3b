"""Edge lists in text, one edge per line, with optional features and labels from files of their own."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, far_too_many
from data_prep.formats.array_files import read_companions
from data_prep.formats.edge_text import begins_with_edges, edge_stream
from data_prep.formats.numeric_text import is_text_table
from data_prep.sources import snap
from leapmpi.errors import DataError, counted

SUMMARY = "edge list .txt, .csv or .tsv, also .gz: two vertex ids per line"
OPTIONS = frozenset({"features", "labels", "vertices", "edge_columns", "edge_labels"})


def can_read(path: Path) -> bool:
    """Recognise a text whose lines begin with two whole numbers, and that SNAP's format does not claim."""
    if not path.is_file() or not is_text_table(path) or snap.can_read(path):
        return False
    try:
        return begins_with_edges(path)
    except (DataError, OSError):
        return True  # the message about the damage comes from `read`


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph of the edges in `path`: source and destination are the first two columns.

    The number of vertices is `options.vertices`, else the rows of the features or labels, else the largest id plus one.
    """
    edges, notes = edge_stream(path, options.edge_columns, options.edge_labels)
    features, labels = read_companions(options)

    def by_largest_id(largest: int, count: int) -> int:
        if far_too_many(largest + 1, count):
            raise DataError(
                f"{path}: the largest id is {largest:,}, but the graph has only {counted(count, 'edge')}; have the "
                "vertices "
                "numbered from 0 on by --format snap, or state their number by --vertices"
            )
        return largest + 1

    rows = (array.shape[0] for array in (features, labels) if array is not None)
    vertices = next(rows, by_largest_id) if options.vertices is None else options.vertices
    return RawGraph(vertices, edges, features, labels, edges_name=str(path), notes=notes)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
