"""Node-link data in JSON, as networkx and D3 write them; read by networkx."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.description import begins_with, read_json
from data_prep.formats.networkx_graph import read_by_networkx, tables_of_graph
from data_prep.sources import gconstruct, table
from leapmpi.errors import DataError

SUMMARY = "node-link data in .json of networkx or D3: nodes, and links or edges"
OPTIONS = table.OF_TABLES

_LINKS = ("links", "edges")


def can_read(path: Path) -> bool:
    """Recognise a JSON file with nodes and links that is not gconstruct's."""
    return begins_with(path, "nodes") and begins_with(path, "directed", "links") and not gconstruct.can_read(path)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the file `path`; without the entry `directed` its edges go both ways."""
    found = read_json(path)
    links = next((name for name in _LINKS if isinstance(found.get(name), list)), None)
    if links is None or not isinstance(found.get("nodes"), list):
        raise DataError(f"{path} must hold the lists 'nodes' and 'links' (or 'edges')")
    whole = {"directed": False, "multigraph": False, "graph": {}} | found
    graph = read_by_networkx(path, options.workspace, lambda networkx: networkx.node_link_graph(whole, edges=links))
    return table.graph_of(*tables_of_graph(path, graph), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
