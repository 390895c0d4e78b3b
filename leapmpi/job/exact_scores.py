"""Exact scores of the best weights at the end of a run whose splits were scored on sampled neighbourhoods.

They are computed where that is predicted to take less than a tenth of the training; otherwise the command is named.
"""

from __future__ import annotations

import shlex
import statistics

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ResourceError
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.evaluation.vertex_scoring import VertexScoring
from leapmpi.inference.drawn_lists import most_edges
from leapmpi.inference.layerwise import runs_in_layers
from leapmpi.job.resume import broadcast_arrays
from leapmpi.plan.homes import in_range
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.system.counter_rng import DrawKey
from leapmpi.training.trainer import Trainer

_SHARE = 0.1
"""Share of the seconds of training that exact scores may take."""

_FIXED = 0.1
"""Seconds that they take at least: planning, compiled kernels."""


def exact_scores(trainer: Trainer) -> dict[str, float | None] | None:
    """Return exact scores of the best weights by split; None where they take too long or do not apply. Collective.

    The parameters of the model are those of the best epoch afterwards.
    """
    if not (trainer.config.evaluation_samples and _applies(trainer)):
        return None
    all_neighbours = trainer.config.replaced({"evaluate.fanout": (ALL,), "evaluate.limit": 0})
    evaluator = Evaluator(all_neighbours, trainer.loaded)
    if not evaluator.scoring.outputs.exact or not _is_cheap(trainer):
        return None
    communicator = trainer.ctx.communicator
    weights = broadcast_arrays(trainer.models.best.weights if trainer.world.rank == 0 else None, communicator)
    trainer.ctx.parameters.assign(weights, "best epoch")
    try:
        with trainer.ctx.phases("evaluate"):
            return evaluator.scores()
    except ResourceError as error:
        # All ranks raise it alike, and the scores of the run stand without.
        if not error.agreed:
            raise
        return None


def command(data: str, run: str) -> str:
    """Return the command that scores the best weights of the run in folder `run` exactly."""
    return f"leapmpi evaluate {shlex.quote(data)} {shlex.quote(run)} --eval-fanout all"


def _applies(trainer: Trainer) -> bool:
    """Return whether one whole model of vertices was scored, over a whole topology, and has best weights. Local."""
    config, ctx = trainer.config, trainer.ctx
    whole = isinstance(trainer.loaded.topology, Topology)
    several = bool(config.strategy.vary or config.strategy.prepare_ranks)
    vertices = ctx.task.roots == "vertices" and ctx.learned is None
    return whole and vertices and not several and runs_in_layers(ctx.model) and trainer.models.best.epoch >= 0


def _is_cheap(trainer: Trainer) -> bool:
    """Return whether exact scores are predicted to take less than _SHARE of the training. Collective.

    An evaluation takes as long per edge and row as those of the run took; rank 0 decides.
    """
    ctx, scoring, topology = trainer.ctx, trainer.evaluator.scoring, trainer.loaded.topology
    assert isinstance(topology, Topology), "the topology is whole"
    assert isinstance(scoring, VertexScoring), "vertices are scored"
    # Edges, and a row of each own vertex and layer, are the work of both kinds of evaluation.
    layers, begin, end = len(trainer.config.sampling.fanout), *ctx.local_range
    own = [in_range(ids, begin, end) for _, ids in scoring.splits.values()]
    exact = most_edges(ctx, topology, (ALL,) * layers, np.concatenate(own)) + layers * (end - begin)
    sampled = sum(_sampled_work(scoring, name, ids) for name, ids in zip(scoring.splits, own, strict=True))
    all_exact, all_sampled = ctx.communicator.all_gather_rows(np.array([exact, sampled], np.int64)).sum(axis=0)

    training = sum(each["seconds"] for each in trainer.epochs)
    spent = [each["evaluation_seconds"] for each in trainer.epochs if "evaluation_seconds" in each]
    predicted = _FIXED + statistics.median(spent or [training]) * all_exact / max(1, all_sampled)
    # Clocks differ between ranks: that of rank 0 decides, as exact scores are collective.
    return bool(ctx.communicator.all_gather_rows(np.array([predicted < _SHARE * training], np.int64))[0, 0])


def _sampled_work(scoring: VertexScoring, split: str, ids: np.ndarray) -> int:
    """Return the edges and rows of the batches in which `ids` (int64, of this rank) are scored, by the first. Local."""
    if not len(ids):
        return 0
    ctx, batch = scoring.outputs.ctx, ids[: scoring.outputs.batch_size]
    blocks = ctx.sampler.sample(DrawKey(scoring.splits[split][0], ctx.seed, 0, 0), batch)
    return sum(block.edges + block.n_dst for block in blocks) * len(ids) // len(batch)
