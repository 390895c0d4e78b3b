"""Scoring a split: every vertex on its home rank, with fixed draws, so that epochs and runs are comparable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import RankContext
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.engine.exchange.base import ExchangeMode, share_among_models
from leapmpi.engine.exchange.modes.raw import Raw
from leapmpi.engine.exchange.selection import bytes_by_mode, exchange_mode, fewest_bytes
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.errors import ConfigError
from leapmpi.nn.model import Model
from leapmpi.plan.homes import home_of
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TEST, VAL, DrawKey
from leapmpi.training import metrics


def choose_metric(metric: str, dataset: Dataset) -> str:
    """The metric to use. Raises ConfigError for one that does not fit the labels."""
    if metric == "auto":
        return "f1-micro" if dataset.multilabel else "accuracy"
    if metric == "accuracy" and dataset.multilabel:
        raise ConfigError("evaluate.metric: accuracy is not defined for multi-label data; use f1-micro or roc-auc")
    if metric == "roc-auc" and not dataset.multilabel and dataset.classes != 2:
        raise ConfigError(
            f"evaluate.metric: roc-auc needs 2 classes or multi-label data, this dataset has {dataset.classes} classes"
        )
    return metric


class Evaluator:
    """Scores splits of a loaded dataset. Draws depend on the split and the seed, not on the epoch.

    All ranks enter `round`, a context, for each batch together.
    """

    def __init__(self, config: Config, dataset: Dataset, topology: Topology, ctx: RankContext) -> None:
        self.metric = choose_metric(config.evaluate.metric, dataset)
        self.batch_size = config.evaluate.batch_size
        sampler = with_edge_data(
            NodeWiseSampler(topology, config.evaluation_fanout, ctx.sampler.threads), ctx.edge_features is not None
        )
        # Whole models are scored, on whole rows.
        self.ctx = replace(ctx, sampler=sampler, columns=None, drops=False)
        self._remote = config.strategy.remote
        self._mode: ExchangeMode | None = None
        self.multilabel = dataset.multilabel
        self.round: Callable[[], AbstractContextManager] = nullcontext
        self.classes = dataset.classes
        self.splits = {"val": (VAL, dataset.splits.val), "test": (TEST, dataset.splits.test)}

    def dry_run(self) -> None:
        """Choose the mode of the first round and score a few of its vertices, to compile kernels. Collective."""
        self._use_whole_model()
        filled = [split for split in self.splits.values() if len(split[1])]
        if not filled:
            return
        stream, ids = filled[0]
        mine = ids[home_of(ids, self.ctx.rank_offsets) == self.ctx.communicator.rank][: self.batch_size]
        key = DrawKey(stream, self.ctx.seed, 0, 0)
        first = MicroBatch(mine, self.ctx.sampler.sample(key, mine), None)
        self._chosen_mode(MiniBatch(None, key, [first], drops=False))
        self._logits(key, mine[:2], [self._mode])

    def _use_whole_model(self) -> None:
        """Score the whole model, where ranks hold shares of its parameters. Collective."""
        model = self.ctx.parameters.whole_model()
        if model is not self.ctx.model:
            self.ctx, self._mode = replace(self.ctx, model=model), None

    def scores(self) -> dict[str, float | None]:
        """The metric on each split, the same on all ranks; None where it is empty or undefined. Collective."""
        self._use_whole_model()
        return {name: self._score(name, [self._mode])[0] for name in self.splits}

    def scores_of(self, models: Sequence[Model]) -> list[dict[str, float | None]]:
        """What `scores` gives for each of `models`; vertices are sampled and raw rows fetched once. Collective."""
        modes = [Raw(replace(self.ctx, model=model)) for model in models]
        by_split = {name: self._score(name, modes) for name in self.splits}
        return [{name: found[number] for name, found in by_split.items()} for number in range(len(models))]

    def trivial_scores(self) -> dict[str, float | str | None]:
        """What one answer for all vertices can score at best on each split, and the `answer` in words.

        It is chosen on the split itself: no answer to all that a model falls back to scores more. Collective.
        """
        kind = "roc-auc" if self.metric == "roc-auc" else "multilabel" if self.multilabel else "classes"
        scores = {name: self._trivial_score(ids) for name, (_, ids) in self.splits.items()}
        return {"answer": metrics.TRIVIAL_ANSWERS[kind], **scores}

    def _trivial_score(self, ids: np.ndarray) -> float | None:
        if self.metric == "roc-auc":
            return 0.5 if len(ids) else None
        labels, known = self._own_labels(ids), None
        if self.multilabel:
            counts, known = (labels > 0.5).sum(axis=0), self._summed((~np.isnan(labels)).sum(axis=0))
        else:
            counts = np.bincount(labels[labels >= 0], minlength=self.classes)
        answer = metrics.constant_answer(self._summed(counts), known)
        score = self._value([(np.broadcast_to(answer, (len(labels), len(answer))), labels)])
        return None if math.isnan(score) else score

    def _summed(self, counts: np.ndarray) -> np.ndarray:
        """`counts` of all ranks together. Collective."""
        return self.ctx.communicator.all_gather_rows(counts).sum(axis=0)

    def _own_labels(self, ids: np.ndarray) -> np.ndarray:
        """Labels of those of the vertices `ids` whose home is this rank."""
        mine = ids[home_of(ids, self.ctx.rank_offsets) == self.ctx.communicator.rank]
        return self.ctx.root_labels(mine, local=True).cpu().numpy().copy()

    def _score(self, split: str, modes: Sequence[ExchangeMode | None]) -> list[float | None]:
        """The metric for the model of each of `modes`, which share what is fetched; None: yet to be chosen."""
        stream, ids = self.splits[split]
        if not len(ids):
            return [None] * len(modes)
        home = home_of(ids, self.ctx.rank_offsets)
        rounds = -(-int(np.bincount(home).max()) // self.batch_size)
        mine = ids[home == self.ctx.communicator.rank]
        key = DrawKey(stream, self.ctx.seed, 0, 0)
        outcomes = []
        for number in range(rounds):
            with self.round():
                roots = mine[number * self.batch_size : (number + 1) * self.batch_size]
                outcomes.append(self._logits(key, roots, modes))
        values = [self._value([each[number] for each in outcomes]) for number in range(len(modes))]
        return [None if math.isnan(value) else value for value in values]

    def _value(self, outcomes: list[tuple[np.ndarray, np.ndarray]]) -> float:
        """The metric from one model's logits and labels of all rounds. Collective."""
        if self.metric == "roc-auc":
            return self._roc_auc(outcomes)
        counts = np.sum([metrics.count(self.metric, logits, labels) for logits, labels in outcomes], axis=0)
        return metrics.value(self.metric, self._summed(counts))

    def _logits(
        self, key: DrawKey, roots: np.ndarray, modes: Sequence[ExchangeMode | None]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Logits and labels of `roots`, whose home is this rank, for the model of each mode."""
        micro_batch = MicroBatch(roots, self.ctx.sampler.sample(key, roots), None)
        minibatch = MiniBatch(None, key, [micro_batch], drops=False)
        chosen = [mode or self._chosen_mode(minibatch) for mode in modes]
        chosen[0].request(minibatch)
        fetch_edge_features(self.ctx, minibatch.micro_batches)
        minibatch.complete()
        if len(chosen) > 1:
            share_among_models(micro_batch, self.ctx.device)
        labels = self.ctx.root_labels(roots, local=True).cpu().numpy().copy()
        return [(mode.logits(minibatch, 0).cpu().numpy().copy(), labels) for mode in chosen]

    def _chosen_mode(self, minibatch: MiniBatch) -> ExchangeMode:
        """The mode that feeds this model's first layer, chosen in the first round."""
        if self._mode is None:
            # By bytes, not by clocks: scores are the same in every run.
            name = fewest_bytes(bytes_by_mode(minibatch, self.ctx)) if self._remote == "auto" else self._remote
            self._mode = exchange_mode(name, self.ctx)
        return self._mode

    def _roc_auc(self, outcomes: list[tuple[np.ndarray, np.ndarray]]) -> float:
        """All scores go to rank 0, which ranks them exactly and broadcasts the value. Collective."""
        logits = np.concatenate([each[0] for each in outcomes]).astype(np.float64)
        labels = np.concatenate([each[1] for each in outcomes]).astype(np.float64)
        if not self.multilabel:
            logits = logits[:, 1] - logits[:, 0]
        table = np.column_stack((logits, labels))

        # Rank 0 receives the tables of all.
        communicator = self.ctx.communicator
        rows = communicator.all_gather_rows(np.array([len(table)]))[:, 0]
        send, receive = np.zeros(communicator.size, np.int64), np.zeros(communicator.size, np.int64)
        send[0] = len(table)
        if communicator.rank == 0:
            receive[:] = rows
        gathered = np.empty((int(receive.sum()), table.shape[1]))
        communicator.exchange(np.ascontiguousarray(table), send, gathered, receive, "control")

        # What it finds is broadcast by its bits.
        answer = None
        if communicator.rank == 0:
            half = gathered.shape[1] // 2
            given, truth = gathered[:, :half], gathered[:, half:]
            value = metrics.roc_auc(given, truth) if self.multilabel else metrics.roc_auc(given[:, 0], truth[:, 0])
            answer = np.array([value]).view(np.int64)
        return float(communicator.broadcast(answer, "control").view(np.float64)[0])
