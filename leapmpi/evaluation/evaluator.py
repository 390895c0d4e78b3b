"""Scoring a split: every vertex on its home rank, with fixed draws, so that epochs and runs are comparable.

With all in-neighbours there is nothing to draw: outputs are computed layer by layer (leapmpi/inference), each row once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.evaluation.scoring_by_layers import ScoringByLayers
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.own_lists import serves_all
from leapmpi.exchange.selection import bytes_by_mode, exchange_mode, fewest_bytes, leading_model, mode_class
from leapmpi.inference.layerwise import LayerwiseInference, runs_in_layers
from leapmpi.nn.model import Model
from leapmpi.plan.homes import at_home, home_counts, home_of
from leapmpi.runs.progress_line import step
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids, whole
from leapmpi.scoring.breakdown import ScoredVertices, breakdown
from leapmpi.scoring.class_report import Outcome, counts_of, report
from leapmpi.scoring.metric import CountedMetric, Metric, choose_metric
from leapmpi.scoring.scored_sample import scored_sample
from leapmpi.session.topology_kind import scores_exactly
from leapmpi.system.counter_rng import TEST, VAL, DrawKey


class Evaluator:
    """Scores splits of a loaded dataset. Draws depend on the split and the seed, not on the epoch.

    All ranks enter `round`, a context, for each batch or chunk together.
    """

    def __init__(self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext) -> None:
        self.metric = choose_metric(config.evaluate.metric, ctx.task)
        self.batch_size = config.evaluate.batch_size
        self.limit = config.evaluate.limit
        self.splits = {"val": (VAL, dataset.splits.val), "test": (TEST, dataset.splits.test)}
        self.whole_sizes = {name: len(ids) for name, (_, ids) in self.splits.items()}
        """Number of roots of each split, scored or not."""
        if self.limit:
            self.splits = {
                name: (stream, ids[scored_sample(stream, ctx.seed, original_ids(dataset, ids), self.limit)])
                for name, (stream, ids) in self.splits.items()
            }
        fanouts = config.evaluation_fanout
        own = self._own_sampler(fanouts, ctx)
        sampler = own or NodeWiseSampler(whole(topology), fanouts, ctx.sampler.threads)
        sampler = with_edge_data(sampler, ctx.edge_features is not None)
        # Whole models are scored, on whole rows.
        answers = sampler.answers if isinstance(sampler, ShardedSampler) else None
        self.ctx = replace(ctx, sampler=sampler, answers=answers, columns=None, drops=False)
        self._topology = topology
        self._offsets = dataset.offsets
        self.exact = scores_exactly(config) and runs_in_layers(ctx.model) and self._takes_all(own)
        """Whether outputs are computed layer by layer, from all in-neighbours."""
        self._by_layers = None
        if own is None and isinstance(topology, Topology) and topology.edge_weight is None and not ctx.edge_features:
            self._by_layers = ScoringByLayers(topology)
        self._outputs: dict[int, np.ndarray] = {}
        self._scored: dict[str, list[Outcome]] = {}
        """Outputs and labels of the last `scores_now`, by split."""
        self._remote = config.strategy.remote
        self._mode: ExchangeMode | None = None
        self.round: Callable[[], AbstractContextManager] = nullcontext
        self.details: dict[str, dict[str, float]] = {}
        """Further figures of the last evaluation, by split, where there are any."""

    def _takes_all(self, own: Sampler | None) -> bool:
        """Return whether all in-neighbours can be gone through, where `own` draws for evaluation, if anything does."""
        if own is None:
            return True
        if not (isinstance(own, ShardedSampler) and isinstance(self._topology, TopologyShard)):
            return False
        return isinstance(own.inner, NodeWiseSampler) and serves_all(self._topology, self.ctx.model.layers)

    def _own_sampler(self, fanouts: tuple[int, ...], ctx: RankContext) -> Sampler | None:
        """Return the sampler for evaluation if that of training has a way of its own; None: node-wise."""
        splits = {stream: np.asarray(ids) for stream, ids in self.splits.values()}
        timed = splits if ctx.task.roots == "vertices" else {}
        return ctx.sampler.drawing.for_scoring(fanouts, timed, self.batch_size)

    def size(self, split: str) -> int:
        """Return how many roots of `split` are scored."""
        return len(self.splits[split][1])

    def dry_run(self) -> None:
        """Choose the mode of the first round and score a few of its vertices, to compile kernels. Collective."""
        self._use_whole_model()
        filled = [split for split in self.splits.values() if len(split[1])]
        if not filled:
            return
        stream, ids = filled[0]
        mine = self._mine(ids)[: self.batch_size]
        if self.exact:
            self.exact_outputs(self.ctx.model, np.sort(mine[:2]))
            return
        key = DrawKey(stream, self.ctx.seed, 0, 0)
        first = MicroBatch(mine, self.ctx.sampler.sample(key, mine), None)
        self._chosen_mode(MiniBatch(None, key, [first], drops=False))
        self._logits(key, mine[:2], [self._mode])

    def _use_whole_model(self) -> None:
        """Score the whole model as it is now, where ranks hold shares of its parameters. Collective."""
        self._outputs = {}
        model = self.ctx.parameters.whole_model()
        if model is not self.ctx.model:
            self.ctx, self._mode = replace(self.ctx, model=model), None

    def scores(self) -> dict[str, float | None]:
        """Return the metric on each split, the same on all ranks; None where it is empty or undefined. Collective."""
        self._use_whole_model()
        return self.scores_now()

    def scores_now(self) -> dict[str, float | None]:
        """Return `scores` of the model that the context holds. Collective."""
        self._scored = {
            name: self.outcomes(name, [self._mode])[0] for name, (_, ids) in self.splits.items() if len(ids)
        }
        return {
            name: self._value(self.metric, self._scored[name]) if name in self._scored else None for name in self.splits
        }

    def take_breakdown(self) -> dict[str, dict]:
        """Return the last scores of one model, by split, taken apart by class, degree and part; once. Collective."""
        scored, self._scored = self._scored, {}
        if self.ctx.task.roots != "vertices":
            return {}
        return {split: self._taken_apart(split, outcomes) for split, outcomes in scored.items()}

    def _taken_apart(self, split: str, outcomes: list[Outcome]) -> dict:
        """Return `breakdown` of one split. Collective."""
        ctx, ids = self.ctx, self._scored_vertices(split)
        outputs, labels = (np.concatenate(each) for each in zip(*outcomes, strict=True))
        topology = self._topology
        degrees = topology.own.degree(ids - topology.first) if isinstance(topology, TopologyShard) else None
        parts = np.searchsorted(self._offsets, ids, side="right") - 1
        own = ScoredVertices(outputs, labels, whole(topology).degree(ids) if degrees is None else degrees, parts)
        return breakdown(
            own, ctx.task.answers, len(self._offsets) - 1, lambda sums: ctx.communicator.all_reduce(sums, "control")
        )

    def _scored_vertices(self, split: str) -> np.ndarray:
        """Return int64: the vertices whose outputs `outcomes` gives, in their order. Local."""
        if self.exact:
            return self._mine(self.splits[split][1])
        return np.concatenate([roots for _, roots in self._rounds(split)])

    def scores_of(self, models: Sequence[Model], remote: str) -> list[dict[str, float | None]]:
        """Return the scores of each of `models`; vertices are sampled once, and inputs fetched by the mode `remote`.

        Collective.
        """
        self._outputs = {}
        modes = [mode_class(remote)(replace(self.ctx, model=model)) for model in models]
        # The first mode fetches for all.
        first = leading_model(models)
        order = [first, *(number for number in range(len(models)) if number != first)]
        by_split = {name: self._score(name, [modes[number] for number in order]) for name in self.splits}
        found = {number: {name: each[place] for name, each in by_split.items()} for place, number in enumerate(order)}
        return [found[number] for number in range(len(models))]

    def trivial_scores(self) -> dict[str, float | str | None]:
        """Return the best score of one answer for all vertices on each split, and the `answer` in words.

        It is chosen on the split itself: no answer to all that a model falls back to scores more. Collective.
        """
        scores = {name: self._trivial_score(name) for name in self.splits}
        return {"answer": self.metric.trivial or self.ctx.task.trivial, **scores}

    def _trivial_score(self, split: str) -> float | None:
        task, labels = self.ctx.task, self.own_labels(split)
        sums = self.ctx.communicator.all_gather_rows(task.label_sums(labels)).sum(axis=0)
        answer = self.metric.best_constant(task.constant_answer(sums), task)
        return self._value(self.metric, [(np.broadcast_to(answer, (len(labels), len(answer))), labels)])

    def own_labels(self, split: str) -> np.ndarray:
        """Return labels of those roots of `split` that this rank scores. Local."""
        return self.ctx.root_labels(self._mine(self.splits[split][1]), local=True).cpu().numpy().copy()

    def _mine(self, ids: np.ndarray) -> np.ndarray:
        """Return those of the vertices `ids` whose home is this rank."""
        return at_home(ids, *self.ctx.local_range)

    def _score(self, split: str, modes: Sequence[ExchangeMode | None]) -> list[float | None]:
        """Return the metric for the model of each of `modes`, which share what is fetched; None: yet to be chosen."""
        if not len(self.splits[split][1]):
            return [None] * len(modes)
        return [self._value(self.metric, each) for each in self.outcomes(split, modes)]

    def choose(self, names: Sequence[str]) -> list[Metric]:
        """Return the metrics called `names`. Raises ConfigError for one that does not fit. Local."""
        return [choose_metric(name, self.ctx.task) for name in names]

    def full_report(self, chosen: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Return `metrics`: the score of each of `chosen` on each split; `classes`, if `by_class`: what is said of each
        class.

        Splits without vertices have None. The same on all ranks. Collective.
        """
        self._use_whole_model()
        found: dict[str, dict] = {
            "metrics": {each.name: {} for each in chosen},
            **({"classes": {}} if by_class else {}),
        }
        for split, (_, ids) in self.splits.items():
            outcomes = self.outcomes(split, [self._mode])[0] if len(ids) else None
            for metric in chosen:
                found["metrics"][metric.name][split] = self._value(metric, outcomes) if outcomes else None
            if by_class:
                found["classes"][split] = self._by_class(outcomes) if outcomes else None
        return found

    def _by_class(self, outcomes: list[Outcome]) -> dict[str, list]:
        """Return the report on each class, label or target. Collective."""
        regression, communicator = self.ctx.task.answers == "regression", self.ctx.communicator
        figures, confused = counts_of(outcomes, regression)
        everywhere = np.concatenate(
            [np.array(each, np.int64).reshape(-1, 3) for each in communicator.all_gather_objects(confused.tolist())]
        )
        return report(communicator.all_gather_rows(np.ascontiguousarray(figures)), everywhere, regression)

    def outcomes(self, split: str, modes: Sequence[ExchangeMode | None]) -> list[list[Outcome]]:
        """Return outputs and labels of this rank's vertices of a split, by rounds, for the model of each mode.
        Collective.
        """
        if self.exact:
            return [[self._exact_outcome(split, mode.ctx.model if mode else self.ctx.model)] for mode in modes]
        rounds, mine = self._rounds(split), self._mine(self.splits[split][1])
        if len(modes) == 1 and self._by_layers and self._by_layers.is_cheaper(self.ctx, rounds, mine):
            rows = self._by_layers.outputs(self.ctx, rounds[0][0], mine, lambda: self.round())
            return [[(rows, self.own_labels(split))]]
        outcomes = []
        with step(f"evaluation of {split}", len(rounds), "batches") as shown:
            for key, roots in rounds:
                with self.round():
                    outcomes.append(self._logits(key, roots, modes))
                shown.advance(1)
        return [[each[number] for each in outcomes] for number in range(len(modes))]

    def _exact_outcome(self, split: str, model: Model) -> Outcome:
        """Return outputs of `model` and labels of this rank's vertices of a split; all splits go at once.
        Collective.
        """
        vertices = np.unique(np.concatenate([self._mine(ids) for _, ids in self.splits.values()]))
        if id(model) not in self._outputs:
            self._outputs[id(model)] = self.exact_outputs(model, vertices)
        ids = self.splits[split][1]
        rows = self._outputs[id(model)][np.searchsorted(vertices, self._mine(ids))]
        return rows, self.own_labels(split)

    def exact_outputs(self, model: Model, vertices: np.ndarray) -> np.ndarray:
        """Return the answers of `model` for `vertices` (int64 ascending, of this rank), from all in-neighbours.
        Collective.
        """
        inference = LayerwiseInference(replace(self.ctx, model=model), self._topology, round=lambda: self.round())
        outputs = torch.from_numpy(inference.outputs(vertices)).to(self.ctx.device)
        return self.ctx.task.answer(outputs).cpu().numpy()

    def _rounds(self, split: str) -> list[tuple[DrawKey, np.ndarray]]:
        """Return keys and this rank's roots of the rounds in which a split is scored; as many on all ranks. Local."""
        stream, ids = self.splits[split]
        own, seed = self.ctx.communicator.rank, self.ctx.seed
        if (groups := self.ctx.sampler.drawing.scoring_groups(stream)) is not None:
            homes = [home_of(group, self.ctx.rank_offsets) for group in groups]
            return [(DrawKey(stream, seed, 0, i), groups[i][home == own]) for i, home in enumerate(homes)]
        most = int(home_counts(ids, self.ctx.rank_offsets).max())
        rounds, mine = -(-most // self.batch_size), self._mine(ids)
        slices = [mine[i * self.batch_size : (i + 1) * self.batch_size] for i in range(rounds)]
        return [(DrawKey(stream, seed, 0, 0), roots) for roots in slices]

    def _value(self, metric: Metric, outcomes: list[Outcome]) -> float | None:
        """Return the metric from one model's outputs and labels of all rounds; None where it is undefined.
        Collective.
        """
        communicator = self.ctx.communicator
        if isinstance(metric, CountedMetric):
            own = metric.combined(np.stack([metric.counts(outputs, labels) for outputs, labels in outcomes]))
            value = metric.value(metric.combined(communicator.all_gather_rows(own)))
        else:
            value = self._ranked(metric, outcomes)
        return None if math.isnan(value) else value

    def _logits(
        self, key: DrawKey, roots: np.ndarray, modes: Sequence[ExchangeMode | None]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return logits and labels of `roots`, whose home is this rank, for the model of each mode."""
        sample = modes[0].sample if modes[0] else self.ctx.sampler.sample
        micro_batch = MicroBatch(roots, sample(key, roots), None)
        minibatch = MiniBatch(None, key, [micro_batch], drops=False)
        chosen = [mode or self._chosen_mode(minibatch) for mode in modes]
        chosen[0].request(minibatch)
        fetch_edge_features(self.ctx, minibatch.micro_batches)
        minibatch.complete()
        if len(chosen) > 1:
            chosen[0].share_among_models(micro_batch)
        labels = self.ctx.root_labels(roots, local=True).cpu().numpy().copy()
        answer = self.ctx.task.answer
        return [(answer(mode.logits(minibatch, 0)).cpu().numpy().copy(), labels) for mode in chosen]

    def _chosen_mode(self, minibatch: MiniBatch) -> ExchangeMode:
        """Return the mode that feeds this model's first layer, chosen in the first round."""
        if self._mode is None:
            # By bytes, not by clocks: scores are the same in every run.
            name = fewest_bytes(bytes_by_mode(minibatch, self.ctx)) if self._remote == "auto" else self._remote
            self._mode = exchange_mode(name, self.ctx)
        return self._mode

    def _ranked(self, metric: Metric, outcomes: list[Outcome]) -> float:
        """Send all outputs to rank 0, which scores them exactly and broadcasts the value. Collective."""
        outputs, labels = (np.concatenate(each) for each in zip(*outcomes, strict=True))
        table = np.column_stack((outputs, labels)).astype(np.float64, order="C")

        # Rank 0 receives the tables of all.
        communicator = self.ctx.communicator
        rows = communicator.all_gather_rows(np.array([len(table)]))[:, 0]
        send, receive = np.zeros(communicator.size, np.int64), np.zeros(communicator.size, np.int64)
        send[0] = len(table)
        if communicator.rank == 0:
            receive[:] = rows
        gathered = np.empty((int(receive.sum()), table.shape[1]))
        communicator.exchange(table, send, gathered, receive, "control")

        # What it finds is broadcast by its bits.
        answer = None
        if communicator.rank == 0:
            given, truth = np.split(gathered, [outputs.shape[1]], axis=1)
            value = metric.score(given, truth if labels.ndim == 2 else truth[:, 0].astype(np.int64))
            answer = np.array([value]).view(np.int64)
        return float(communicator.broadcast(answer, "control").view(np.float64)[0])
