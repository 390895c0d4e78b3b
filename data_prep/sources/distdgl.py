"""Partitions of DistDGL (dgl.distributed.partition_graph, GraphStorm): a JSON file and a folder for each part.

Vertices have DistDGL's numbers, by part; orig_nids.dgl, where parts have it, says what they were called before. The
graph of a part is GraphBolt's fused_csc_sampling_graph.pt, or graph.npz, which distdgl_graphs.py makes of graph.dgl.
The cut is kept: `leapmpi-prep partition --method given`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import Chunk, EdgeArrays
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, ReadOptions, Source
from data_prep.formats.array_files import joined_rows, read_companions
from data_prep.formats.description import begins_with, entry, read_json
from data_prep.formats.dgl import distdgl_graphs
from data_prep.formats.dgl.dgl_tensors import read_dgl_tensors
from data_prep.formats.dgl.sampling_graph import read_sampling_graph
from data_prep.formats.known_names import first_known
from data_prep.formats.npz_reader import NpzFile
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, counted

SUMMARY = "JSON file of DistDGL's partitions, whose cut --method given keeps"
OPTIONS = frozenset({"features", "labels"})

_FEATURES = ("feat", "features", "x")
_LABELS = ("label", "labels", "y")
_EDGE_ARRAYS = {
    "weight": ("weight", "edge_weight", "w"),
    "features": ("feat", "features"),
    "time": ("time", "timestamp"),
}
_ROWS_AT_ONCE = 1 << 20
_ID = "_ID"
"""DGL's name for numbers in the whole graph."""


def can_read(path: Path) -> bool:
    """Recognise the JSON file by the keys of partition_graph."""
    return begins_with(path, "part_method", "halo_hops", "part-0")


@dataclass(frozen=True)
class _Partitions:
    """The JSON file at `path`, of a graph of one type."""

    path: Path
    found: dict[str, Any]
    workspace: Workspace | None

    @property
    def parts(self) -> int:
        """The number of parts."""
        return int(entry(self.found, "num_parts", int, str(self.path)))

    def bounds(self, key: str) -> np.ndarray:
        """Return first and end of the vertices ("node_map") or edges ("edge_map") of each part: int64[parts, 2]."""
        maps = entry(self.found, key, dict, str(self.path))
        if len(maps) != 1:
            what = "vertices" if key == "node_map" else "edges"
            raise DataError(
                f"{self.path} has {counted(len(maps), 'type')} of {what} ({', '.join(maps)}); graphs of one type are "
                "read"
            )
        (listed,) = maps.values()
        try:
            found = np.array(listed, np.int64)
        except (ValueError, TypeError, OverflowError):
            found = np.empty(0, np.int64)
        if found.shape == (self.parts,):  # ends alone, as DGL wrote them before 0.6
            found = np.stack([np.append(0, found[:-1]), found], axis=1)
        # Ranges must follow each other, or a vertex or an edge would have two owners.
        rising = found.shape == (self.parts, 2) and found[0, 0] == 0 and (found[:, 0] <= found[:, 1]).all()
        if not rising or (found[1:, 0] != found[:-1, 1]).any():
            raise DataError(f"{self.path}: {key} does not cut numbers from 0 on into {self.parts} ranges")
        return found

    def file(self, part: int, key: str) -> Path | None:
        """Return the file of `part` that the JSON calls `key`, None where it names none."""
        files = entry(self.found, f"part-{part}", dict, str(self.path))
        return self.path.parent / str(files[key]) if key in files else None

    @cached_property
    def of_vertices(self) -> list[dict[str, np.ndarray]]:
        """By part, what vertices carry."""
        return [self._tensors(part, "node_feats") for part in range(self.parts)]

    @cached_property
    def of_edges(self) -> list[dict[str, np.ndarray]]:
        """By part, what edges carry, in the order of DistDGL's numbers of edges."""
        return [self._tensors(part, "edge_feats") for part in range(self.parts)]

    def _tensors(self, part: int, key: str) -> dict[str, np.ndarray]:
        """Read the arrays of a file of tensors by name, without the type in front of it."""
        path = self.file(part, key)
        found = read_dgl_tensors(path) if path and path.exists() else {}
        rows = int(np.diff(self.bounds("node_map" if key == "node_feats" else "edge_map")[part])[0])
        for name, array in found.items():
            if array.ndim == 0 or len(array) != rows:
                raise DataError(
                    f"{path}: {name} has shape {list(array.shape)}, but part {part} has {counted(rows, 'row')}"
                )
        return {name.rpartition("/")[2]: array for name, array in found.items()}

    def joined(self, name: str) -> np.ndarray:
        """Join the vertex data `name` of all parts. Raises DataError where a part lacks it."""
        for part, found in enumerate(self.of_vertices):
            if name not in found:
                raise DataError(f"{self.file(part, 'node_feats')}: part {part} has no {name!r}, which others have")
        names = [f"{name!r} of part {part}" for part in range(self.parts)]
        return joined_rows([found[name] for found in self.of_vertices], names, self.workspace)

    def original_ids(self) -> np.ndarray | None:
        """Read the vertex numbers from before DistDGL's, where all parts have a file of them."""
        folders = [folder for part in range(self.parts) if (folder := self._folder(part))]
        files = [folder / "orig_nids.dgl" for folder in folders]
        if len(files) < self.parts or not all(file.is_file() for file in files):
            return None
        return np.concatenate([next(iter(read_dgl_tensors(file).values())) for file in files])

    def _folder(self, part: int) -> Path | None:
        files = entry(self.found, f"part-{part}", dict, str(self.path))
        return next((self.path.parent / str(file) for file in files.values()), self.path).parent

    def edges(self, part: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield chunks of the edges of `part`: int64[2, k] in DistDGL's numbers, and edge numbers or None."""
        bolt, plain = self.file(part, "part_graph_graphbolt"), self.file(part, "part_graph")
        made = plain and plain.with_suffix(".npz")
        if not made or not made.exists():
            if not bolt or not bolt.exists():
                raise DataError(f"{plain or self.path} is read by DGL alone; {self.convert()}")
            yield from self._of_graphbolt(bolt, part)
            return
        file = NpzFile(made, self.workspace)
        ends, numbers = [file.array(name) for name in ("source", "destination")], file.array("edge")
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            stop = start + _ROWS_AT_ONCE
            yield np.stack([end[start:stop] for end in ends]), numbers[start:stop]

    def convert(self) -> str:
        """Describe for messages how to make the graphs of the parts readable."""
        return (
            f"where DGL is installed, run: python {distdgl_graphs.__file__} {self.path} (it writes a graph.npz beside "
            "each graph.dgl), then import again"
        )

    def _of_graphbolt(self, path: Path, part: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        graph = read_sampling_graph(path, self.workspace)
        if _ID not in graph.of_vertices:
            raise DataError(f"{path} does not map its vertices to those of the whole graph (no {_ID})")
        first, end = self.bounds("node_map")[part]
        whole, numbers = graph.of_vertices[_ID].astype(np.int64), graph.of_edges.get(_ID)
        for low, chunk in graph.chunks():
            if chunk.max(initial=-1) >= len(whole) or chunk.min(initial=0) < 0:
                raise DataError(f"{path}: indices name vertices beyond its {len(whole):,}")
            edges = whole[chunk]
            # In-edges of vertices of the halo belong to other parts.
            own = (edges[1] >= first) & (edges[1] < end)
            yield edges[:, own], None if numbers is None else numbers[low : low + len(own)][own]


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph of the partitions that the JSON file `path` describes."""
    partitions = _Partitions(path, read_json(path), options.workspace)
    bounds = partitions.bounds("node_map")
    held = sorted(set().union(*partitions.of_vertices))
    options, named_features, named_labels = options.of_source(held, path)
    features, labels = read_companions(options)

    # What vertices carry.
    if features is None and (name := named_features or first_known(held, _FEATURES)):
        features = partitions.joined(name)
        features = features[:, None] if features.ndim == 1 else features
        named_features = name
    if labels is None and (name := named_labels or first_known(held, _LABELS)):
        labels = partitions.joined(name)
        named_labels = name
    splits = {name: partitions.joined(f"{name}_mask").astype(bool) for name in SPLIT_NAMES if f"{name}_mask" in held}

    # What edges carry, and the edges.
    carried = _carried(partitions)
    graph = RawGraph(
        int(bounds[-1, 1]),
        EdgeStream(lambda: _chunks(partitions, carried), carries=carried[0].dtype if carried else None),
        features,
        labels,
        splits or None,
        edges_name=str(path),
        split_origin=path.name,
        names=partitions.original_ids(),
        parts=np.repeat(np.arange(len(bounds), dtype=np.int32), np.diff(bounds, axis=1)[:, 0]),
    )
    taken = {named_features, named_labels, *(f"{name}_mask" for name in SPLIT_NAMES)}
    if left := [name for name in held if name not in taken]:
        graph.notes.append(f"vertex data not used: {', '.join(left)}")
    if graph.names is None:
        graph.notes.append(
            "vertices have DistDGL's numbers, those of part 0 first; there is no orig_nids.dgl with the original ones"
        )
    return graph


def _carried(partitions: _Partitions) -> list[EdgeArrays]:
    """Read the edge data of each part; empty where there are none with a known name."""
    held = set(partitions.of_edges[0]).intersection(*partitions.of_edges) if partitions.of_edges else set()
    names = {field: name for field, known in _EDGE_ARRAYS.items() if (name := first_known(sorted(held), known))}
    return [
        EdgeArrays(f"{partitions.path}: edges of part {part}", **{field: found[name] for field, name in names.items()})
        for part, found in enumerate(partitions.of_edges)
        if names
    ]


def _chunks(partitions: _Partitions, carried: list[EdgeArrays]) -> Iterator[Chunk]:
    """Yield the edges of all parts, with their data."""
    bounds = partitions.bounds("edge_map")
    for part in range(partitions.parts):
        found = 0
        for edges, numbers in partitions.edges(part):
            found += edges.shape[1]
            if not carried:
                yield edges
                continue
            if numbers is None:
                raise DataError(
                    f"{partitions.path}: GraphBolt's graph of part {part} was stored without edge numbers, "
                    f"so its edge data cannot be assigned; {partitions.convert()}"
                )
            # Edges of a part are numbered from its first one on; their data are rows of the part's file.
            rows = numbers.astype(np.int64) - bounds[part, 0]
            if len(rows) and not 0 <= rows.min() <= rows.max() < bounds[part, 1] - bounds[part, 0]:
                raise DataError(f"{partitions.path}: part {part} numbers an edge outside its range")
            records = np.empty(len(rows), carried[0].dtype)
            for field, array in carried[part].arrays.items():
                records[field] = array[rows]
            yield edges, records
        if found != bounds[part, 1] - bounds[part, 0]:
            raise DataError(
                f"{partitions.path}: part {part} holds {counted(found, 'edge')} of its own, but edge_map says "
                f"{bounds[part, 1] - bounds[part, 0]:,}; do both come from one cut?"
            )


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
