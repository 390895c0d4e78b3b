"""Scoring of vertices: every vertex of a split by its owner, in batches, layer by layer, or all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.evaluation.outputs import Outputs, Round
from leapmpi.evaluation.scoring import OutcomeScoring, Scores, value_of
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.selection import leading_model, mode_class
from leapmpi.nn.model import Model
from leapmpi.plan.homes import home_counts, home_of
from leapmpi.runs.progress_line import step
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids, whole
from leapmpi.scoring.breakdown import ScoredVertices, breakdown
from leapmpi.scoring.class_report import Outcome
from leapmpi.scoring.metric import Metric
from leapmpi.scoring.scored_sample import scored_sample
from leapmpi.system.counter_rng import TEST, VAL, DrawKey


def _sample(
    dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext, stream: int, ids: np.ndarray, limit: int
) -> np.ndarray:
    """Return the places int64[k] among `ids` of at most `limit` to score. Collective with a sharded topology."""
    if limit >= len(ids):
        return np.arange(len(ids))
    if isinstance(ctx.sampler, ShardedSampler):
        # Rank 0 alone needs all names. Owners send them: there may be thousands of part files.
        names = ctx.sampler.names_of(np.asarray(ids if ctx.communicator.rank == 0 else ids[:0], np.int64))
        chosen = scored_sample(stream, ctx.seed, names, limit) if ctx.communicator.rank == 0 else None
        return ctx.communicator.broadcast(chosen, "control")
    held = topology if isinstance(topology, Topology) and topology.vertices == dataset.vertices else None
    original = original_ids(dataset, ids) if held is None else held.original_id[ids]
    return scored_sample(stream, ctx.seed, original, limit)


class VertexScoring(OutcomeScoring):
    """Scoring of the vertices of val and test, or of a sample of them."""

    def __init__(
        self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext, round: Round
    ) -> None:
        super().__init__()
        self.splits = {"val": (VAL, dataset.splits.val), "test": (TEST, dataset.splits.test)}
        self.whole_sizes = {name: len(ids) for name, (_, ids) in self.splits.items()}
        if limit := config.evaluate.limit:
            for name, (stream, ids) in self.splits.items():
                self.splits[name] = stream, ids[_sample(dataset, topology, ctx, stream, ids, limit)]
        self.sizes = {name: len(ids) for name, (_, ids) in self.splits.items()}
        streams = {stream: np.asarray(ids) for stream, ids in self.splits.values()}
        self.outputs = Outputs(config, topology, ctx, round, streams)
        self._offsets = dataset.offsets
        self._exact: dict[int, np.ndarray] = {}
        """By model, its answers for the vertices of all splits, where they are computed at once."""

    def dry_run(self) -> None:
        """Choose the mode of the first round and score a few of its vertices, to compile kernels. Collective."""
        filled = [split for split in self.splits.values() if len(split[1])]
        if filled:
            self.outputs.dry_run(*filled[0])
        else:
            self.outputs.use_whole_model()

    def outcomes(self, split: str) -> list[Outcome]:
        return self.outcomes_by(split, [self.outputs.mode])[0]

    def scores(self, metric: Metric) -> Scores:
        """Score all splits, the same on all ranks. Collective."""
        self._exact = {}
        return super().scores(metric)

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Report on all splits. Collective."""
        self._exact = {}
        return super().full_report(metrics, by_class)

    def scores_of(self, models: Sequence[Model], remote: str, metric: Metric) -> list[Scores]:
        """Score all splits by each of `models`; vertices are sampled once, and inputs fetched by the mode `remote`.

        Collective.
        """
        self._exact = {}
        ctx = self.outputs.ctx
        modes = [mode_class(remote)(replace(ctx, model=model)) for model in models]
        # The first mode fetches for all.
        first = leading_model(models)
        order = [first, *(number for number in range(len(models)) if number != first)]
        found: list[Scores] = [{} for _ in models]
        for split, size in self.sizes.items():
            outcomes = self.outcomes_by(split, [modes[number] for number in order]) if size else [None] * len(order)
            for number, each in zip(order, outcomes, strict=True):
                found[number][split] = value_of(metric, each, ctx.communicator) if each else None
        return found

    def own_labels(self, split: str) -> np.ndarray:
        ctx = self.outputs.ctx
        return ctx.root_labels(self.outputs.mine(self.splits[split][1]), local=True).cpu().numpy().copy()

    def take_breakdown(self) -> dict[str, dict]:
        """Take the last scores of one model apart by class, degree and part, by split; once. Collective."""
        scored, self._scored = self._scored, {}
        return {split: self._taken_apart(split, outcomes) for split, outcomes in scored.items()}

    def _taken_apart(self, split: str, outcomes: list[Outcome]) -> dict:
        """Return the `breakdown` of one split. Collective."""
        ctx, topology, ids = self.outputs.ctx, self.outputs.topology, self._scored_vertices(split)
        outputs, labels = (np.concatenate(each) for each in zip(*outcomes, strict=True))
        degrees = topology.own.degree(ids - topology.first) if isinstance(topology, TopologyShard) else None
        parts = np.searchsorted(self._offsets, ids, side="right") - 1
        own = ScoredVertices(outputs, labels, whole(topology).degree(ids) if degrees is None else degrees, parts)
        return breakdown(
            own, ctx.task.answers, len(self._offsets) - 1, lambda sums: ctx.communicator.all_reduce(sums, "control")
        )

    def _scored_vertices(self, split: str) -> np.ndarray:
        """Return int64: the vertices of `outcomes`, in their order. Local."""
        if self.outputs.exact:
            return self.outputs.mine(self.splits[split][1])
        return np.concatenate([roots for _, roots in self._rounds(split)])

    def outcomes_by(self, split: str, modes: Sequence[ExchangeMode | None]) -> list[list[Outcome]]:
        """Return outputs and labels of this rank's vertices of a split, by rounds, for the model of each mode.

        Collective.
        """
        outputs, mine = self.outputs, self.outputs.mine(self.splits[split][1])
        if outputs.exact:
            return [[self._exact_outcome(split, mode.ctx.model if mode else outputs.ctx.model)] for mode in modes]
        rounds = self._rounds(split)
        # Layer by layer every row is computed once; by batches those that batches share are computed again.
        if len(modes) == 1 and outputs.by_layers and outputs.by_layers.is_cheaper(outputs.ctx, rounds, mine):
            rows = outputs.by_layers.outputs(outputs.ctx, rounds[0][0], mine, lambda: outputs.round())
            return [[(rows, self.own_labels(split))]]
        outcomes = []
        with step(f"evaluation of {split}", len(rounds), "batches") as shown:
            for key, roots in rounds:
                with outputs.round():
                    outcomes.append(outputs.batch(key, roots, modes))
                shown.advance(1)
        return [[each[number] for each in outcomes] for number in range(len(modes))]

    def _exact_outcome(self, split: str, model: Model) -> Outcome:
        """Return outputs of `model` and labels of own vertices of a split; all splits go at once. Collective."""
        mine = self.outputs.mine
        vertices = np.unique(np.concatenate([mine(ids) for _, ids in self.splits.values()]))
        if id(model) not in self._exact:
            self._exact[id(model)] = self.outputs.all_at_once(model, vertices)
        rows = self._exact[id(model)][np.searchsorted(vertices, mine(self.splits[split][1]))]
        return rows, self.own_labels(split)

    def _rounds(self, split: str) -> list[tuple[DrawKey, np.ndarray]]:
        """Return keys and this rank's roots of the rounds in which a split is scored; as many on all ranks.

        Collective.
        """
        stream, ids = self.splits[split]
        ctx, size = self.outputs.ctx, self.outputs.batch_size
        own, seed = ctx.communicator.rank, ctx.seed
        if (groups := ctx.sampler.drawing.scoring_groups(stream)) is not None:
            homes = [home_of(group, ctx.rank_offsets) for group in groups]
            return [(DrawKey(stream, seed, 0, i), groups[i][home == own]) for i, home in enumerate(homes)]
        if (cut := self.outputs.bounded_batches(ids)) is not None:
            return [(DrawKey(stream, seed, 0, 0), roots) for roots in cut]
        # A rank with fewer vertices takes part in the last rounds with none: exchanges are collective.
        most = int(home_counts(ids, ctx.rank_offsets).max())
        rounds, mine = -(-most // size), self.outputs.mine(ids)
        slices = [mine[i * size : (i + 1) * size] for i in range(rounds)]
        return [(DrawKey(stream, seed, 0, 0), roots) for roots in slices]
