"""The split of one budget of memory between lists and feature rows: a job's choice, and its prediction.

With `--topology-memory auto` the ranks of a node hold lists and rows in `--feature-memory` times their number, so that
an iteration reads fewest bytes from files (features/memory_split.py). `leapmpi plan` predicts the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.config.schema import Config
from leapmpi.config.setting import AUTO_SIZE
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.features.expected_reads import Reads, reads_by_hops, spread
from leapmpi.features.memory_split import (
    FileReads,
    Needs,
    Range,
    Split,
    file_reads,
    joined,
    least,
    reads_of_shard,
    split_sizes,
    with_rest_for_lists,
)
from leapmpi.features.row_memory import room_of
from leapmpi.plan.homes import rank_offsets
from leapmpi.sampling.sharded.topology_shard import TopologyShard, shard_of
from leapmpi.session.topology_kind import SHARDED, LoadedLists, list_room, reads_of_own, root_chances
from leapmpi.system.memory import check_memory

if TYPE_CHECKING:
    from leapmpi.comm.world import World


class SettledSplit(NamedTuple):
    """A split, None where none is open, the settings with it, and the reads of a shard that it was found by."""

    config: Config
    split: Split | None
    reads: Reads | None


def settle_split(config: Config, loaded: LoadedLists) -> SettledSplit:
    """Return `config` with the best split on this rank's node. Collective.

    There is one where `_is_open`. It depends on settings, dataset and ranks alone.

    Raises ConfigError for memory that is too small, ResourceError for lack of it, on all ranks alike.
    """
    world, dataset, topology, _, offsets = loaded
    if not _is_open(config, dataset):
        return SettledSplit(config, None, None)
    reads = None
    if isinstance(topology, TopologyShard):
        reads = reads_of_own(config, loaded, topology, config.sampling.fanout)
        split = _best_of_shards(config, loaded, topology, reads)
    else:
        split = _best_of_node(config, world, dataset, topology, offsets)
    taken, mend = "the in-neighbour lists that are read most take", "give a smaller --feature-memory"
    world.on_all(lambda: check_memory(split.lists, taken, world.host, mend))
    return SettledSplit(_with(config, split), split, reads)


def _best_of_node(config: Config, world: World, dataset: Dataset, topology: Topology, offsets: np.ndarray) -> Split:
    """Return the best split where lists are whole. Collective."""
    here = all_gather_values(world.node_comm, world.rank)
    ranges = [(int(offsets[rank]), int(offsets[rank + 1])) for rank in here]

    def best() -> dict[str, float] | None:
        # One rank of the node reads all lists.
        if world.node_comm.rank:
            return None
        return vars(_best(config, dataset, topology, ranges, len(here) / world.size))

    return Split(**all_gather_values(world.node_comm, world.on_all(best))[0])


def _best_of_shards(config: Config, loaded: LoadedLists, shard: TopologyShard, reads: Reads) -> Split:
    """Return the best split where each rank has lists of its own. Collective."""
    world, fanouts, ranks = loaded.world, config.sampling.fanout, loaded.world.node_comm.size
    own = world.on_all(lambda: reads_of_shard(shard.own, reads, fanouts[-1], _row_bytes(loaded.dataset)))
    needs = Needs(*np.max(all_gather_values(world.node_comm, list(own.needs)), axis=0).tolist())
    needs, room = needs._replace(lists=ranks * needs.lists), _room(config) * ranks
    # Each rank counts its own reads with every split.
    sizes = split_sizes(room, ranks, needs)
    own_reads = world.on_all(lambda: [own.read(lists // ranks, rows) for lists, rows in sizes])
    read = np.sum(all_gather_values(world.node_comm, own_reads), axis=0).tolist()
    best = least([Split(lists, rows, left) for (lists, rows), left in zip(sizes, read, strict=True)])
    return with_rest_for_lists(best, room, ranks, needs)


def _is_open(config: Config, dataset: Dataset) -> bool:
    """Return whether `config` leaves the split open, and `dataset` has rows that can be read from files."""
    dense = dataset.feature_dim > 0 and not dataset.sparse
    return config.run.topology_memory == AUTO_SIZE and given_memory(config) is not None and dense


def _with(config: Config, split: Split) -> Config:
    """Return `config` with the sizes of `split`."""
    # No size is zero.
    lists, rows = (str(max(1, size)) for size in (split.lists, split.rows))
    return config.replaced({"run.topology_memory": lists, "strategy.feature_memory": rows})


def with_best_split(dataset: Dataset, topology: Topology, config: Config, ranks: int) -> Config:
    """Return `config` with the sizes that a job of `ranks` ranks on one node chooses, where they are open. Local."""
    if not _is_open(config, dataset):
        return config
    if config.run.topology != SHARDED:
        return _with(config, _best(config, dataset, topology, _ranges(dataset, ranks)))
    (reads,), room = reads_on_one_node(config, dataset, topology, [ranks]), _room(config) * ranks
    return _with(config, with_rest_for_lists(reads.best(room), room, ranks, reads.needs))


def reads_on_one_node(config: Config, dataset: Dataset, topology: Topology, sizes: Sequence[int]) -> list[FileReads]:
    """Predict the reads of files in a job of each number of ranks in `sizes` on one node. Local."""
    nodes = [_ranges(dataset, ranks) for ranks in sizes]
    return (
        _reads_of_shards(config, dataset, topology, nodes)
        if config.run.topology == SHARDED
        else _reads(config, dataset, topology, nodes)
    )


def _reads_of_shards(
    config: Config, dataset: Dataset, topology: Topology, nodes: Sequence[Sequence[Range]]
) -> list[FileReads]:
    """Predict the reads where each rank has lists of its own, which all ranks request."""
    roots, fanouts = root_chances(config, dataset, 0, dataset.vertices), config.sampling.fanout
    found = reads_by_hops(roots, fanouts, partial(spread, topology.indptr, 0, topology.indices))
    row = _row_bytes(dataset)

    def of_rank(first: int, end: int) -> FileReads:
        reads = Reads(found.lists[first:end], found.rows[first:end])
        return reads_of_shard(shard_of(topology, first, end, False).own, reads, fanouts[-1], row)

    return [joined([of_rank(*each) for each in ranges]) for ranges in nodes]


def given_memory(config: Config) -> tuple[int, int] | None:
    """Return the bytes that `config` gives to lists on a node, and to rows on a rank; None without limits of both."""
    lists, rows = list_room(config), room_of(config)
    return None if lists is None or rows is None else (lists, rows)


def _ranges(dataset: Dataset, ranks: int) -> list[Range]:
    """Return the vertices of each of `ranks` ranks."""
    return list(pairwise(rank_offsets(dataset.offsets, ranks).tolist()))


def _reads(
    config: Config, dataset: Dataset, topology: Topology, nodes: Sequence[Sequence[Range]], share: float = 1.0
) -> list[FileReads]:
    roots = root_chances(config, dataset, 0, dataset.vertices)
    return file_reads(topology, roots, config.sampling.fanout, _row_bytes(dataset), nodes, share)


def _row_bytes(dataset: Dataset) -> int:
    """Return the bytes of a row of features."""
    row = dataset.part(0).dense_features
    return row.shape[1] * row.itemsize


def _best(config: Config, dataset: Dataset, topology: Topology, ranges: Sequence[Range], share: float = 1.0) -> Split:
    (reads,) = _reads(config, dataset, topology, [ranges], share)
    return reads.best(_room(config) * len(ranges))


def _room(config: Config) -> int:
    """Return the bytes that a rank brings to the budget of its node."""
    room = room_of(config)
    assert room is not None, "a split is chosen of the memory for rows"
    return room
