"""Which vertices each layer computes: those that are asked for, and below them all that the layer above reads."""

from __future__ import annotations

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.dataset.topology import Topology
from leapmpi.plan.homes import home_of
from leapmpi.system.jit import compiled


@compiled
def _mark(destinations, indptr, indices, marked):
    """Mark the in-neighbours of `destinations`."""
    for i in range(len(destinations)):
        for e in range(indptr[destinations[i]], indptr[destinations[i] + 1]):
            marked[indices[e]] = True


def destinations_by_layer(
    topology: Topology, communicator: Communicator, rank_offsets: np.ndarray, wanted: np.ndarray, layers: int
) -> list[np.ndarray]:
    """By layer, the first one first: the vertices of this rank that it computes, int64 ascending. Collective.

    wanted: int64 ascending, the vertices of this rank whose output of the last layer is asked for; rank_offsets:
    int64[ranks + 1]. A layer computes what the layer after it reads: its destinations and their in-neighbours.
    """
    first, end = (int(each) for each in rank_offsets[communicator.rank : communicator.rank + 2])
    # Where all vertices are wanted, each layer needs all.
    if not communicator.all_gather_rows(np.array([end - first - len(wanted)])).any():
        return [wanted] * layers
    found = [wanted]
    for _ in range(layers - 1):
        found.insert(0, _with_in_neighbours(topology, communicator, rank_offsets, found[0]))
    return found


def _with_in_neighbours(
    topology: Topology, communicator: Communicator, rank_offsets: np.ndarray, destinations: np.ndarray
) -> np.ndarray:
    """The vertices of this rank among the destinations of all ranks and their in-neighbours. Collective."""
    marked = np.zeros(topology.vertices, bool)
    marked[destinations] = True
    _mark(destinations, topology.indptr, topology.indices, marked)
    own = slice(*rank_offsets[communicator.rank : communicator.rank + 2].tolist())

    # Those at home elsewhere are named to their owners.
    here = marked[own].copy()
    marked[own] = False
    remote = np.flatnonzero(marked)
    counts = np.bincount(home_of(remote, rank_offsets), minlength=communicator.size).astype(np.int64)
    named, _ = communicator.exchange_ids(remote, counts, IdCodec.home_ranks(rank_offsets))
    here[named - own.start] = True
    return own.start + np.flatnonzero(here)
