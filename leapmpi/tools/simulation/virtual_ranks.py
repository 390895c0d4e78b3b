"""Ranks without a job: the context of a strategy on each of R ranks, in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import RankContext
from leapmpi.engine.edge_features import edge_fetcher, reads_features
from leapmpi.features.compression import encoding_for
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.host_shard import HostShard
from leapmpi.features.sparse_fetcher import fetcher_for
from leapmpi.features.sparse_shard import SparseShard, fill_entry_counts
from leapmpi.nn.model import model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.build import build_sampler
from leapmpi.system.phase_timers import PhaseTimers

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator


@dataclass(frozen=True)
class VirtualRank:
    """Takes the place of a communicator: it knows its rank, but cannot send (a leapmpi.plan.homes.RankView)."""

    rank: int
    size: int


def virtual_ranks(config: Config, dataset: Dataset, topology: Topology, ranks: int) -> list[RankContext]:
    """The context of each of `ranks` ranks. They share sampler and model, and read no feature row.

    Raises DataError when the dataset has fewer parts than ranks.
    """
    offsets = rank_offsets(dataset.offsets, ranks)
    device, dtype = torch.device("cpu"), getattr(torch, config.train.dtype)
    entry_counts = None
    if dataset.sparse:
        entry_counts = np.empty(dataset.vertices, np.int32)
        for part in range(dataset.parts):
            fill_entry_counts(dataset, part, entry_counts)

    # What all ranks share.
    phases = PhaseTimers()
    model = model_of(config, dataset)
    reads = reads_features(config, dataset)
    sampler = build_sampler(config, topology, dataset.splits.train, edge_numbers=reads)
    parameters = ParameterLayout(model)

    # What each rank has: its rank and its shards.
    contexts = []
    for rank in range(ranks):
        virtual_rank = VirtualRank(rank, ranks)
        held = [dataset.part(part) for part in parts_of_rank(dataset.parts, ranks, rank)] if reads else []
        features, labels = _shards(dataset, virtual_rank, int(offsets[rank]), entry_counts)
        encoding = encoding_for(config.strategy.wire_dtype, features.dtype)
        contexts.append(
            RankContext(
                # Nothing is sent, so its rank and its size are all that is read.
                communicator=cast("Communicator", virtual_rank),
                phases=phases,
                sampler=sampler,
                model=model,
                parameters=parameters,
                features=fetcher_for(virtual_rank, features, offsets, device, dtype, encoding=encoding),
                labels=FeatureFetcher(virtual_rank, labels, offsets, device, torch.int64, "labels"),
                rank_offsets=offsets,
                device=device,
                seed=config.train.seed,
                in_place=config.run.device != "cuda",
                edge_features=edge_fetcher(virtual_rank, dataset, held, device, dtype) if reads else None,
            )
        )
    return contexts


def _shards(
    dataset: Dataset, rank: VirtualRank, first: int, entry_counts: np.ndarray | None
) -> tuple[HostShard, HostShard]:
    """Features and labels of a rank whose first vertex is `first`: mapped files, of which nothing is read."""
    parts = [dataset.part(part) for part in parts_of_rank(dataset.parts, rank.size, rank.rank)]
    features: HostShard
    if entry_counts is None:
        features = HostShard([part.dense_features for part in parts], first)
    else:
        features = SparseShard([part.sparse_features for part in parts], first, entry_counts)
    return features, HostShard([part.known_labels for part in parts], first)
