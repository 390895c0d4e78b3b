"""Scoring edges that are held back: each is ranked among negatives of its source, exactly, over all ranks.

Source embeddings go to all ranks; each rank scores the candidates that it owns, and counts add up. So no candidate's
embedding travels, and the rank of an edge does not depend on the partition but for rounding. Negatives given by the
source of the data are pairs common to all edges of a split. Each is scored once, and all ranks count by all their
scores.

A typed edge is ranked twice, as in knowledge graphs: among destinations, and among sources, of the types of its
relation. Candidates that make a known edge do not count ("filtered": Bordes et al., NIPS 2013, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from leapmpi.config.link import ALL, AUTO, GIVEN
from leapmpi.config.schema import Config, enumeration
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.edge_roots import edges_of
from leapmpi.errors import ConfigError
from leapmpi.evaluation.held_back_edges import HeldBackEdges, ToEmbed
from leapmpi.evaluation.known_triples import KnownTriples
from leapmpi.evaluation.outputs import Round
from leapmpi.evaluation.scoring import Scores, Scoring
from leapmpi.exchange.context import RankContext
from leapmpi.nn.scorer import Scorer, checked, relations_for
from leapmpi.runs import progress_line
from leapmpi.sampling.negative_sampler import negatives_named
from leapmpi.sampling.sharded.id_set import IdSet
from leapmpi.sampling.sharded.known_edges import KnownEdges
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import BatchEdges
from leapmpi.sampling.typed_negatives import DESTINATION, SOURCE
from leapmpi.scoring.edge_ranks import all_figures
from leapmpi.scoring.metric import Metric

_CHUNK_NUMBERS = 1 << 22
"""Scores that a rank holds at a time."""

_PAIR_NUMBERS = 1 << 24
"""Numbers of the embeddings of pairs that are scored at a time."""

_DRAWN = 100
"""Negatives of an edge where their number is not given; for the AUC where edges are ranked among all vertices too."""


class LinkScoring(Scoring):
    """Scoring of the edge splits. `details` holds all figures of the last scores, by split; `by_relation` the same for
    each relation of a typed graph, by its name, with the number of its `edges`.
    """

    def __init__(
        self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext, round: Round
    ) -> None:
        """Raise ConfigError if given negatives are required and there are none."""
        self.held_back = HeldBackEdges(config, dataset, topology, ctx, round)
        self.outputs, self.whole_sizes = self.held_back.outputs, self.held_back.sizes()
        self.details: dict[str, dict[str, float]] = {}
        self.by_relation: dict[str, dict[str, dict[str, float]]] = {}
        self.held_back.keep_sample()
        requested = config.link.eval_negatives
        self._all = requested == ALL
        self._count = int(requested) if requested.isdigit() else _DRAWN
        self._types, self._known = dataset.types, self._known_edges(dataset, topology)
        self._uniform = edges_of(ctx).negatives(negatives_named("uniform"))
        self._given = given_negatives(config, self.held_back.splits)

    def _known_edges(self, dataset: Dataset, topology: Topology | TopologyShard) -> KnownEdges | KnownTriples:
        if dataset.types is None:
            return KnownEdges(topology, self.held_back.splits, both_ways(dataset.attributes))
        assert isinstance(topology, Topology), "typed edges need the whole topology"
        return KnownTriples(topology, self.held_back.splits, np.concatenate(list(self.edges.values())))

    @property
    def replaced(self) -> tuple[int, ...]:
        """The ends of edges that are replaced by candidates, as columns."""
        return (DESTINATION,) if self._types is None else (DESTINATION, SOURCE)

    @property
    def edges(self) -> dict[str, np.ndarray]:
        """The edges that are scored by split: a row for each, source and destination first."""
        return self.held_back.edges

    def size(self, split: str) -> int:
        """Return how many edges of `split` are scored. Local."""
        return len(self.edges[split])

    @cached_property
    def _vertices(self) -> ToEmbed:
        """Vertices to embed for all splits. Collective."""
        return self._needed(self.edges)

    @property
    def ranked_against(self) -> str:
        """Candidates that an edge is ranked against, in words: 'given negatives in val and 100 drawn vertices in
        test'.
        """
        of_type = "" if self._types is None else ", for each end, of its type"
        drawn = f"all vertices{of_type}" if self._all else f"{self._count} drawn vertices{of_type}"
        by_split = {name: "given negatives" if name in self._given else drawn for name in self.edges if self.size(name)}
        if len(set(by_split.values())) < 2:
            return next(iter(by_split.values()), "")
        return enumeration([f"{kind} in {name}" for name, kind in by_split.items()])

    def dry_run(self) -> None:
        """Choose the mode of the first round and embed a few vertices. Collective."""
        self.held_back.dry_run(self._vertices)

    def scores(self, metric: Metric) -> Scores:
        """Score all splits, the same on all ranks. Collective."""
        self.details, self.by_relation = {}, {}
        if not self._vertices.most:
            # No edge is held back.
            return dict.fromkeys(self.edges)
        embedded = None
        for name, edges in self.edges.items():
            if not len(edges):
                continue
            table = self._among_given if name in self._given else self._table
            groups = self.held_back.groups(name)
            if groups is None:
                # The same draws serve both splits.
                embedded = embedded or self.held_back.embedded(self.held_back.key("val"), self._vertices)
                found = table(name, edges, *embedded)
                self.details[name] = all_figures(found)
                if self._types is not None:
                    self.by_relation[name] = self._of_relations(edges, found)
                continue
            tables = []
            for key, chosen in groups:
                self.held_back.register_times(name, key, chosen)
                needed = self._needed({name: edges[chosen]})
                tables.append(table(name, edges[chosen], *self.held_back.embedded(key, needed)))
            self.details[name] = all_figures(np.concatenate(tables))
        return {name: self.details[name][metric.name] if name in self.details else None for name in self.edges}

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Return `metrics`: the score of each of them on each split, and `figures`: all figures of each split that has
        edges. With `by_class` also `relations`, the figures of each relation by split.

        The same on all ranks. Collective. Raises ConfigError for `by_class` in a plain graph.
        """
        if by_class and self._types is None:
            raise ConfigError("edges that are predicted have no classes; leave out --per-class")
        self.scores(metrics[0])
        by_split = {split: self.details.get(split, {}) for split in self.edges}
        found = {
            metric.name: {split: figures.get(metric.name) for split, figures in by_split.items()} for metric in metrics
        }
        relations = {"relations": self.by_relation} if by_class else {}
        return {"metrics": found, **({"figures": self.details} if self.details else {}), **relations}

    def _of_relations(self, edges: np.ndarray, table: np.ndarray) -> dict[str, dict[str, float]]:
        """Return figures by the name of the relation of `edges`, whose ranks are `table`, one end after the other."""
        assert self._types is not None, "the graph is typed"
        relation, found = np.tile(edges[:, 2], len(self.replaced)), {}
        for r in np.unique(relation).tolist():
            rows = table[relation == r]
            found[str(self._types.relations[r])] = {"edges": len(rows) // len(self.replaced), **all_figures(rows)}
        return found

    def trivial_scores(self, metric: Metric) -> dict[str, float | str | None]:
        """Return the score of a scorer that finds all pairs alike: every edge in the middle of its candidates.
        Local.
        """
        found: dict[str, float | str | None] = {"answer": metric.trivial}
        for name, edges in self.edges.items():
            candidates = np.array([len(self._given[name]) if name in self._given else self._count])
            if self._all:
                candidates = self._sizes(edges) - 1
            alike = metric.score(np.column_stack([1 + candidates / 2, np.full(len(candidates), 0.5)]), np.empty(0))
            found[name] = alike if len(edges) else None
        return found

    def _sizes(self, edges: np.ndarray) -> np.ndarray:
        """Return how many vertices there are of the types of the ends that are replaced, of all edges: int64."""
        if self._types is None:
            return np.array([self.outputs.ctx.vertices])
        return np.diff(self._types.bases)[self._types.ends[edges[:, 2]].reshape(-1)]

    def _negatives(self, name: str, edges: np.ndarray, replaced: int) -> np.ndarray:
        """Return the drawn negatives int64[k, count] of `edges`, the same in every evaluation. Collective where
        sharded.
        """
        relations = edges[:, 2] if edges.shape[1] > 2 else None
        described = BatchEdges(edges[:, :2], self.held_back.names_of(edges), relations=relations)
        return self._uniform.draw(self.held_back.key(name), described, self._count, replaced)

    def _needed(self, edges: Mapping[str, np.ndarray]) -> ToEmbed:
        """Return all vertices in `edges` by split, or in one of their negatives, or all. Collective where sharded."""
        if self._all and any(len(each) for each in edges.values()):
            return self.held_back.to_embed(None)
        needed = IdSet(self.outputs.ctx.vertices, 0, 0)
        for name, each in edges.items():
            needed.add(each[:, :2].reshape(-1))
            for end in self.replaced:
                candidates = self._given[name] if name in self._given else self._negatives(name, each, end)
                needed.add(candidates.reshape(-1))
        return self.held_back.to_embed(needed.listed(np.int64))

    def _among_given(self, name: str, edges: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> np.ndarray:
        """Rank as `_table` does, with the pairs given by the source of the data as the negatives of every edge.
        Collective.
        """
        pairs = np.concatenate([edges, self._given[name]])
        scores, step = np.empty(len(pairs), embeddings.numpy().dtype), _CHUNK_NUMBERS
        for first in range(0, len(pairs), step):
            chunk = slice(first, first + step)
            with self.outputs.round(), torch.no_grad():
                sources = self.held_back.to_all(pairs[chunk, 0], own, embeddings)
                scores[chunk] = self._true_scores(sources, pairs[chunk], DESTINATION, own, embeddings)
        true, drawn = scores[: len(edges)], np.sort(scores[len(edges) :])
        below, upto = (np.searchsorted(drawn, true, side=side) for side in ("left", "right"))
        rank = 1 + (len(drawn) - upto) + (upto - below) / 2
        return np.column_stack([rank, (below + upto) / 2 / len(drawn)])

    def _table(self, name: str, edges: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> np.ndarray:
        """Return the ranks that metrics of edges read: float64[k, 2] of `edges` and their candidates, for each end
        that is replaced in turn. Collective.
        """
        return np.concatenate([self._ranks(name, edges, end, own, embeddings) for end in self.replaced])

    def _ranks(
        self, name: str, edges: np.ndarray, replaced: int, own: np.ndarray, embeddings: torch.Tensor
    ) -> np.ndarray:
        """Return the rows of `_table` where the end `replaced` of each edge is: float64[k, 2]. Collective."""
        negatives = self._negatives(name, edges, replaced)
        true = np.empty(len(edges), embeddings.numpy().dtype)
        drawn = []  # scores of own negatives
        greater, equal = np.zeros((2, len(edges)), np.int64)

        # Chunk by chunk: the ends that stay to all ranks, scores of true edges, then of candidates that this rank owns.
        for chunk in self._shown_chunks(name, len(edges), len(own)):
            with self.outputs.round(), torch.no_grad():
                staying = self.held_back.to_all(edges[chunk, 1 - replaced], own, embeddings)
                true[chunk] = self._true_scores(staying, edges[chunk], replaced, own, embeddings)
                rows, places = self.held_back.local_candidates(negatives[chunk], own)
                scores = self._scores(staying[rows], embeddings[places], edges[chunk][rows], replaced).numpy()
                apart = ~self._known.are_known(edges[chunk][rows], own[places], replaced)
                rows, scores = rows[apart], scores[apart]
                drawn.append(scores)
                if self._all:
                    found = self._among_all(edges[chunk], replaced, true[chunk], staying, embeddings)
                else:
                    limit, size = true[chunk][rows], chunk.stop - chunk.start
                    found = _counts(rows, scores > limit, size), _counts(rows, scores == limit, size)
                for counts, new in zip((greater, equal), found, strict=True):
                    counts[chunk] += new

        # The share of all negatives, of whichever edge, that score below each edge: the mean is the AUC.
        ordered = np.sort(np.concatenate(drawn)) if drawn else np.empty(0, true.dtype)
        below, upto = (np.searchsorted(ordered, true, side=side) for side in ("left", "right"))
        table = np.stack([greater, equal, below + upto, np.full(len(edges), 2 * len(ordered))])
        greater, equal, below_twice, twice = self.outputs.ctx.communicator.all_gather_rows(table).sum(axis=0)
        return np.column_stack([1 + greater + equal / 2, below_twice / np.maximum(1, twice)])

    def _chunks(self, edges: int, own: int) -> Iterator[slice]:
        """Yield slices of the edges, so that a rank holds few scores at a time; the same on all ranks. Local."""
        if self._all:
            step = _CHUNK_NUMBERS // max(1, int(np.diff(self.outputs.ctx.rank_offsets).max()))
        else:
            step = _PAIR_NUMBERS // max(1, self._count * self.outputs.ctx.task.width)
        step = max(1, step)
        for first in range(0, edges, step):
            yield slice(first, min(edges, first + step))

    def _shown_chunks(self, name: str, edges: int, own: int) -> Iterator[slice]:
        """Yield `_chunks`, and show the progress of the evaluation of the split `name`."""
        with progress_line.step(f"evaluation of {name}", edges, "edges") as shown:
            for chunk in self._chunks(edges, own):
                yield chunk
                shown.reach(chunk.stop)

    def _scores(
        self, staying: torch.Tensor, candidates: torch.Tensor, edges: np.ndarray, replaced: int
    ) -> torch.Tensor:
        """Score `candidates` (float[k, D]) for the end `replaced` of `edges`, whose other ends are `staying`. Local."""
        (scorer, as_sources), relations = self._scorer_of(replaced), self._relations(edges, staying)
        ends = (candidates, staying) if as_sources else (staying, candidates)
        return checked(scorer, scorer(*ends, *relations), len(candidates))

    def _scorer_of(self, replaced: int) -> tuple[Scorer, bool]:
        """Return the scorer of candidates for the end `replaced`, and whether it reads them as sources. Local."""
        scorer = self.held_back.scorer
        return scorer.for_sources() if replaced == SOURCE else (scorer, False)

    def _relations(self, edges: np.ndarray, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return the argument of the scorer for the relations of `edges`, if it takes one. Local."""
        relations = np.ascontiguousarray(edges[:, 2]) if edges.shape[1] > 2 else None
        return relations_for(self.held_back.scorer, relations, rows.device)

    def _true_scores(
        self, staying: torch.Tensor, edges: np.ndarray, replaced: int, own: np.ndarray, embeddings: torch.Tensor
    ) -> np.ndarray:
        """Return scores of the edges, each computed by the owner of its end `replaced`. Collective."""
        rows, places = self.held_back.local_candidates(edges[:, [replaced]], own)
        scores = np.zeros(len(edges), embeddings.numpy().dtype)
        scores[rows] = self._scores(staying[rows], embeddings[places], edges[rows], replaced).numpy()
        return self.outputs.ctx.communicator.all_gather_rows(scores).sum(axis=0)

    def _among_all(
        self, edges: np.ndarray, replaced: int, true: np.ndarray, staying: torch.Tensor, embeddings: torch.Tensor
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count own vertices that score more than, and as much as, `edges` in place of their end `replaced`: int64[k]
        twice.

        Known edges of the end that stays do not count, nor does that end itself in a plain graph.
        """
        (scorer, as_sources), relations = self._scorer_of(replaced), self._relations(edges, staying)
        if as_sources:
            found = scorer.all_sources(embeddings, staying, *relations)
        else:
            found = scorer.all_pairs(staying, embeddings, *relations)
        scores = checked(scorer, found, len(staying), len(embeddings)).numpy()
        scores[self._known.mask(edges, replaced, *self.outputs.ctx.local_range)] = -np.inf
        limit = true[:, None]
        return (scores > limit).sum(axis=1), (scores == limit).sum(axis=1)


def given_negatives(config: Config, splits: EdgeSplits) -> dict[str, np.ndarray]:
    """Return, by split, the pairs int64[j, 2] that the source of the data gives to score against, if they serve.

    Raises ConfigError where they are required and there are none.
    """
    requested = config.link.eval_negatives
    if splits.relation_arrays():
        # Given pairs name no relations.
        splits = replace(splits, val_negatives=None, test_negatives=None)
    found = {"val": splits.val_negatives, "test": splits.test_negatives}
    given = {name: np.array(pairs) for name, pairs in found.items() if pairs is not None and len(pairs)}
    if requested == GIVEN and not given:
        raise ConfigError(f"link.eval_negatives: {config.data} holds no given negatives; give a number such as 100")
    return given if requested in (GIVEN, AUTO) else {}


def _counts(rows: np.ndarray, hits: np.ndarray, size: int) -> np.ndarray:
    """Return int64[size]: how often each row occurs in `rows[hits]`."""
    return np.bincount(rows[hits], minlength=size)
