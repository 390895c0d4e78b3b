"""A pickled graph of networkx, read by the restricted unpickler: nothing in it is run."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.networkx_pickle import read_pickled_graph
from data_prep.sources import table
from data_prep.workspace import require_whole

SUMMARY = "pickled graph of networkx, .gpickle, .pickle or .pkl; read without running anything"
OPTIONS = table.OF_TABLES

_TIMES = 40
"""Memory that a graph takes, as a multiple of its pickle; measured: 38."""

_LOOKED_AT = 4096


def can_read(path: Path) -> bool:
    """Recognise .gpickle by name, and other pickles by networkx's module at their beginning; nothing is unpickled."""
    name = path.name.lower()
    if name.endswith((".gpickle", ".gpickle.gz")):
        return True
    if not name.endswith((".pickle", ".pkl")) or not path.is_file():
        return False
    with path.open("rb") as file:
        return b"networkx.classes" in file.read(_LOOKED_AT)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph that is pickled in the file `path`."""
    require_whole(str(path), path.stat().st_size, _TIMES, options.workspace)
    return table.graph_of(*read_pickled_graph(path), options)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
