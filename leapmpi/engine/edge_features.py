"""Features of edges: rows held by the owner of the destination, fetched by the numbers of the edges.

Weights of edges are in the topology of every node; features are not, since they may be wide. Each rank holds the rows
of the in-edges of its vertices, so that only those of remote destinations cross ranks, each once per mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.config.schema import Config, models_of
from leapmpi.dataset.partitioned import Dataset, Part
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.row_request import RowRequest
from leapmpi.nn.model import reads_edge_features
from leapmpi.plan.homes import rank_offsets
from leapmpi.system.phase_timers import PhaseTimers

KIND = "edge_features"
"""Kind under which their bytes are counted, and name by which layers declare them."""


def reads_features(config: Config, dataset: Dataset) -> bool:
    """Return whether edges have features, and one of the models that `config` describes reads them."""
    return any(reads_edge_features(each, dataset) for each in models_of(config))


def edge_fetcher(
    communicator: Communicator,
    dataset: Dataset,
    parts: Sequence[Part],
    device: torch.device,
    dtype: torch.dtype,
    phases: PhaseTimers | None = None,
    starts: np.ndarray | None = None,
) -> FeatureFetcher:
    """Return a fetcher of rows by the numbers of edges; `parts` are those of this rank, and have features.

    starts: int64[ranks + 1], the first part of each rank; when None all hold as many, about.
    """
    shard, offsets = edge_rows(dataset, parts, communicator.rank, communicator.size, starts)
    return FeatureFetcher(communicator, shard, offsets, device, dtype, KIND, phases)


def edge_rows(
    dataset: Dataset, parts: Sequence[Part], rank: int, ranks: int, starts: np.ndarray | None = None
) -> tuple[HostShard, np.ndarray]:
    """Return the rows of the in-edges of `parts`, those of `rank`, and int64[ranks + 1], the first edge of each rank.

    starts: as in `edge_fetcher`.
    """
    offsets = rank_offsets(dataset.edge_offsets, ranks, starts)
    rows = [part.edge_data.features for part in parts]
    return HostShard([array for array in rows if array is not None], int(offsets[rank])), offsets


def fetch_edge_features(ctx: RankContext, micro_batches: Sequence[MicroBatch]) -> None:
    """Give every micro-batch the features of the edges of its blocks, where a layer reads them. Collective."""
    if ctx.edge_features is None:
        return
    numbers, places = _distinct(micro_batches)
    exchange = ctx.edge_features.prepare(numbers)
    exchange.move()
    if not ctx.communicator.carries:
        return
    rows = exchange.unpack()
    assert isinstance(rows, torch.Tensor), "features of edges are stored dense"

    # A copy for each block: the memory of the rows is used again.
    found = iter(rows[torch.from_numpy(place).to(ctx.device)] for place in places)
    for micro_batch in micro_batches:
        micro_batch.edge_features = [next(found) for _ in micro_batch.blocks]


def edge_request(micro_batches: Sequence[MicroBatch], edge_offsets: np.ndarray, rank: int) -> RowRequest:
    """Return the rows of edges that `rank` needs, of ranks whose edges begin at `edge_offsets` int64[ranks + 1].
    Local.
    """
    return RowRequest(_distinct(micro_batches)[0], edge_offsets, rank)


def set_dummy_features(ctx: RankContext, micro_batch: MicroBatch) -> None:
    """Give `micro_batch` zeros for the features of edges, to compile and to measure with. Local."""
    if ctx.edge_features is not None:
        fetcher = ctx.edge_features
        counts = [block.edges for block in micro_batch.blocks]
        width = fetcher.shard.width
        micro_batch.edge_features = [torch.zeros(k, width, dtype=fetcher.dtype, device=ctx.device) for k in counts]


def _distinct(micro_batches: Sequence[MicroBatch]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct numbers of the edges of all blocks, ascending, and by block the place of each edge among
    them.
    """
    of_blocks = [
        block.edge_numbers for each in micro_batches for block in each.blocks if block.edge_numbers is not None
    ]
    numbers, inverse = np.unique(np.concatenate([np.empty(0, np.int64), *of_blocks]), return_inverse=True)
    return numbers, np.split(inverse, np.cumsum([len(each) for each in of_blocks])[:-1])
