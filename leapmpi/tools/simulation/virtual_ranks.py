"""Ranks without a job: the surroundings of a strategy on each of R ranks, in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import RankContext
from leapmpi.features.compression import encoding_for
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shard import HostShard
from leapmpi.features.sparse_fetcher import fetcher_for
from leapmpi.features.sparse_shard import SparseShard, fill_entry_counts
from leapmpi.nn.build import build_model
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.build import build_sampler
from leapmpi.system.phase_timers import PhaseTimers


@dataclass(frozen=True)
class VirtualRank:
    """Stands where a strategy looks for its wire: it tells who one is, and carries nothing."""

    rank: int
    size: int


def virtual_ranks(config: Config, dataset: Dataset, topology: Topology, ranks: int) -> list[RankContext]:
    """The surroundings of every one of `ranks` ranks; they share sampler and model, and read no feature row.

    Raises DataError when the dataset has fewer parts than ranks.
    """
    offsets = rank_offsets(dataset.offsets, ranks)
    dtype = getattr(torch, config.train.dtype)
    sampler = build_sampler(config, topology, dataset.splits.train)
    layers = len(config.sampling.fanout)
    model = build_model(config.model, layers, dataset.feature_dim, dataset.classes, config.train.seed, dtype)
    common: dict[str, Any] = {
        "phases": PhaseTimers(),
        "sampler": sampler,
        "model": model,
        "parameters": ParameterLayout(model),
        "rank_offsets": offsets,
        "device": torch.device("cpu"),
        "seed": config.train.seed,
        "in_place": config.run.device != "cuda",
    }
    wire_dtype = config.strategy.wire_dtype
    counts = np.empty(dataset.vertices, np.int32) if dataset.sparse else None
    for part in range(dataset.parts) if counts is not None else ():
        fill_entry_counts(dataset, part, counts)
    return [_seat(common, dataset, VirtualRank(rank, ranks), dtype, wire_dtype, counts) for rank in range(ranks)]


def _seat(
    common: dict[str, Any],
    dataset: Dataset,
    seat: Any,
    dtype: torch.dtype,
    wire_dtype: str,
    counts: np.ndarray | None,
) -> RankContext:
    offsets, device = common["rank_offsets"], common["device"]
    parts = [dataset.part(part) for part in parts_of_rank(dataset.parts, seat.size, seat.rank)]
    first = int(offsets[seat.rank])
    rows = [part.features for part in parts]
    features = HostShard(rows, first) if counts is None else SparseShard(rows, first, counts)
    labels = HostShard([part.labels for part in parts], first)
    return RankContext(
        communicator=seat,
        features=fetcher_for(seat, features, offsets, device, dtype, encoding=encoding_for(wire_dtype, features.dtype)),
        labels=FeatureFetcher(seat, labels, offsets, device, torch.int64, "labels"),
        **common,
    )
