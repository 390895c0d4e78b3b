"""One copy of the topology per node, shared by its ranks.

The memory is an anonymous file (memfd). It has no name, so nothing is left in /dev/shm or a temporary folder however
the job ends, and the size of /dev/shm does not limit it. Ranks that cannot reach it (separate process or container
name spaces) hold a private copy each.
"""

from __future__ import annotations

import mmap

import numpy as np

from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology, empty_topology, fill_topology
from leapmpi.features.sparse_shard import fill_entry_counts
from leapmpi.system.memory import check_memory

_ALIGNMENT = 64


def share_topology(world: World, dataset: Dataset) -> tuple[Topology, str]:
    """The topology of `dataset`, and how it is held ("one copy per node" or "a copy per rank"). Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    starts = _layout(dataset)
    world.on_all(lambda: check_memory(starts[-1], "the graph's topology takes", world.host))
    memory = map_shared(world.node_comm, starts[-1], "leapmpi-topology")

    # The ranks of a node share the parts of a common copy; a rank reads all parts of its private one.
    if memory is None:
        topology, held = empty_topology(dataset), "a copy per rank"
        parts = range(dataset.parts)
    else:
        topology, held = _arrays(memory, dataset, starts), "one copy per node"
        parts = range(world.node_comm.rank, dataset.parts, world.node_comm.size)

    def fill() -> None:
        for part in parts:
            fill_topology(dataset, part, topology)

    # Also a barrier: no rank continues before its node's copy is complete.
    world.on_all(fill)
    return topology, held


def share_entry_counts(world: World, dataset: Dataset) -> np.ndarray:
    """How many entries the sparse feature rows of all vertices have, int32[n]. Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    size = 4 * dataset.vertices
    world.on_all(lambda: check_memory(size, "the lengths of sparse feature rows take", world.host))
    memory = map_shared(world.node_comm, size, "leapmpi-entries")
    counts = np.empty(dataset.vertices, np.int32) if memory is None else np.frombuffer(memory, np.int32)
    rank, ranks = (0, 1) if memory is None else (world.node_comm.rank, world.node_comm.size)

    def fill() -> None:
        for part in range(rank, dataset.parts, ranks):
            fill_entry_counts(dataset, part, counts)

    # Also a barrier, as above.
    world.on_all(fill)
    return counts


def _layout(dataset: Dataset) -> list[int]:
    """Where indptr, indices and original_id begin in the shared memory, and its size."""
    like = empty_topology(dataset)
    starts = [0]
    for array in (like.indptr, like.indices, like.original_id):
        starts.append(starts[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _arrays(memory: mmap.mmap, dataset: Dataset, starts: list[int]) -> Topology:
    """The topology of `dataset` in `memory`, unfilled."""
    like = empty_topology(dataset)
    views = [
        np.frombuffer(memory, array.dtype, len(array), start)
        for array, start in zip((like.indptr, like.indices, like.original_id), starts, strict=False)
    ]
    return Topology(*views)
