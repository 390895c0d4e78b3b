"""Draws on a device without some edges, as sampling/edges/left_out.py has them: from shorter copies of lists.

The copies lie after the lists of the topology, so that a hop is drawn at once, whoever has lost an edge.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology, placed
from leapmpi.sampling.edges.left_out import LeftOut


class DeviceLeftOut:
    """The copies of `left_out`, and who draws from them."""

    def __init__(self, left_out: LeftOut, topology: DeviceTopology) -> None:
        self.of, self._whole = left_out, topology
        arrays = left_out.vertices, left_out.topology.indptr, left_out.scale, left_out.numbers
        self._vertices, indptr, self._scale, kept = (placed(array, topology.device) for array in arrays)
        self._start, self._degree = indptr[:-1] + len(topology.indices), indptr.diff()
        self.topology = topology.with_copies(kept)

    def lists(self, to: Destinations) -> tuple[Destinations, Tensor | None]:
        """`to`, from the lists that they draw from; and float64[n], how much longer these were, None: nobody's."""
        if not len(self._vertices):
            return to, None
        number = torch.searchsorted(self._vertices, to.vertices).clamp(max=len(self._vertices) - 1)
        lost = self._vertices[number] == to.vertices
        start = torch.where(lost, self._start[number], to.start)
        degree = torch.where(lost, self._degree[number], to.degree)
        return to._replace(start=start, degree=degree), torch.where(lost, self._scale[number], 1.0)
