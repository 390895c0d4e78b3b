"""Scoring edges that are held back: each is ranked among negatives of its source, exactly, over all ranks.

Every vertex that is needed is embedded once, on its home rank, from the training edges alone. Source embeddings go to
all ranks; each rank scores the candidates at home there, and what adds up are counts. So no candidate's embedding
travels, and the rank of an edge does not depend on the partition but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import RankContext
from leapmpi.errors import ConfigError
from leapmpi.nn.model import Model
from leapmpi.plan.homes import home_of
from leapmpi.sampling.edges.known_edges import KnownEdges
from leapmpi.sampling.edges.negative_sampler import NEGATIVES, Candidates
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import TEST, VAL, DrawKey
from leapmpi.training.edges.edge_ranks import all_figures
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.scoring.metric import Metric

_STREAMS = {"val": VAL, "test": TEST}
_CHUNK_NUMBERS = 1 << 22
"""Scores that a rank holds at a time."""

_DRAWN_FOR_AUC = 100
"""Negatives of an edge for the AUC where edges are ranked among all vertices."""


class LinkEvaluator(Evaluator):
    """Scores the edge splits of a loaded dataset. `details` holds all figures of the last evaluation, by split."""

    def __init__(self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext) -> None:
        assert isinstance(topology, Topology), "link prediction is refused where the topology is sharded"
        super().__init__(config, dataset, topology, ctx)
        splits = dataset.edge_splits or EdgeSplits(*np.zeros((2, 0, 2), np.int64))
        self._edges = {"val": np.array(splits.val), "test": np.array(splits.test)}
        self._topology = topology
        self._all = config.link.eval_negatives == "all"
        self._count = _DRAWN_FOR_AUC if self._all else int(config.link.eval_negatives)
        self._known = KnownEdges(topology, splits, both_ways(dataset.attributes))
        self._uniform = NEGATIVES.load("uniform").NEGATIVES(Candidates(topology))
        self._vertices = self._needed()

    def size(self, split: str) -> int:
        return len(self._edges[split])

    def dry_run(self) -> None:
        """Choose the mode of the first round and embed a few vertices. Collective."""
        self.splits = {"val": (VAL, self._vertices)}
        super().dry_run()

    def scores(self) -> dict[str, float | None]:
        """The metric on each split, the same on all ranks; None where it is empty. Collective."""
        self.details = {}
        if not len(self._vertices):
            # No edge is held back.
            return dict.fromkeys(self._edges)
        self._use_whole_model()
        own, embeddings = self._embedded()
        for name, edges in self._edges.items():
            if len(edges):
                self.details[name] = all_figures(self._table(name, edges, own, embeddings))
        return {name: self.details[name][self.metric.name] if name in self.details else None for name in self._edges}

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """`metrics`: the score of each of them on each split, and `figures`: all figures of each split that has edges.

        The same on all ranks. Collective. Raises ConfigError for `by_class`.
        """
        if by_class:
            raise ConfigError("edges that are predicted have no classes; leave out --per-class")
        self.scores()
        by_split = {split: self.details.get(split, {}) for split in self._edges}
        found = {
            metric.name: {split: figures.get(metric.name) for split, figures in by_split.items()} for metric in metrics
        }
        return {"metrics": found, **({"figures": self.details} if self.details else {})}

    def scores_of(self, models: Sequence[Model]) -> list[dict[str, float | None]]:
        raise NotImplementedError("models that differ are refused with --task link")

    def trivial_scores(self) -> dict[str, float | str | None]:
        """What a scorer that finds all pairs alike scores: every edge in the middle of its candidates. Local."""
        candidates = self._topology.vertices - 1 if self._all else self._count
        alike = self.metric.score(np.array([[1 + candidates / 2, 0.5]]), np.empty(0))
        given = {name: alike if len(edges) else None for name, edges in self._edges.items()}
        return {"answer": self.metric.trivial, **given}

    def _key(self, name: str) -> DrawKey:
        return DrawKey(_STREAMS[name], self.ctx.seed, 0, 0)

    def _negatives(self, name: str, edges: np.ndarray) -> np.ndarray:
        """The drawn negatives int64[k, count] of `edges`, the same in every evaluation."""
        return self._uniform.draw(self._key(name), edges, self._count)

    def _needed(self) -> np.ndarray:
        """All vertices to embed, ascending: those that stand in an edge or a negative of any split, or all."""
        if self._all:
            return np.arange(self._topology.vertices)
        needed = np.zeros(self._topology.vertices, bool)
        for name, edges in self._edges.items():
            needed[edges.reshape(-1)] = True
            needed[self._negatives(name, edges).reshape(-1)] = True
        return np.flatnonzero(needed)

    def _embedded(self) -> tuple[np.ndarray, torch.Tensor]:
        """This rank's needed vertices, ascending, and their embeddings float[k, D], by draws of the first split."""
        home = home_of(self._vertices, self.ctx.rank_offsets)
        counts = np.bincount(home, minlength=self.ctx.ranks)
        own, key, parts = self._vertices[home == self.ctx.rank], self._key("val"), []
        for first in range(0, int(counts.max()), self.batch_size):
            with self.round():
                roots = own[first : first + self.batch_size]
                parts.append(torch.from_numpy(self._logits(key, roots, [self._mode])[0][0]))
        return own, torch.cat(parts)

    def _table(self, name: str, edges: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> np.ndarray:
        """What metrics of edges read: float64[k, 2] of `edges` and their candidates. Collective."""
        scorer = self.ctx.model.scorer
        assert scorer is not None, "a model for link prediction has one"
        negatives = self._negatives(name, edges)
        true = np.empty(len(edges), embeddings.numpy().dtype)
        drawn = []  # scores of the negatives at home here, and the edges they belong to
        greater, equal = np.zeros((2, len(edges)), np.int64)

        # Chunk by chunk: sources to all ranks, scores of true destinations, then of the candidates at home here.
        for chunk in self._chunks(len(edges), len(own)):
            with self.round(), torch.no_grad():
                sources = self._to_all(edges[chunk, 0], own, embeddings)
                true[chunk] = self._true_scores(sources, edges[chunk, 1], own, embeddings)
                rows, places = self._at_home(negatives[chunk], own)
                scores = scorer(sources[rows], embeddings[places]).numpy()
                apart = ~self._known.held_back(edges[chunk][rows, 0], own[places])
                rows, scores = rows[apart], scores[apart]
                drawn.append(scores)
                if self._all:
                    found = self._among_all(chunk, edges, true, sources, own, embeddings)
                else:
                    limit, size = true[chunk][rows], chunk.stop - chunk.start
                    found = _counts(rows, scores > limit, size), _counts(rows, scores == limit, size)
                for counts, new in zip((greater, equal), found, strict=True):
                    counts[chunk] += new

        # The share of all negatives, of whichever edge, that score below each edge: the mean is the AUC.
        ordered = np.sort(np.concatenate(drawn)) if drawn else np.empty(0, true.dtype)
        below, upto = (np.searchsorted(ordered, true, side=side) for side in ("left", "right"))
        table = np.stack([greater, equal, below + upto, np.full(len(edges), 2 * len(ordered))])
        greater, equal, below_twice, twice = self.ctx.communicator.all_gather_rows(table).sum(axis=0)
        return np.column_stack([1 + greater + equal / 2, below_twice / np.maximum(1, twice)])

    def _chunks(self, edges: int, own: int) -> Iterator[slice]:
        """Slices of the edges, so that a rank holds few scores at a time; the same on all ranks. Local."""
        width = int(np.diff(self.ctx.rank_offsets).max()) if self._all else self._count
        step = max(1, _CHUNK_NUMBERS // max(1, width))
        for first in range(0, edges, step):
            yield slice(first, min(edges, first + step))

    def _to_all(self, sources: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> torch.Tensor:
        """The embeddings of `sources`, wherever they are at home: float[k, D]. Collective."""
        ctx = self.ctx
        distinct, inverse = np.unique(sources, return_inverse=True)
        counts = np.bincount(home_of(distinct, ctx.rank_offsets), minlength=ctx.ranks)
        mine = distinct[home_of(distinct, ctx.rank_offsets) == ctx.rank]
        rows = embeddings[torch.from_numpy(np.searchsorted(own, mine))]
        arrived = rows.new_empty((len(distinct), rows.shape[1]))
        copies = rows.repeat(ctx.ranks, 1)
        ctx.communicator.exchange(copies, np.full(ctx.ranks, len(mine)), arrived, counts, "embeddings")
        return arrived[torch.from_numpy(inverse)]

    def _true_scores(
        self, sources: torch.Tensor, destinations: np.ndarray, own: np.ndarray, embeddings: torch.Tensor
    ) -> np.ndarray:
        """Scores of the edges, each computed at home of its destination. Collective."""
        scorer = self.ctx.model.scorer
        assert scorer is not None
        rows, places = self._at_home(destinations[:, None], own)
        scores = np.zeros(len(destinations), embeddings.numpy().dtype)
        scores[rows] = scorer(sources[rows], embeddings[places]).numpy()
        return self.ctx.communicator.all_gather_rows(scores).sum(axis=0)

    def _at_home(self, candidates: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row of each of `candidates` (int64[k, n]) at home here, and its position in `own`: int64 each."""
        first, end = self.ctx.local_range
        rows, columns = np.nonzero((candidates >= first) & (candidates < end))
        return rows, np.searchsorted(own, candidates[rows, columns])

    def _among_all(
        self,
        chunk: slice,
        edges: np.ndarray,
        true: np.ndarray,
        sources: torch.Tensor,
        own: np.ndarray,
        embeddings: torch.Tensor,
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many vertices at home here score more than, and as much as, the edges of `chunk`: int64[k] twice.

        Known edges of the source, and the source itself, do not count.
        """
        scorer = self.ctx.model.scorer
        assert scorer is not None
        scores, limit = scorer.all_pairs(sources, embeddings).numpy(), true[chunk][:, None]
        scores[self._known.mask(edges[chunk], *self.ctx.local_range)] = -np.inf
        return (scores > limit).sum(axis=1), (scores == limit).sum(axis=1)


def _counts(rows: np.ndarray, hits: np.ndarray, size: int) -> np.ndarray:
    """int64[size]: how often each row occurs in `rows[hits]`."""
    return np.bincount(rows[hits], minlength=size)
