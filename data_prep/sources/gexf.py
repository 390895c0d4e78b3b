"""GEXF, as Gephi and networkx write it; read by networkx."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.networkx_graph import read_by_networkx, tables_of_graph
from data_prep.sources import table

SUMMARY = "GEXF .gexf of Gephi, also .gz, read by networkx"
OPTIONS = table.OF_TABLES


def can_read(path: Path) -> bool:
    """Recognise the suffix, .gz after it or not."""
    return path.name.lower().endswith((".gexf", ".gexf.gz"))


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the file `path`; the label of a vertex is its name there, not a class."""
    graph = read_by_networkx(path, options.workspace, lambda networkx: networkx.read_gexf(path))
    for _, attributes in graph.nodes(data=True):
        attributes.pop("label", None)
    return table.graph_of(*tables_of_graph(path, graph), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
