"""Ranks without a job: the context of a strategy on each of R ranks, in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.edge_features import edge_fetcher, reads_features
from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.fetcher_choice import fetcher_for
from leapmpi.features.learned_rows import LearnedShard
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.mapped_shard import dense_shard
from leapmpi.features.shards.sparse_shard import SparseShard, fill_entry_counts
from leapmpi.nn.model import input_width, model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.task import task_of
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.construction.build import build_sampler, largest_number
from leapmpi.sampling.sharded.answer_format import answer_format
from leapmpi.session.topology_kind import SHARDED, check_topology, reads_last_sources
from leapmpi.system.phase_timers import PhaseTimers

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator


@dataclass(frozen=True)
class VirtualRank:
    """Takes the place of a communicator: it knows its rank, but cannot send (a leapmpi.plan.homes.RankView)."""

    rank: int
    size: int


def virtual_ranks(
    config: Config, dataset: Dataset, topology: Topology, ranks: int, real: RankContext | None = None
) -> list[RankContext]:
    """The context of each of `ranks` ranks. They share sampler and model, and read no feature row.

    In a job, sampler, model and numbers of entries are those of `real`, the context of this rank. Raises DataError when
    the dataset has fewer parts than ranks.
    """
    offsets = rank_offsets(dataset.offsets, ranks)
    device, dtype = torch.device("cpu"), getattr(torch, config.train.parameter_dtype)
    entry_counts = _entry_counts(dataset, real) if dataset.sparse else None

    # What all ranks share.
    phases = PhaseTimers()
    reads = reads_features(config, dataset)
    sampler = real.sampler if real else build_sampler(config, topology, dataset.splits.train, edge_numbers=reads)
    model = real.model if real else model_of(config, dataset)
    task = task_of(config, dataset)
    parameters = real.parameters if real else ParameterLayout(model)

    # With --topology sharded, how lists travel.
    answers = None
    if config.run.topology == SHARDED:
        check_topology(config, dataset)
        largest = largest_number(topology, dataset.vertices, config.sampling.fanout)
        carried = topology.edge_weight is not None
        answers = answer_format(
            largest, dataset.edges, sampler.weighted, reads, carried, reads_last_sources(config, dataset)
        )

    # What each rank has: its rank and its shards.
    contexts = []
    for rank in range(ranks):
        virtual_rank = VirtualRank(rank, ranks)
        held = [dataset.part(part) for part in parts_of_rank(dataset.parts, ranks, rank)] if reads else []
        width = 0 if dataset.feature_dim else input_width(config, dataset)
        features, labels = _shards(
            config, dataset, virtual_rank, int(offsets[rank]), entry_counts, (width, dtype), task.roots == "edges"
        )
        contexts.append(
            RankContext(
                # Nothing is sent, so its rank and its size are all that is read.
                communicator=cast("Communicator", virtual_rank),
                phases=phases,
                sampler=sampler,
                model=model,
                task=task,
                parameters=parameters,
                features=fetcher_for(virtual_rank, features, offsets, device, dtype),
                labels=FeatureFetcher(virtual_rank, labels, offsets, device, torch.int64, "labels"),
                rank_offsets=offsets,
                device=device,
                seed=config.train.seed,
                answers=answers,
                in_place=config.run.device != "cuda",
                counts_sources=True,
                edge_features=edge_fetcher(virtual_rank, dataset, held, device, dtype) if reads else None,
            )
        )
    return contexts


def _entry_counts(dataset: Dataset, real: RankContext | None) -> np.ndarray:
    """How many entries the sparse rows of all vertices have: int32[n]."""
    if real and isinstance(real.features.shard, SparseShard):
        return real.features.shard.entry_counts
    counts = np.empty(dataset.vertices, np.int32)
    for part in range(dataset.parts):
        fill_entry_counts(dataset, part, counts)
    return counts


def _shards(
    config: Config,
    dataset: Dataset,
    rank: VirtualRank,
    first: int,
    entry_counts: np.ndarray | None,
    learned: tuple[int, torch.dtype],
    edges: bool,
) -> tuple[HostShard, HostShard]:
    """Features and labels of a rank whose first vertex is `first`: mapped files, of which nothing is read.

    learned: width and dtype of rows that take the place of features, where the width is not 0. edges: whether roots are
    edges, so that labels of vertices are not read.
    """
    parts = [dataset.part(part) for part in parts_of_rank(dataset.parts, rank.size, rank.rank)]
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
