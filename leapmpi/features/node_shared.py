"""One copy of the topology per node, shared by its ranks.

Ranks that cannot reach the common memory (separate process or container name spaces) hold a private copy each.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology, empty_topology, fill_topology
from leapmpi.features.shards.sparse_shard import fill_entry_counts
from leapmpi.runs.progress_line import step
from leapmpi.system.memory import check_memory

_ALIGNMENT = 64

Arrays = TypeVar("Arrays")


def share_topology(
    world: World, dataset: Dataset, weights: bool = False, times: bool = False, labels: bool = False
) -> tuple[Topology, str]:
    """Share the topology of `dataset`; also return "one copy per node" or "a copy per rank". Collective.

    weights, times, labels: whether those of edges are held too, which the dataset must have.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    # Arrays are allocated but not touched until memory is known to suffice, so they take none yet.
    like = empty_topology(dataset, weights, times, labels)
    starts = _layout(like)

    def arrays(memory: mmap.mmap | None) -> Topology:
        if memory is None:
            return like
        # Views into the common memory, in the layout that all ranks compute alike.
        places = zip(like.arrays.items(), starts, strict=False)
        made: dict[str, Any] = {
            name: np.frombuffer(memory, array.dtype, len(array), start) for (name, array), start in places
        }
        return Topology(**made, types=like.types)

    advice = "use nodes with more memory, --topology sharded on several nodes, or a smaller graph"
    names = "the graph's topology takes", "leapmpi-topology", advice
    topology, shared = _share(world, dataset, starts[-1], names, arrays, fill_topology)
    return topology, "one copy per node" if shared else "a copy per rank"


def share_entry_counts(world: World, dataset: Dataset) -> np.ndarray:
    """Share the numbers of entries of the sparse feature rows of all vertices, int32[n]. Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    n = dataset.vertices

    def array(memory: mmap.mmap | None) -> np.ndarray:
        return np.empty(n, np.int32) if memory is None else np.frombuffer(memory, np.int32)

    advice = "use nodes with more memory or a smaller graph"
    names = "the lengths of sparse feature rows take", "leapmpi-entries", advice
    return _share(world, dataset, 4 * n, names, array, fill_entry_counts)[0]


def _share(
    world: World,
    dataset: Dataset,
    size: int,
    names: tuple[str, str, str],
    arrays: Callable[[mmap.mmap | None], Arrays],
    fill: Callable[[Dataset, int, Arrays], None],
) -> tuple[Arrays, bool]:
    """Share `size` bytes of memory that `fill` fills part by part; return them as `arrays` views them. Collective.

    The memory is common to the node, else (None, and False) private. `names` are those for messages and for the memory,
    and what to do where there is too little.
    """
    # All ranks must agree before memory is mapped: an error of one must reach all.
    world.on_all(lambda: check_memory(size, names[0], world.host, names[2]))
    memory = map_shared(world.node_comm, size, names[1])
    made = arrays(memory)

    # The ranks of a node share the parts of a common copy; a rank reads all parts of its private one.
    rank, ranks = (0, 1) if memory is None else (world.node_comm.rank, world.node_comm.size)

    def fill_parts() -> None:
        parts = range(rank, dataset.parts, ranks)
        with step(f"loading: {names[0].rpartition(' ')[0]}", len(parts), "parts") as shown:
            for part in parts:
                fill(dataset, part, made)
                shown.advance(1)

    # Also a barrier: no rank continues before its node's copy is complete.
    world.on_all(fill_parts)
    return made, memory is not None


def _layout(like: Topology) -> list[int]:
    """Return the offset of each array of `like` in the shared memory, and its size."""
    sizes = (-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in like.arrays.values())
    return list(accumulate(sizes, initial=0))
