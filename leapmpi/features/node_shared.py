"""One copy of the topology per node, shared by its ranks.

Ranks that cannot reach the common memory (separate process or container name spaces) hold a private copy each.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology, empty_topology, fill_topology, layout, placed, with_lists_in
from leapmpi.features.expected_reads import READS_BYTES
from leapmpi.features.list_memory import read_singly
from leapmpi.features.shards.sparse_shard import fill_entry_counts
from leapmpi.runs.progress_line import step
from leapmpi.system.memory import check_memory
from leapmpi.system.unnamed_files import mapped_file, unnamed_file

Arrays = TypeVar("Arrays")


def share_topology(
    world: World,
    dataset: Dataset,
    weights: bool = False,
    times: bool = False,
    labels: bool = False,
    room: int | None = None,
) -> tuple[Topology, str]:
    """Share the topology of `dataset`; also return "one copy per node" or "a copy per rank". Collective.

    weights, times, labels: whether those of edges are held too, which the dataset must have. room: bytes of memory that
    in-neighbour lists may take on a node; they are in a file if they take more.

    Raises ResourceError when a node has too little memory or disk, DataError when a part is missing or damaged, and
    ConfigError when temporary files are in memory.
    """
    # Arrays are allocated but not touched until memory is known to suffice, so they take none yet.
    like = empty_topology(dataset, weights, times, labels)
    in_file = room is not None and like.list_bytes > room
    shared = {name: each for name, each in like.arrays.items() if not in_file or name not in like.list_arrays}

    def arrays(memory: mmap.mmap | None, file: mmap.mmap | None) -> Topology:
        # Views into the common memory, in the layout that all ranks compute alike.
        made = like if memory is None else replace(like, **placed(shared, memory))
        return made if file is None else with_lists_in(made, file)

    advice = "use nodes with more memory, --topology sharded on several nodes, --topology-memory, or a smaller graph"
    names = _Names("the graph's topology takes", "leapmpi-topology", advice, "in-neighbour lists take")
    sizes = _Sizes(_size(shared))
    if in_file:
        sizes = _Sizes(_size(shared), _size(like.list_arrays), max(room or 0, READS_BYTES * like.vertices))
    topology, common = _share(world, dataset, sizes, names, arrays, fill_topology)
    if in_file:
        read_singly(topology)
    return topology, "one copy per node" if common else "a copy per rank"


def share_entry_counts(world: World, dataset: Dataset) -> np.ndarray:
    """Share the numbers of entries of the sparse feature rows of all vertices, int32[n]. Collective.

    Raises ResourceError when a node has too little memory, DataError when a part is missing or damaged.
    """
    n = dataset.vertices

    def array(memory: mmap.mmap | None, _: mmap.mmap | None) -> np.ndarray:
        return np.empty(n, np.int32) if memory is None else np.frombuffer(memory, np.int32)

    advice = "use nodes with more memory or a smaller graph"
    names = _Names("the lengths of sparse feature rows take", "leapmpi-entries", advice)
    return _share(world, dataset, _Sizes(4 * n), names, array, fill_entry_counts)[0]


@dataclass(frozen=True)
class _Names:
    """Beginnings of messages about memory and about a file, the name of the memory, and what to do for lack of it."""

    taken: str
    memory: str
    advice: str
    in_file: str = ""


@dataclass(frozen=True)
class _Sizes:
    """Bytes of memory, of a file (0: none), and of the memory that its content, or finding what is read most, takes."""

    memory: int
    file: int = 0
    of_file: int = 0


def _share(
    world: World,
    dataset: Dataset,
    sizes: _Sizes,
    names: _Names,
    arrays: Callable[[mmap.mmap | None, mmap.mmap | None], Arrays],
    fill: Callable[[Dataset, int, Arrays], None],
) -> tuple[Arrays, bool]:
    """Share memory and a file that `fill` fills part by part; return them as `arrays` views them. Collective.

    Both are common to the node; else (None, and False) memory is private, and each rank has a file.
    """
    # All ranks must agree before memory is mapped: an error of one must reach all.
    world.on_all(lambda: check_memory(sizes.memory + sizes.of_file, names.taken, world.host, names.advice))
    memory, file = map_shared(world.node_comm, sizes.memory, names.memory), None
    if sizes.file and memory is not None:
        handle = world.on_all(lambda: unnamed_file(sizes.file, names.in_file) if world.node_comm.rank == 0 else None)
        file = map_shared(world.node_comm, sizes.file, names.memory, handle)
    if sizes.file and file is None:
        memory, file = None, world.on_all(lambda: mapped_file(sizes.file, names.in_file))
    made = arrays(memory, file)

    # The ranks of a node share the parts of a common copy; a rank reads all parts of its private one.
    rank, ranks = (0, 1) if memory is None else (world.node_comm.rank, world.node_comm.size)

    def fill_parts() -> None:
        parts = range(rank, dataset.parts, ranks)
        with step(f"loading: {names.taken.rpartition(' ')[0]}", len(parts), "parts") as shown:
            for part in parts:
                fill(dataset, part, made)
                shown.advance(1)

    # Also a barrier: no rank continues before its node's copy is complete.
    world.on_all(fill_parts)
    return made, memory is not None


def _size(arrays: Mapping[str, np.ndarray]) -> int:
    return layout(arrays)[-1]
