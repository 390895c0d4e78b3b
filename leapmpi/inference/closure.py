"""Which vertices each layer computes: those that are asked for, and below them all that the layer above reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.inference.own_lists import OwnLists
from leapmpi.system.jit import compiled


@compiled
def _mark(destinations, indptr, indices, marked):
    """Mark the in-neighbours of `destinations`."""
    for i in range(len(destinations)):
        for e in range(indptr[destinations[i]], indptr[destinations[i] + 1]):
            marked[indices[e]] = True


ListsOf = Callable[[int, np.ndarray], OwnLists]
"""The lists that a layer (0 is the first) reads for its destinations (int64 ascending)."""


class Needed(NamedTuple):
    """What a layer reads and computes."""

    lists: OwnLists
    read: np.ndarray
    """int64 ascending: the vertices of this rank whose input rows are read."""
    destinations: np.ndarray
    """int64 ascending: those whose output rows are computed."""


def needed_by_layer(
    lists_of: ListsOf, communicator: Communicator, rank_offsets: np.ndarray, wanted: np.ndarray, layers: int
) -> list[Needed]:
    """What each layer reads and computes, the first one first. Collective.

    wanted: int64 ascending, the vertices of this rank whose output of the last layer is asked for; rank_offsets:
    int64[ranks + 1]. A layer computes what the layer after it reads: its destinations and their in-neighbours.
    """
    first, end = (int(each) for each in rank_offsets[communicator.rank : communicator.rank + 2])
    # Where all vertices are wanted, each layer needs all.
    every = not communicator.all_gather_rows(np.array([end - first - len(wanted)])).any()
    found: list[Needed] = []
    destinations = wanted
    for layer in reversed(range(layers)):
        lists = lists_of(layer, destinations)
        read = wanted if every else _with_in_neighbours(lists, communicator, rank_offsets, destinations)
        found.insert(0, Needed(lists, read, destinations))
        destinations = read
    return found


def _with_in_neighbours(
    lists: OwnLists, communicator: Communicator, rank_offsets: np.ndarray, destinations: np.ndarray
) -> np.ndarray:
    """The vertices of this rank among the destinations of all ranks and their in-neighbours. Collective."""
    topology, numbers = lists.topology, lists.numbers(destinations)
    marked = np.zeros(topology.numbered, bool)
    marked[numbers] = True
    _mark(numbers, topology.indptr, topology.indices, marked)

    # Those at home elsewhere are named to their owners.
    here = marked[lists.first : lists.end].copy()
    marked[lists.first : lists.end] = False
    remote = np.flatnonzero(marked)
    counts = np.diff(np.searchsorted(remote, lists.bounds))
    codec = IdCodec.home_ranks(rank_offsets)
    named, _ = communicator.exchange_ids(lists.ids(remote), counts, codec)
    first = int(rank_offsets[communicator.rank])
    here[named - first] = True
    return first + np.flatnonzero(here)
