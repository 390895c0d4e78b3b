"""Ranks without a job: the context of a strategy on each of R ranks, in one process."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset, Part
from leapmpi.dataset.topology import Topology
from leapmpi.engine.edge_features import edge_fetcher, reads_features
from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.fetcher_choice import fetcher_class
from leapmpi.features.learned_rows import LearnedShard
from leapmpi.features.row_memory import RowMemory, room_of
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.mapped_shard import dense_shard
from leapmpi.features.shards.row_request import RowCache
from leapmpi.features.shards.sparse_shard import SparseShard, fill_entry_counts
from leapmpi.features.typed_shard import TypedShard, replicated_rows
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.nn.model import input_width, model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.task import task_of
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.construction.build import build_sampler, build_sharded_sampler, largest_number
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.root_times import share_times
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import shard_of
from leapmpi.session.setup import typed_shard_of
from leapmpi.session.topology_kind import (
    SHARDED,
    check_topology,
    names_sources,
    reads_last_sources,
    room_for_copies,
)
from leapmpi.system.phase_timers import PhaseTimers


def virtual_ranks(
    config: Config,
    dataset: Dataset,
    topology: Topology,
    world: VirtualWorld,
    part: Callable[[int], Part],
    real: RankContext | None = None,
) -> list[RankContext]:
    """Return the contexts of the ranks of `world`. They share the model, and read no feature row.

    They share the sampler, too, unless the topology is sharded: each then draws from lists of its own, and from those
    of others through its communicator. `part` opens a part of the dataset. In a job, sampler, model and numbers of
    entries are those of `real`, the context of this rank. Raises DataError when the dataset has fewer parts than ranks.
    """
    ranks = len(world.communicators)
    offsets = rank_offsets(dataset.offsets, ranks)
    device, dtype = torch.device("cpu"), getattr(torch, config.train.parameter_dtype)
    entry_counts = _entry_counts(dataset, real) if dataset.sparse else None

    # Shared by all ranks: with 1024 of them, copies would not fit.
    reads = reads_features(config, dataset)
    samplers = _samplers(config, dataset, topology, world, offsets, real)
    model = real.model if real else model_of(config, dataset)
    task = task_of(config, dataset)
    parameters = real.parameters if real else ParameterLayout(model)

    # What each rank has: its rank and its shards.
    contexts, width = [], 0 if dataset.feature_dim else input_width(config, dataset)
    edges, learned = task.roots == "edges", (width, dtype) if width else None
    shards = _Shards(config, dataset, part, entry_counts, learned, edges)
    for rank, (communicator, sampler) in enumerate(zip(world.communicators, samplers, strict=True)):
        parts = parts_of_rank(dataset.parts, ranks, rank)
        features, labels = shards.features(parts), shards.labels(parts)
        if dataset.types is not None:
            features = typed_shard_of(config, dataset, parts, None)
        held = [part(number) for number in parts] if reads else []
        contexts.append(
            RankContext(
                communicator=communicator,
                phases=PhaseTimers(),
                sampler=sampler,
                model=model,
                task=task,
                parameters=parameters,
                features=fetcher_class(features)(communicator, features, offsets, device, dtype),
                labels=FeatureFetcher(communicator, labels, offsets, device, task.label_dtype(dtype), "labels"),
                rank_offsets=offsets,
                device=device,
                seed=config.train.seed,
                answers=sampler.answers if isinstance(sampler, ShardedSampler) else None,
                in_place=config.run.device != "cuda",
                counts_sources=True,
                edge_features=edge_fetcher(communicator, dataset, held, device, dtype) if reads else None,
            )
        )
    if dataset.types is not None and ranks > 1:
        _hold_replicated(dataset, contexts)
    return contexts


def _hold_replicated(dataset: Dataset, contexts: Sequence[RankContext]) -> None:
    """Let all ranks hold the features of types that partitioning has marked."""
    shard = contexts[0].features.shard
    assert isinstance(shard, TypedShard), "the graph is typed"
    ids = replicated_rows(dataset, shard)
    # One table for all: own rows of such types count as copies, and are no more fetched than these.
    cache = RowCache(ids, dataset.vertices) if len(ids) else None
    for ctx in contexts:
        ctx.features.cache = cache


def _samplers(
    config: Config,
    dataset: Dataset,
    topology: Topology,
    world: VirtualWorld,
    offsets: np.ndarray,
    real: RankContext | None,
) -> Sequence[Sampler]:
    """Return the sampler of each rank: one for all; with --topology sharded, of the lists of its own vertices."""
    reads, train = reads_features(config, dataset), dataset.splits.train
    if config.run.topology != SHARDED:
        one = real.sampler if real else build_sampler(config, topology, train, edge_numbers=reads)
        return [one] * len(world.communicators)
    check_topology(config, dataset)
    largest = largest_number(topology, dataset.vertices, config.sampling.fanout)
    named, last = names_sources(config, dataset), reads_last_sources(config, dataset)
    # Each rank gets the lists that it would hold in a job, and no other.
    shards = [shard_of(topology, first, end, named) for first, end in pairwise(offsets.tolist())]
    rooms = [room_for_copies(config, dataset, shard.own.list_bytes, len(shards)) for shard in shards]
    samplers = [
        build_sharded_sampler(config, shard, communicator, offsets, dataset, largest, 1, reads, last, room)
        for shard, communicator, room in zip(shards, world.communicators, rooms, strict=True)
    ]
    splits = None if task_of(config, dataset).roots == "edges" else vars(dataset.splits).values()

    # Times of roots cross ranks once at the start, as in training.
    def share(rank: int) -> None:
        share_times(samplers[rank].inner, shards[rank], world.communicators[rank], offsets, splits)

    world.run(share)
    return samplers


def _entry_counts(dataset: Dataset, real: RankContext | None) -> np.ndarray:
    """Count the entries of the sparse rows of all vertices: int32[n]."""
    if real and isinstance(real.features.shard, SparseShard):
        return real.features.shard.entry_counts
    counts = np.empty(dataset.vertices, np.int32)
    for part in range(dataset.parts):
        fill_entry_counts(dataset, part, counts)
    return counts


class _Shards:
    """Shards of features and labels of virtual ranks; no row is read.

    learned: width and dtype of rows that take the place of features. edges: whether roots are edges, so that labels of
    vertices are not read.
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        part: Callable[[int], Part],
        entry_counts: np.ndarray | None,
        learned: tuple[int, torch.dtype] | None,
        edges: bool,
    ) -> None:
        self._dataset, self._part, self._entry_counts, self._learned = dataset, part, entry_counts, learned
        self._room, most = room_of(config), int(np.diff(dataset.offsets).max())
        self._memory = RowMemory(self._room)
        self._labels = _unread(most, np.empty(0, np.int64) if edges else part(0).known_labels)
        # Opening the files of many parts takes longer than all else.
        self._rows = None
        if not learned and entry_counts is None and self._room is None:
            self._rows = _unread(most, part(0).dense_features)

    def features(self, parts: range) -> HostShard:
        """Return the shard of the features of consecutive `parts`."""
        first = int(self._dataset.offsets[parts.start])
        if self._learned:
            width, dtype = self._learned
            nothing = np.zeros((), str(dtype).removeprefix("torch."))
            return LearnedShard(np.broadcast_to(nothing, (sum(self._sizes(parts)), width)), first, self._memory)
        if self._rows is not None:
            rows = [self._rows[:size] for size in self._sizes(parts)]
            return HostShard(rows, first, self._part(0).feature_scale)
        opened = [self._part(number) for number in parts]
        if self._entry_counts is not None:
            return SparseShard([each.sparse_features for each in opened], first, self._entry_counts)
        return dense_shard(opened, first, self._room)

    def labels(self, parts: range) -> HostShard:
        """Return the shard of the labels of consecutive `parts`."""
        return HostShard([self._labels[:size] for size in self._sizes(parts)], int(self._dataset.offsets[parts.start]))

    def _sizes(self, parts: range) -> list[int]:
        return np.diff(self._dataset.offsets[parts.start : parts.stop + 1]).tolist()


def _unread(rows: int, like: np.ndarray) -> np.ndarray:
    """Return `rows` rows like those of `like`, read-only, which take no memory unless they are read."""
    shape = rows, *like.shape[1:]
    region = mmap.mmap(-1, max(1, math.prod(shape) * like.itemsize), mmap.MAP_PRIVATE, mmap.PROT_READ)
    return np.frombuffer(region, like.dtype, math.prod(shape)).reshape(shape)
