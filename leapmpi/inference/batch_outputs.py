"""Outputs of a model for batches of roots with a fixed key, from the blocks that they draw.

Scoring computes samples in this way. So does prediction where each root bounds by its own time what it reads: a vertex
then has other rows for each bound, which no layer of the whole graph can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from leapmpi.config.schema import Config
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.selection import bytes_by_mode, exchange_mode, fewest_bytes
from leapmpi.runs.progress_line import step
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.relation_lists import scoring_fanouts
from leapmpi.system.counter_rng import TEST, DrawKey

MOST_ROOTS = 4096
"""Roots that a rank embeds at once, at most."""

GROUP = 4096
"""Vertices or edges of all ranks that are scored together, where the earliest bounds by its time what all see."""

_MOST_EDGES = 1 << 20
"""Edges of a batch, at most, unless one root has more; of bounded roots those of the first two hops."""


def roots_at_once(fanouts: tuple[int, ...]) -> int:
    """Return how many roots to embed at once, by the edges that `fanouts` draw at most; all in-neighbours count as one.

    Scores do not depend on it but for rounding.
    """
    drawn = np.cumprod([1 if each == ALL else each for each in fanouts], dtype=np.float64).sum()
    return int(max(1, min(MOST_ROOTS, _MOST_EDGES // drawn)))


def batch_outputs(
    ctx: RankContext,
    key: DrawKey,
    roots: np.ndarray,
    modes: Sequence[ExchangeMode | None],
    choose: Callable[[MiniBatch], ExchangeMode],
) -> list[Tensor]:
    """Return the outputs float[k, width] for `roots` (int64[k]) of the model of each mode; None: `choose` names one.

    Collective.
    """
    sample = modes[0].sample if modes[0] else ctx.sampler.sample
    micro_batch = MicroBatch(roots, sample(key, roots), None)
    minibatch = MiniBatch(None, key, [micro_batch], drops=False)
    chosen = [mode or choose(minibatch) for mode in modes]
    chosen[0].request(minibatch)
    fetch_edge_features(ctx, minibatch.micro_batches)
    minibatch.complete()
    if len(chosen) > 1:
        chosen[0].share_among_models(micro_batch)
    return [mode.logits(minibatch, 0) for mode in chosen]


def mode_for_scoring(ctx: RankContext, minibatch: MiniBatch, remote: str) -> ExchangeMode:
    """Return the mode `remote`, or for auto the one of fewest bytes: not by clocks, so that scores stay the same.

    Collective.
    """
    return exchange_mode(fewest_bytes(bytes_by_mode(minibatch, ctx)) if remote == "auto" else remote, ctx)


def bounded_outputs(config: Config, ctx: RankContext, roots: np.ndarray) -> np.ndarray:
    """Return the outputs for `roots` (int64[k], distinct, any vertices), each from edges that its time lets it see.

    They are all of them, or as many as `evaluate.fanout` says, drawn as for the test split. The numbers of roots may
    differ between ranks. Returns float[k, width]. Collective.
    """
    layers = config.evaluation_fanout
    types = ctx.sampler.types
    of_relations = scoring_fanouts(types, config.sampling, layers) if types else None
    # Draws have the key of the test split, so that a row gets the same answer here and in its scores.
    key = DrawKey(TEST, ctx.seed, 0, 0)
    sampler = ctx.sampler.drawing.for_scoring(layers, {}, GROUP, of_relations)
    assert sampler is not None, "a sampler with bounds scores by them"
    ctx = replace(ctx, sampler=with_edge_data(sampler, ctx.edge_features is not None), drops=False)

    cut = cut_by_edges(ctx, roots, layers)
    # The first batch chooses the mode for all: scores and predictions should not depend on the cut.
    modes: list[ExchangeMode | None] = [None]

    def choose(minibatch: MiniBatch) -> ExchangeMode:
        found = modes[0] = mode_for_scoring(ctx, minibatch, config.strategy.remote)
        return found

    outputs = []
    with step("prediction", len(cut), "batches") as shown:
        for batch in cut:
            (found,) = batch_outputs(ctx, key, batch, modes, choose)
            outputs.append(found.cpu().numpy().copy())
            shown.advance(1)
    return np.concatenate(outputs)


def cut_by_edges(ctx: RankContext, roots: np.ndarray, fanouts: tuple[int, ...]) -> list[np.ndarray]:
    """Cut `roots` (int64[k]) into batches of about as many edges as memory holds.

    Equally many on all ranks, since each exchanges rows with all in every batch; the last may be empty. Collective.
    """
    topology = ctx.sampler.topology
    edges = topology.degree(roots)
    if ALL in fanouts[1:]:
        # A neighbour of a root may have a long list, which is read for each bound.
        of_root = np.repeat(np.arange(len(roots)), edges)
        lists = topology.degree(topology.in_neighbours(roots))
        edges = edges + np.bincount(of_root, lists, len(roots)).astype(np.int64)
    number = np.cumsum(edges) // _MOST_EDGES + np.arange(len(roots)) // MOST_ROOTS
    cut = np.split(roots, np.flatnonzero(np.diff(number)) + 1)
    batches = int(ctx.communicator.all_gather_rows(np.array([len(cut)])).max())
    return cut + [roots[:0]] * (batches - len(cut))
