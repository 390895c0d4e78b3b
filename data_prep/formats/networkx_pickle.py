"""A graph of networkx in a pickle, read without networkx: stand-ins keep its dicts, and nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep.formats.attribute_table import AttributeTable
from data_prep.formats.networkx_graph import tables_of
from data_prep.formats.numeric_text import open_bytes
from data_prep.formats.restricted_unpickler import CarefulUnpickler, StandIn, damage_explained, of_numpy, of_plain
from leapmpi.errors import DataError

_GRAPHS = {"graph": "Graph", "digraph": "DiGraph", "multigraph": "MultiGraph", "multidigraph": "MultiDiGraph"}
_VIEWS = {
    "coreviews": ("AtlasView", "AdjacencyView", "MultiAdjacencyView"),
    "reportviews": (
        *("NodeView", "EdgeView", "OutEdgeView", "InEdgeView", "MultiEdgeView", "OutMultiEdgeView", "InMultiEdgeView"),
        *("DegreeView", "DiDegreeView", "InDegreeView", "OutDegreeView", "MultiDegreeView", "DiMultiDegreeView"),
        *("InMultiDegreeView", "OutMultiDegreeView"),
    ),
}
"""Views on its own dicts that a graph keeps once they were used."""

_CONTENT = "graphs of networkx whose attributes are numbers, texts, lists and arrays are read from pickles"


class _PickledGraph(StandIn):
    """A graph before its tables are made; `multigraph`: its edges have keys."""

    multigraph = False


_STAND_INS = {
    (f"networkx.classes.{module}", name): type(f"_{name}", (_PickledGraph,), {"multigraph": "Multi" in name})
    for module, name in _GRAPHS.items()
}
_VIEW_STAND_INS = {
    (f"networkx.classes.{module}", name): type(f"_{name}", (StandIn,), {})
    for module, names in _VIEWS.items()
    for name in names
}


def read_pickled_graph(path: Path) -> tuple[AttributeTable, AttributeTable]:
    """Return the tables of edges and of vertices of the graph that is pickled in the file `path`, perhaps in .gz.

    Raises RefusedPickle (a DataError) for a pickle that names anything else, DataError for a damaged one.
    """
    with open_bytes(path) as file, damage_explained(f"{path}: its pickle"):
        found = CarefulUnpickler(
            file, str(path), of_numpy() | of_plain() | _STAND_INS | _VIEW_STAND_INS, _CONTENT
        ).load()
        if not isinstance(found, _PickledGraph) or not isinstance(found.state, dict):
            raise DataError(f"{path} holds a pickled {type(found).__name__.strip('_')}, not a graph of networkx")
        vertices, adjacency = (_of(found.state, name, path) for name in ("node", "adj"))
        return tables_of(path, vertices, adjacency.items(), found.multigraph)


def _of(state: dict, name: str, path: Path) -> dict[Any, Any]:
    """Return the dict of a graph that is called `_name`, or before networkx 2 `name`."""
    found = state.get(f"_{name}", state.get(name))
    if not isinstance(found, dict):
        raise DataError(f"{path}: its graph has no dict {name!r}; is it of networkx?")
    return found
