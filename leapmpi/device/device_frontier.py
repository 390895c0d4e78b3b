"""The topology in device memory, and the vertices that a sample has reached, numbered there as frontier.py does."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import Topology


class DeviceTopology:
    """indptr int64[n + 1], indices (as stored) and original_id int64[n] of a whole topology on `device`."""

    def __init__(self, topology: Topology, device: torch.device) -> None:
        self.device = device
        self.indptr, self.indices, self.original_id = (
            _on(array, device) for array in (topology.indptr, topology.indices, topology.original_id)
        )

    @staticmethod
    def needed_bytes(topology: Topology) -> int:
        """Bytes that a topology takes on a device, working memory of a frontier included."""
        arrays = topology.indptr, topology.indices, topology.original_id
        return sum(array.nbytes for array in arrays) + 12 * topology.vertices


def _on(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy of `array`, which may be mapped and read-only, on `device`."""
    return torch.from_numpy(np.array(array)).to(device)


class DeviceFrontier:
    """Distinct vertices in order of first appearance: `src`, `original` and `degree`, int64[count] each, on the device.

    Keeps 12 bytes per vertex of the graph: where each stands in the frontier, and where it was named first.
    """

    def __init__(self, topology: DeviceTopology) -> None:
        self._topology = topology
        vertices = len(topology.original_id)
        self._place = torch.full((vertices,), -1, dtype=torch.int32, device=topology.device)
        self._first = torch.zeros(vertices, dtype=torch.int64, device=topology.device)
        empty = torch.empty(0, dtype=torch.int64, device=topology.device)
        self.src = self.original = self.degree = empty

    @property
    def count(self) -> int:
        """Vertices so far."""
        return len(self.src)

    def add(self, vertices: Tensor) -> Tensor:
        """Append the new ones among `vertices` (integers[k]). Returns the position of each of them: int32[k]."""
        ids = vertices.long()
        number = torch.arange(len(ids), device=ids.device)

        # The least number under which each vertex is named: the same in whichever order they are written.
        self._first[ids] = len(ids)
        self._first.scatter_reduce_(0, ids, number, "amin")
        new = ids[(self._first[ids] == number) & (self._place[ids] < 0)]
        known = self.count
        self._place[new] = torch.arange(known, known + len(new), dtype=torch.int32, device=ids.device)

        start = self._topology.indptr[new]
        self.src = torch.cat((self.src, new))
        self.original = torch.cat((self.original, self._topology.original_id[new]))
        self.degree = torch.cat((self.degree, self._topology.indptr[new + 1] - start))
        return self._place[ids]

    def clear(self) -> None:
        """Forget all vertices."""
        self._place[self.src] = -1
        self.src, self.original, self.degree = (each[:0] for each in (self.src, self.original, self.degree))
