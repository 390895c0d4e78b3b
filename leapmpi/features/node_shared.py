"""One copy of the topology per node, shared by its ranks, that cannot outlive them.

The memory is an anonymous file (memfd): it has no name, so nothing is left in /dev/shm or a temporary folder however
the job ends, and the size of /dev/shm does not limit it. Ranks that cannot reach it (separate process or container
name spaces) hold a private copy each.
"""

from __future__ import annotations

import mmap

import numpy as np

from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World, on_all_ranks
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology, empty_topology, fill_topology
from leapmpi.features.sparse_shard import fill_entry_counts
from leapmpi.system.memory import check_memory

_ALIGNMENT = 64


def share_topology(world: World, dataset: Dataset) -> tuple[Topology, str]:
    """The topology of `dataset`, and how it is held ("one copy per node" or "a copy per rank"). Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    sizes = _layout(dataset)
    on_all_ranks(world, lambda: check_memory(sizes[-1], "the graph's topology takes", world.host))
    memory = map_shared(world.node_comm, sizes[-1], "leapmpi-topology")
    if memory is None:
        topology, held, mine = empty_topology(dataset), "a copy per rank", range(dataset.parts)
    else:
        topology, held = _arrays(memory, dataset, sizes), "one copy per node"
        mine = range(world.node_comm.rank, dataset.parts, world.node_comm.size)

    def fill() -> None:
        for part in mine:
            fill_topology(dataset, part, topology.indptr, topology.indices, topology.original_id)

    # Also a barrier: no rank goes on before its node's copy is whole.
    on_all_ranks(world, fill)
    return topology, held


def share_entry_counts(world: World, dataset: Dataset) -> np.ndarray:
    """How many entries the sparse feature rows of all vertices have, int32[n]. Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    size = 4 * dataset.vertices
    on_all_ranks(world, lambda: check_memory(size, "the lengths of sparse feature rows take", world.host))
    memory = map_shared(world.node_comm, size, "leapmpi-entries")
    counts = np.empty(dataset.vertices, np.int32) if memory is None else np.frombuffer(memory, np.int32)
    rank, ranks = (0, 1) if memory is None else (world.node_comm.rank, world.node_comm.size)

    def fill() -> None:
        for part in range(rank, dataset.parts, ranks):
            fill_entry_counts(dataset, part, counts)

    on_all_ranks(world, fill)
    return counts


def _layout(dataset: Dataset) -> list[int]:
    """Where indptr, indices and original_id begin in the shared memory, and its size."""
    like = empty_topology(dataset)
    starts = [0]
    for array in (like.indptr, like.indices, like.original_id):
        starts.append(starts[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _arrays(memory: mmap.mmap, dataset: Dataset, starts: list[int]) -> Topology:
    like = empty_topology(dataset)
    views = [
        np.frombuffer(memory, array.dtype, len(array), start)
        for array, start in zip((like.indptr, like.indices, like.original_id), starts, strict=False)
    ]
    return Topology(*views)
