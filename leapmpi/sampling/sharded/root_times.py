"""Times of roots, gathered from their owners: of the vertices of the splits, or of the newest edge of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.samplers.temporal import SameTime, Temporal, TimesOf
from leapmpi.sampling.sharded.shared_order import ascending, values_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator


def share_times(
    sampler: HopSampler,
    shard: TopologyShard,
    communicator: Communicator,
    rank_offsets: np.ndarray,
    splits: Iterable[np.ndarray] | None,
) -> None:
    """Give `sampler`, which draws from `shard`, times of other ranks if it reads them. Collective then.

    splits: ids of vertices that may be roots, int64 each; None where edges are roots.
    """
    if not isinstance(sampler, Temporal):
        return
    # The time of an edge bounds its draws itself; only the newest time over all ranks is missing.
    if splits is None:
        share_newest(sampler, communicator)
    else:
        share_root_times(sampler, shard, communicator, rank_offsets, splits)


def share_root_times(
    sampler: Temporal,
    shard: TopologyShard,
    communicator: Communicator,
    rank_offsets: np.ndarray,
    splits: Iterable[np.ndarray],
) -> None:
    """Give `sampler`, which draws from `shard`, the times of all vertices of `splits` (int64 each). Collective."""
    # Ids ascend, and ranks own ascending ranges, so gathered times are in order.
    ids = np.unique(np.concatenate([np.asarray(each) for each in splits]))
    bounds = np.searchsorted(ids, rank_offsets)
    own = ids[bounds[communicator.rank] : bounds[communicator.rank + 1]]

    counts = np.diff(bounds)
    times = sampler.root_time[shard.own_numbers(own)]
    padded = np.zeros(counts.max(), times.dtype)
    padded[: len(times)] = times
    table = communicator.all_gather_rows(padded)
    sampler.root_time = TimesOf(ids, np.concatenate([row[:count] for row, count in zip(table, counts, strict=True)]))


def share_newest(sampler: Temporal, communicator: Communicator) -> None:
    """Give `sampler`, whose roots are edges of a shard, the newest edge of all ranks. Collective.

    Draws without registered roots, as for measuring machines, see all edges.
    """
    own = sampler.newest
    words = np.array([len(own), 0])
    words[1:][: len(own)] = ascending(own).view(np.int64)
    known = communicator.all_gather_rows(words)
    times = values_of(known[known[:, 0] > 0, 1].view(np.uint64), own.dtype)
    sampler.newest = times.max(keepdims=True) if len(times) else own
    sampler.root_time = SameTime(sampler.newest)
