"""Ranks without a job: the context of a strategy on each of R ranks, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset, Part
from leapmpi.dataset.topology import Topology
from leapmpi.engine.edge_features import edge_fetcher, reads_features
from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.fetcher_choice import fetcher_for
from leapmpi.features.learned_rows import LearnedShard
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.mapped_shard import dense_shard
from leapmpi.features.shards.sparse_shard import SparseShard, fill_entry_counts
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.nn.model import input_width, model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.task import task_of
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.construction.build import build_sampler, largest_number
from leapmpi.sampling.sharded.answer_format import answer_format
from leapmpi.session.setup import typed_shard_of
from leapmpi.session.topology_kind import SHARDED, check_topology, reads_last_sources
from leapmpi.system.phase_timers import PhaseTimers


def virtual_ranks(
    config: Config,
    dataset: Dataset,
    topology: Topology,
    world: VirtualWorld,
    part: Callable[[int], Part],
    real: RankContext | None = None,
) -> list[RankContext]:
    """Return the contexts of the ranks of `world`. They share sampler and model, and read no feature row.

    `part` opens a part of the dataset. In a job, sampler, model and numbers of entries are those of `real`, the context
    of this rank. Raises DataError when the dataset has fewer parts than ranks.
    """
    ranks = len(world.communicators)
    offsets = rank_offsets(dataset.offsets, ranks)
    device, dtype = torch.device("cpu"), getattr(torch, config.train.parameter_dtype)
    entry_counts = _entry_counts(dataset, real) if dataset.sparse else None

    # Shared by all ranks: with 1024 of them, copies would not fit.
    reads = reads_features(config, dataset)
    sampler = real.sampler if real else build_sampler(config, topology, dataset.splits.train, edge_numbers=reads)
    model = real.model if real else model_of(config, dataset)
    task = task_of(config, dataset)
    parameters = real.parameters if real else ParameterLayout(model)

    # With --topology sharded, the size of replies depends on their format.
    answers = None
    if config.run.topology == SHARDED:
        check_topology(config, dataset)
        largest = largest_number(topology, dataset.vertices, config.sampling.fanout)
        carried = topology.edge_weight is not None
        last, typed = reads_last_sources(config, dataset), dataset.types is not None
        answers = answer_format(largest, dataset.edges, sampler.weighted, reads, carried, last, typed)

    # Shards are mapped files: requests need their sizes and owners alone, and read no row.
    contexts = []
    for rank, communicator in enumerate(world.communicators):
        numbers = parts_of_rank(dataset.parts, ranks, rank)
        held = [part(number) for number in numbers]
        width = 0 if dataset.feature_dim else input_width(config, dataset)
        features, labels = _shards(
            config, held, int(offsets[rank]), entry_counts, (width, dtype), task.roots == "edges"
        )
        if dataset.types is not None:
            features = typed_shard_of(config, dataset, numbers, None)
        contexts.append(
            RankContext(
                communicator=communicator,
                phases=PhaseTimers(),
                sampler=sampler,
                model=model,
                task=task,
                parameters=parameters,
                features=fetcher_for(communicator, features, offsets, device, dtype),
                labels=FeatureFetcher(communicator, labels, offsets, device, task.label_dtype(dtype), "labels"),
                rank_offsets=offsets,
                device=device,
                seed=config.train.seed,
                answers=answers,
                in_place=config.run.device != "cuda",
                counts_sources=True,
                edge_features=edge_fetcher(communicator, dataset, held, device, dtype) if reads else None,
            )
        )
    return contexts


def _entry_counts(dataset: Dataset, real: RankContext | None) -> np.ndarray:
    """Count the entries of the sparse rows of all vertices: int32[n]."""
    if real and isinstance(real.features.shard, SparseShard):
        return real.features.shard.entry_counts
    counts = np.empty(dataset.vertices, np.int32)
    for part in range(dataset.parts):
        fill_entry_counts(dataset, part, counts)
    return counts


def _shards(
    config: Config,
    parts: Sequence[Part],
    first: int,
    entry_counts: np.ndarray | None,
    learned: tuple[int, torch.dtype],
    edges: bool,
) -> tuple[HostShard, HostShard]:
    """Map features and labels of `parts`, whose first vertex is `first`, from files; nothing is read.

    learned: width and dtype of rows in place of features, where the width is not 0. edges: whether roots are edges, so
    that labels of vertices are not read.
    """
    labels = [np.zeros(part.vertices, np.int64) if edges else part.known_labels for part in parts]
    features: HostShard
    if learned[0]:
        rows = sum(part.vertices for part in parts)
        nothing = np.zeros((), str(learned[1]).removeprefix("torch."))
        features = LearnedShard(np.broadcast_to(nothing, (rows, learned[0])), first)
    elif entry_counts is None:
        features = dense_shard(parts, first, config.strategy.feature_memory)
    else:
        features = SparseShard([part.sparse_features for part in parts], first, entry_counts)
    return features, HostShard(labels, first)
