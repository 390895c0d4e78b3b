"""Counting of vertices in the statistics of a batch: each (layer, vertex) is counted by one rank.

The smallest rank that has a vertex in a layer counts it. The home of the vertex finds that rank, in one exchange a
mini-batch, before any weight is needed. Destinations of a layer are the first ones of the layer below. So the number of
the innermost block in which a rank has a vertex says all about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.nn.model import Model
from leapmpi.nn.norms import BatchRows, batch_norms
from leapmpi.plan.homes import home_of

_KIND = "activations"
"""The kind under which sums of rows and of their gradients are counted."""


def refusal(model: Model, time_steps: int, trains_labelled: bool) -> str | None:
    """Return why `model` cannot be trained in so many time steps, or by a strategy that trains it away from its
    roots.
    """
    if not batch_norms(model):
        return None
    if time_steps > 1:
        return (
            f"batch normalisation needs the rows of the whole batch before any goes on, and {time_steps} time steps "
            "compute them one after the other; use --time-steps 1, or --norm layer"
        )
    if not trains_labelled:
        return "batch normalisation is not offered where models travel; use leap, pull or p3, or --norm layer"
    return None


def check_time_steps(model: Model, time_steps: int, trains_labelled: bool) -> None:
    """Raise ConfigError, agreed on by all ranks, if `model` cannot be trained in so many time steps."""
    if reason := refusal(model, time_steps, trains_labelled):
        error = ConfigError(f"model.norm: {reason}")
        error.agreed = True
        raise error


def shared_out(ctx: RankContext, micro_batches: Sequence[MicroBatch]) -> BatchRows | None:
    """Return which rows of the one micro-batch this rank counts; None where the model has no batch normalisation.
    Collective.

    With it, how numbers of all ranks are gathered in training.
    """
    if not batch_norms(ctx.model):
        return None
    # A vertex may be a destination on several ranks; statistics count it once, on the lowest of them.
    (micro_batch,) = micro_batches
    counted: list[torch.Tensor | None] = [None]
    if ctx.ranks == 1:
        counted += [None for _ in micro_batch.blocks]
    else:
        until = _until(ctx, *_innermost(micro_batch), len(micro_batch.blocks))
        for number in reversed(range(len(micro_batch.blocks))):
            mine = np.flatnonzero(until[: micro_batch.blocks[number].n_dst] > number)
            counted.append(torch.from_numpy(mine).to(ctx.device))

    def gather(numbers: np.ndarray) -> np.ndarray:
        with ctx.phases("exchange"):
            return ctx.communicator.all_gather_rows(numbers, _KIND)

    return BatchRows(counted, gather)


def count_sums(model: Model, rows: BatchRows | None) -> None:
    """Count what statistics of `rows` and their gradients send in training. Collective."""
    if rows is None:
        return
    for norm in batch_norms(model).values():
        for numbers in norm.gathered:
            rows.gather(np.empty(numbers))


def statistics_bytes(model: Model, micro_batch: MicroBatch) -> int:
    """Return bytes, about, that batch normalisation takes while `micro_batch` is trained: rows of each, some in
    float64.
    """
    blocks, kept, largest = micro_batch.blocks, 0, 0
    for norm in batch_norms(model).values():
        numbers = blocks[len(blocks) - norm.after].n_dst * len(norm.gain)
        kept += numbers * norm.gain.element_size()
        largest = max(largest, 2 * numbers * torch.finfo(torch.float64).bits // 8)
    return kept + largest


def _innermost(micro_batch: MicroBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the destinations of all blocks, int64, and the innermost block that has each as a destination, uint8."""
    ends = [block.n_dst for block in micro_batch.blocks]
    return micro_batch.blocks[-1].dst, np.repeat(np.arange(len(ends), dtype=np.uint8), np.diff(ends, prepend=0))


def _until(ctx: RankContext, vertices: np.ndarray, innermost: np.ndarray, blocks: int) -> np.ndarray:
    """Return uint8[k]: the number of the first block in which a smaller rank has the vertex too, else `blocks`.
    Collective.

    From its innermost block to that one, exclusive, this rank counts a vertex of `vertices` (int64[k]).
    """
    home = home_of(vertices, ctx.rank_offsets)
    order, counts = np.argsort(home, kind="stable"), np.bincount(home, minlength=ctx.ranks).astype(np.int64)

    # Homes learn who has which vertex, in which blocks.
    communicator = ctx.communicator
    named, named_counts = communicator.exchange_ids(vertices[order], counts, ctx.features.id_codec)
    theirs = np.empty(len(named), np.uint8)
    communicator.exchange(innermost[order], counts, theirs, named_counts, "ids")

    # They tell each rank from which block on a smaller one counts.
    answers = _first_shared(named, theirs, blocks)
    arrived = np.empty(len(vertices), np.uint8)
    communicator.exchange(answers, named_counts, arrived, counts, "ids")
    until = np.empty(len(vertices), np.uint8)
    until[order] = arrived
    return until


def _first_shared(named: np.ndarray, innermost: np.ndarray, blocks: int) -> np.ndarray:
    """Return uint8[k]: for each naming of a vertex, the first block in which an earlier naming has it too, else
    `blocks`.

    named: int64[k]; innermost: uint8[k], the first block that each naming is for.
    """
    first = np.full(len(named), blocks, np.uint8)
    for number in reversed(range(blocks)):
        among = np.flatnonzero(innermost <= number)
        again = np.ones(len(among), bool)
        again[np.unique(named[among], return_index=True)[1]] = False
        first[among[again]] = number
    return first
