"""GraphBolt's FusedCSCSamplingGraph as torch.save writes it (fused_csc_sampling_graph.pt), read without DGL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import check_compressed, whole_numbers
from data_prep.formats.torch_files import load_torch
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, counted

_EDGES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class SamplingGraph:
    """In-neighbours by compressed columns: indptr [n + 1], indices [E], and what vertices [n] and edges [E] carry."""

    indptr: np.ndarray
    indices: np.ndarray
    of_vertices: dict[str, np.ndarray]
    of_edges: dict[str, np.ndarray]

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of the first edge of each chunk, and its edges int64[2, k], sources over destinations."""
        for low in range(0, len(self.indices), _EDGES_AT_ONCE):
            high = min(low + _EDGES_AT_ONCE, len(self.indices))
            first, last = np.searchsorted(self.indptr, [low, high - 1], "right") - 1
            inside = np.clip(self.indptr[first : last + 2], low, high)
            destinations = np.repeat(np.arange(first, last + 1), np.diff(inside))
            yield low, np.stack([self.indices[low:high].astype(np.int64), destinations])


def read_sampling_graph(path: Path, workspace: Workspace | None = None) -> SamplingGraph:
    """Read the graph of one type in the file `path`.

    Raises DataError where it is missing, damaged, something else, or has several types of vertices or edges.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    state = load_torch(path, workspace)
    tensors = state.get("independent_tensors") if isinstance(state, dict) else None
    if not isinstance(tensors, dict) or not {"indptr", "indices"} <= tensors.keys():
        raise DataError(f"{path} holds no FusedCSCSamplingGraph of GraphBolt")
    attributes = [_tensors(state.get(name), path) for name in ("node_attributes", "edge_attributes")]
    tensors = _tensors(tensors, path)
    # Graphs of one type store these arrays too, with trivial content.
    if len(tensors.get("node_type_offset", ())) > 2 or np.any(tensors.get("type_per_edge", 0)):
        raise DataError(f"{path} has several types of vertices or edges; graphs of one type are read")
    indptr, indices = (whole_numbers(tensors[name], f"{path}: {name}") for name in ("indptr", "indices"))
    check_compressed(indptr, len(indices), len(indptr) - 1, str(path))
    for found, rows, what in zip(attributes, (len(indptr) - 1, len(indices)), ("vertices", "edges"), strict=True):
        for name, array in found.items():
            if len(array) != rows:
                raise DataError(f"{path}: {name} has {counted(len(array), 'row')}, for {rows:,} {what}")
    return SamplingGraph(indptr, indices, *attributes)


def _tensors(held: object, path: Path) -> dict[str, np.ndarray]:
    """Check `held`, tensors with rows by name, empty for None. Raises DataError where it is something else."""
    if held is None:
        return {}
    rows = isinstance(held, dict) and all(isinstance(each, np.ndarray) and each.ndim for each in held.values())
    if not isinstance(held, dict) or not rows or any(each.dtype.hasobject for each in held.values()):
        raise DataError(f"{path} is damaged: vertex and edge data must be tensors with rows")
    return held
