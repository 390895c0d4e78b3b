"""The split of one budget of memory between lists and feature rows: a job's choice, and its prediction.

With `--topology-memory auto` the ranks of a node hold lists and rows in `--feature-memory` times their number, so that
an iteration reads fewest bytes from files (features/memory_split.py). `leapmpi plan` predicts the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.config.schema import Config
from leapmpi.config.setting import AUTO_SIZE
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.features.memory_split import FileReads, Range, Split, file_reads
from leapmpi.features.row_memory import room_of
from leapmpi.plan.homes import rank_offsets
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.session.topology_kind import SHARDED, list_room, root_chances
from leapmpi.system.memory import check_memory

if TYPE_CHECKING:
    from leapmpi.comm.world import World


def settle_split(
    config: Config, world: World, dataset: Dataset, topology: Topology | TopologyShard, offsets: np.ndarray
) -> tuple[Config, Split | None]:
    """Return `config` with the best split on this rank's node, and the split. Collective.

    There is one where `_is_open` and lists are whole. It depends on settings, dataset and ranks alone.
    offsets: int64[ranks + 1], first vertex of each rank.

    Raises ConfigError for memory that is too small, ResourceError for lack of it, on all ranks alike.
    """
    if isinstance(topology, TopologyShard) or not _is_open(config, dataset):
        return config, None
    here = all_gather_values(world.node_comm, world.rank)
    ranges = [(int(offsets[rank]), int(offsets[rank + 1])) for rank in here]

    def best() -> dict[str, float] | None:
        # One rank of the node reads all lists.
        if world.node_comm.rank:
            return None
        return vars(_best(config, dataset, topology, ranges, len(here) / world.size))

    split = Split(**all_gather_values(world.node_comm, world.on_all(best))[0])
    taken, mend = "the in-neighbour lists that are read most take", "give a smaller --feature-memory"
    world.on_all(lambda: check_memory(split.lists, taken, world.host, mend))
    return _with(config, split), split


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
    return _with(config, _best(config, dataset, topology, _ranges(dataset, ranks)))


def reads_on_one_node(config: Config, dataset: Dataset, topology: Topology, sizes: Sequence[int]) -> list[FileReads]:
    """Predict the reads of files in a job of each number of ranks in `sizes` on one node. Local."""
    return _reads(config, dataset, topology, [_ranges(dataset, ranks) for ranks in sizes])


def given_memory(config: Config) -> tuple[int, int] | None:
    """Return the bytes that `config` gives to lists on a node, and to rows on a rank; None without limits of both."""
    lists, rows = list_room(config), room_of(config)
    return None if lists is None or rows is None or config.run.topology == SHARDED else (lists, rows)


def _ranges(dataset: Dataset, ranks: int) -> list[Range]:
    """Return the vertices of each of `ranks` ranks."""
    return list(pairwise(rank_offsets(dataset.offsets, ranks).tolist()))


def _reads(
    config: Config, dataset: Dataset, topology: Topology, nodes: Sequence[Sequence[Range]], share: float = 1.0
) -> list[FileReads]:
    roots, row = root_chances(config, dataset, 0, dataset.vertices), dataset.part(0).dense_features
    return file_reads(topology, roots, config.sampling.fanout, row.shape[1] * row.itemsize, nodes, share)


def _best(config: Config, dataset: Dataset, topology: Topology, ranges: Sequence[Range], share: float = 1.0) -> Split:
    room = room_of(config)
    assert room is not None, "a split is chosen of the memory for rows"
    (reads,) = _reads(config, dataset, topology, [ranges], share)
    return reads.best(room * len(ranges))
