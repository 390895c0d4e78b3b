"""Adjacency lists and lists of edges in text, as networkx writes them: .adjlist, .multiline_adjlist, .edgelist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.networkx_graph import read_by_networkx, tables_of_graph
from data_prep.sources import table

SUMMARY = "adjacency lists .adjlist and .multiline_adjlist, and .edgelist, of networkx; also .gz"
OPTIONS = table.OF_TABLES

_READERS = {
    ".multiline_adjlist": "read_multiline_adjlist",
    ".adjlist": "read_adjlist",
    ".edgelist": "read_edgelist",
}
"""Function of networkx by suffix."""


def can_read(path: Path) -> bool:
    """Recognise the suffix, .gz after it or not."""
    return any(path.name.lower().endswith((suffix, f"{suffix}.gz")) for suffix in _READERS)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the file `path`: each line begins with a source."""
    suffix = next(each for each in _READERS if each in path.name.lower())

    def graph_in(networkx: Any) -> Any:
        return getattr(networkx, _READERS[suffix])(path, create_using=networkx.MultiDiGraph)

    graph = read_by_networkx(path, options.workspace, graph_in)
    return table.graph_of(*tables_of_graph(path, graph), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
