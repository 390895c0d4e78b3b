"""Topology in device memory, and the frontier of a sample, numbered there as frontier.py does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import Topology
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.triton_choice import serves

_COPIED_BYTES = 64 << 20
"""Bytes of the topology, possibly a mapped file, that are read and copied at once."""

_NOWHERE = torch.iinfo(torch.int32).max
"""Position of a vertex that is not in the frontier."""


class Destinations(NamedTuple):
    """Destinations of a hop, int64[n] each: vertices, first entries and lengths of their lists, original ids.

    Lists are those of the topology, as long as in-degrees, or shorter copies without left-out edges.
    """

    vertices: Tensor
    start: Tensor
    original: Tensor
    degree: Tensor

    def part(self, rows: slice | Tensor) -> Destinations:
        """Return the destinations of `rows`."""
        return Destinations(*(each[rows] for each in self))


class DeviceTopology:
    """Whole topology on `device`: indptr int64[n + 1], indices (as stored) and original_id int64[n].

    A place is the position of a list entry: its number in the topology, or, from the number of edges on, a position in
    `kept`. `kept` (int64) holds the numbers of the entries of shorter copies.
    """

    def __init__(self, topology: Topology, device: torch.device) -> None:
        self.device = device
        self.typed = topology.types is not None
        self.indptr, self.indices, self.original_id = (
            placed(array, device) for array in (topology.indptr, topology.indices, topology.original_id)
        )
        self.kept: Tensor | None = None

    def with_copies(self, kept: Tensor) -> DeviceTopology:
        """Return the same memory, with shorter copies of some lists after all lists."""
        found = copy(self)
        found.kept = kept if len(kept) else None
        return found

    def numbers(self, places: Tensor) -> Tensor:
        """Return the numbers in the topology of the edges at `places` (int64[k]): int64[k]."""
        if self.kept is None:
            return places
        whole = len(self.indices)
        return torch.where(places < whole, places, self.kept[(places - whole).clamp(min=0)])

    @staticmethod
    def needed_bytes(topology: Topology) -> int:
        """Return the bytes of a topology on a device, with working memory of a frontier."""
        arrays = topology.indptr, topology.indices, topology.original_id
        return sum(array.nbytes for array in arrays) + 4 * topology.vertices


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy `array`, which may be mapped and read-only, to `device` in its dtype, some MiB at a time."""
    out = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, device=device)
    step = max(1, _COPIED_BYTES // array.itemsize)
    for first in range(0, len(array), step):
        block = np.array(array[first : first + step])
        out[first : first + len(block)].copy_(torch.from_numpy(block))
    return out


class DeviceFrontier:
    """Distinct vertices in order of first appearance, as `reached`, on the device.

    Keeps 4 bytes per vertex of the graph: its position in the frontier.
    """

    def __init__(self, topology: DeviceTopology, kernels: ModuleType | None = None) -> None:
        """Start empty. Vertices are numbered by torch, or by the `kernels` of `numbering_kernels`."""
        self._topology, self._kernels = topology, kernels
        size = topology.original_id.shape
        self._place = torch.full(size, _NOWHERE, dtype=torch.int32, device=topology.device)
        self._table = torch.empty(4, 0, dtype=torch.int64, device=topology.device)
        """Rows of `reached`, where kernels number vertices."""
        self.reached = Destinations(*self._table)

    @property
    def count(self) -> int:
        """Number of vertices so far."""
        return len(self.reached.vertices)

    def begin(self, roots: np.ndarray) -> None:
        """Append `roots` (int64[k]) to an empty frontier. Raises ValueError unless they are distinct."""
        topology, ids = self._topology, placed(roots, self._topology.device)
        if self._kernels is None:
            self.add(ids)
            if self.count == len(roots):
                return
        elif len(np.unique(roots)) == len(roots):
            self._table = self._kernels.begun(ids, self._place, topology.indptr, topology.original_id)
            self.reached = Destinations(*self._table)
            return
        raise ValueError("roots must be distinct")

    def add(self, vertices: Tensor) -> Tensor:
        """Append the new ones among `vertices` (integers[k]). Returns their positions: int32[k], or int64[k]."""
        topology, known = self._topology, self.count
        if self._kernels is not None:
            arrays = self._place, topology.indptr, topology.original_id
            self._table = self._kernels.appended(vertices, *arrays, self._table)
            self.reached = Destinations(*self._table)
            return self._kernels.positions(vertices, self._place)
        ids = vertices.long()

        # The least number under which each vertex is named, after all places that are taken: the same in whichever
        # order they are written, and no vertex that has a place gets another.
        number = torch.arange(known, known + len(ids), dtype=torch.int32, device=ids.device)
        self._place.scatter_reduce_(0, ids, number, "amin")
        new = ids[self._place[ids] == number]
        self._place[new] = torch.arange(known, known + len(new), dtype=torch.int32, device=ids.device)

        start = topology.indptr[new]
        found = new, start, topology.original_id[new], topology.indptr[new + 1] - start
        self.reached = Destinations(*map(torch.cat, zip(self.reached, found, strict=True)))
        return self._place[ids]

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Run the body, then forget all vertices, even after an error."""
        try:
            yield
        except BaseException:
            # After an error any vertex may have a position, so clear all.
            self._place.fill_(_NOWHERE)
            self._clear()
            raise
        self._clear()

    def _clear(self) -> None:
        self._place.index_fill_(0, self.reached.vertices, _NOWHERE)
        self._table = self._table[:, :0]
        self.reached = self.reached.part(slice(0, 0))


def first_destinations(topology: DeviceTopology, count: int) -> Destinations:
    """Return the first `count` destinations of `topology`, or all, which kernels are tried on."""
    first = DeviceFrontier(topology)
    first.add(torch.arange(min(count, len(topology.original_id)), device=topology.device))
    return first.reached


def numbering_kernels(device: torch.device) -> ModuleType | None:
    """Return numbering_triton.py if its kernels serve `device`."""
    if on_host(device) or not serves("numbers of vertices", device, partial(_tried, device)):
        return None
    # Here and not above: it loads Triton.
    from leapmpi.device import numbering_triton

    return numbering_triton


def _tried(device: torch.device) -> bool:
    """Return whether Triton numbers some vertices as torch does, in two hops."""
    from leapmpi.device import numbering_triton

    count = 5000
    topology = DeviceTopology(
        Topology(np.arange(count + 1) ** 2, np.empty(0, np.int32), np.arange(count)[::-1].copy()), device
    )
    torch_way, triton_way = DeviceFrontier(topology), DeviceFrontier(topology, numbering_triton)
    roots = np.arange(0, count, 7)
    for each in (torch_way, triton_way):
        each.begin(roots)
    for hop in (1, 2):
        ids = torch.arange(3000 * hop, device=device) * (1000 * hop + 37) % 4001
        if not torch.equal(torch_way.add(ids).long(), triton_way.add(ids)):
            return False
    return all(map(torch.equal, torch_way.reached, triton_way.reached))
