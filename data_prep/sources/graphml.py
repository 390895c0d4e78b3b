"""GraphML, as networkx, igraph, yEd and others write it; read by networkx."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.networkx_graph import read_by_networkx, tables_of_graph
from data_prep.sources import table

SUMMARY = "GraphML .graphml, also .gz, read by networkx"
OPTIONS = table.OF_TABLES


def can_read(path: Path) -> bool:
    """Recognise the suffix, .gz after it or not."""
    return path.name.lower().endswith((".graphml", ".graphml.gz"))


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the file `path`: its first, where it holds several."""
    graph = read_by_networkx(path, options.workspace, lambda networkx: networkx.read_graphml(path))
    return table.graph_of(*tables_of_graph(path, graph), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
