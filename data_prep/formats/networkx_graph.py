"""Graphs as networkx holds them: dicts of attributes by vertex and by edge, made into tables of vertices and edges."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.formats.attribute_table import AttributeTable, Values
from data_prep.workspace import Workspace, require_whole
from leapmpi.errors import ConfigError, DataError, ResourceError

SOURCE, DESTINATION, ID = "source", "destination", "id"

_TIMES = 90
"""Memory that a graph of networkx takes, as a multiple of its file; measured: 15 (GML) to 92 (adjacency lists)."""


def read_by_networkx(path: Path, workspace: Workspace | None, read: Callable[[Any], Any]) -> Any:
    """Return the graph that `read` makes of the file `path` by the module networkx, which it is given.

    Raises ConfigError without networkx, DataError for whatever a damaged file makes it raise, ResourceError where the
    graph does not fit the memory.
    """
    require_whole(str(path), path.stat().st_size, _TIMES, workspace)
    try:
        networkx = importlib.import_module("networkx")
    except ImportError:
        raise ConfigError(
            f"{path} is read by networkx, which is not installed; pip install 'leapmpi[networkx]'"
        ) from None
    try:
        return read(networkx)
    # These say by themselves what is wrong.
    except (MemoryError, OSError, DataError, ResourceError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be read by networkx ({reason[:200]})") from error


def tables_of_graph(path: Path, graph: Any) -> tuple[AttributeTable, AttributeTable]:
    """Return the tables of edges and of vertices of `graph`, one of networkx, read from `path`."""
    return tables_of(path, dict(graph.nodes(data=True)), graph.adjacency(), graph.is_multigraph())


def tables_of(
    path: Path, vertices: Mapping[Any, Mapping], adjacency: Iterable[tuple[Any, Mapping[Any, Any]]], multigraph: bool
) -> tuple[AttributeTable, AttributeTable]:
    """Return the tables of edges and of vertices of a graph in dicts of attributes.

    vertices: attributes by vertex. adjacency: each vertex with its out-neighbours, and the attributes of the edge to
    each, or in a `multigraph` those of each edge by key. An undirected edge is in the lists of both ends.

    Vertices are in ascending order where all ids are whole numbers, else in the order of `vertices`. Raises DataError
    for a graph without edges.
    """
    order = list(vertices)
    ids: Values = list(map(str, order))
    if all(name.isascii() and name.isdigit() and len(name) <= 18 for name in ids):
        order = sorted(order, key=lambda vertex: int(str(vertex)))
        ids = np.array(list(map(str, order)), np.int64)
    number = {vertex: place for place, vertex in enumerate(order)}

    # The two ends of each edge by number, and what it carries.
    ends: list[tuple[int, int]] = []
    carried: list[Mapping] = []
    for source, neighbours in adjacency:
        for destination, found in neighbours.items():
            for each in found.values() if multigraph else (found,):
                ends.append((number[source], number[destination]))
                carried.append(each)
    if not ends:
        raise DataError(f"{path} holds no edges")
    of_ends = np.array(ends, np.int64)
    columns = {name: _taken(ids, of_ends[:, side]) for side, name in enumerate((SOURCE, DESTINATION))}
    edges = AttributeTable(path, columns, carried)
    return edges, AttributeTable(path, {ID: ids}, [vertices[vertex] for vertex in order])


def _taken(ids: Values, places: np.ndarray) -> Values:
    return ids[places] if isinstance(ids, np.ndarray) else [ids[place] for place in places]
