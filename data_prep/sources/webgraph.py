"""WebGraph's BVGraph: NAME.graph, a bit stream, with NAME.properties beside it (Boldi and Vigna, WWW 2004)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.array_files import read_companions
from data_prep.formats.bvgraph import CODES, BVFormat, decode
from leapmpi.errors import DataError

SUMMARY = "WebGraph's BVGraph: NAME.graph with NAME.properties beside it"
OPTIONS = frozenset({"features", "labels"})

# Properties are a page of text; a larger file is of another kind.
_LONGEST_PROPERTIES = 2**20
_LARGEST = 2**40

# Prefix of a compression flag -> the field of BVFormat, and the codes that WebGraph knows for it.
_FLAGS = {
    "OUTDEGREES": ("outdegrees", ("GAMMA", "DELTA")),
    "REFERENCES": ("references", ("UNARY", "GAMMA", "DELTA")),
    "BLOCK_COUNT": ("block_counts", ("UNARY", "GAMMA", "DELTA")),
    "BLOCKS": ("blocks", ("UNARY", "GAMMA", "DELTA")),
    "RESIDUALS": ("residuals", ("GAMMA", "DELTA", "ZETA", "GOLOMB", "NIBBLE")),
}


def can_read(path: Path) -> bool:
    """Recognise .graph with .properties beside it."""
    return path.suffix == ".graph" and path.is_file() and path.with_suffix(".properties").is_file()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in NAME.graph at `path` (NAME.properties does too): an edge from each vertex to each successor."""
    path = path.with_suffix(".graph")
    properties = path.with_suffix(".properties")
    for file in (path, properties):
        if not file.is_file():
            raise DataError(f"{file} is missing; a BVGraph is NAME.graph with NAME.properties beside it")

    # The bit stream is mapped and decoded as the edges are read.
    form = _format(_properties(properties), str(properties))
    data = np.memmap(path, np.uint8, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, np.uint8)
    features, labels = read_companions(options)
    edges = EdgeStream(lambda: decode(data, form, str(path)), form.arcs)
    files = {path.name: "edges", properties.name: "sizes and codes"}
    return RawGraph(form.vertices, edges, features, labels, edges_name=str(path), files=files)


def _properties(path: Path) -> dict[str, str]:
    """Read the keys and values of a Java properties file."""
    if path.stat().st_size > _LONGEST_PROPERTIES:
        raise DataError(f"{path} is too long to be the properties of a graph")
    lines = (line.strip() for line in path.read_text("latin-1").splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _whole(properties: dict[str, str], key: str, name: str, default: int | None = None) -> int:
    """Return the property `key` as a whole number. Raises DataError where it is none, or missing without `default`."""
    text = properties.get(key, "" if default is None else str(default))
    if not text:
        raise DataError(f"{name} does not state {key!r}; are these the properties of a BVGraph?")
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= _LARGEST):
        raise DataError(f"{name}: {key} is {text[:40]!r}; expected a whole number from 0 to {_LARGEST:,}")
    return int(text)


def _format(properties: dict[str, str], name: str) -> BVFormat:
    """Return the format that the properties state. Raises DataError for an unsupported one."""
    # The class and version of the graph.
    kind = properties.get("graphclass", "").rpartition(".")[2]
    if kind != "BVGraph":
        raise DataError(f"{name}: the graph's class is {kind[:40] or 'not stated'}; only BVGraph is read")
    if properties.get("endianness", "big") != "big":
        raise DataError(f"{name}: the bit stream is {properties['endianness']}-endian; only big-endian ones are read")
    if _whole(properties, "version", name, 0) != 0:
        raise DataError(f"{name}: version {properties['version']} of BVGraph is not known; only 0 is")

    # Sizes, with WebGraph's defaults; then the codes, by flags.
    defaults = BVFormat(0, 0)
    form = BVFormat(
        vertices=_whole(properties, "nodes", name),
        arcs=_whole(properties, "arcs", name),
        window=_whole(properties, "windowsize", name, defaults.window),
        shortest_interval=_whole(properties, "minintervallength", name, defaults.shortest_interval),
        zeta=_whole(properties, "zetak", name, defaults.zeta),
    )
    if not 1 <= form.zeta <= 16:
        raise DataError(f"{name}: zetak is {form.zeta}; expected 1 to 16")
    stated = {}
    for flag in map(str.strip, properties.get("compressionflags", "").split("|")):
        prefix, _, code = flag.rpartition("_")
        field, codes = _FLAGS.get(prefix, ("", ()))
        if code in codes:
            stated[field] = CODES[code]
        elif flag and "OFFSETS" not in flag:
            raise DataError(f"{name}: unknown compression flag {flag[:40]!r}")
    return dataclasses.replace(form, **stated)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
