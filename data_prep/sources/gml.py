"""GML (Himsolt), as networkx, igraph and Gephi write it; read by networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.networkx_graph import read_by_networkx, tables_of_graph
from data_prep.sources import table

SUMMARY = "GML .gml, also .gz, read by networkx"
OPTIONS = table.OF_TABLES


def can_read(path: Path) -> bool:
    """Recognise the suffix, .gz after it or not."""
    return path.name.lower().endswith((".gml", ".gml.gz"))


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the file `path`; labels are names of vertices where no two are the same, else classes."""

    def graph_in(networkx: Any) -> Any:
        graph = networkx.read_gml(path, label="id")
        labels = [attributes.get("label") for _, attributes in graph.nodes(data=True)]
        named = None not in labels and len(set(map(str, labels))) == len(labels)
        return networkx.relabel_nodes(graph, dict(zip(graph, labels, strict=True))) if named else graph

    graph = read_by_networkx(path, options.workspace, graph_in)
    if set(graph) == {attributes.get("label") for _, attributes in graph.nodes(data=True)}:
        for _, attributes in graph.nodes(data=True):
            del attributes["label"]
    return table.graph_of(*tables_of_graph(path, graph), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
