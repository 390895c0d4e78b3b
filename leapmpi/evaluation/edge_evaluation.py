"""Common base of scoring edges: ends are embedded by their owners, and sources are sent to where edges are scored.

Every vertex that is needed is embedded once, or once for each group of edges where draws read times. Draws see the
whole topology. It lacks the edges that are held back, or the edges of the split are left out if the task says so, as in
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.selection import mode_class
from leapmpi.nn.model import Model
from leapmpi.nn.scorer import Scorer
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids
from leapmpi.scoring.scored_sample import scored_sample
from leapmpi.system.counter_rng import TEST, VAL, DrawKey

_STREAMS = {"val": VAL, "test": TEST}


class ToEmbed(NamedTuple):
    """The vertices of all ranks that are to be embedded, as one rank sees them."""

    own: np.ndarray
    """int64, ascending: those that this rank owns."""
    most: int
    """As many as the rank with the most has."""
    few: np.ndarray
    """int64: up to a batch of each rank's, the same on all ranks."""


class EdgeEvaluator(Evaluator):
    """Scores the edge splits of a loaded dataset: int64[k, 2] each, `edges` by split."""

    def __init__(self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext) -> None:
        super().__init__(config, dataset, topology, ctx)
        self.held_back = dataset.edge_splits or EdgeSplits(*np.zeros((2, 0, 2), np.int64))
        self.edges = {"val": np.array(self.held_back.val), "test": np.array(self.held_back.test)}
        self.times = {split: getattr(self.held_back, f"{split}_time") for split in self.edges}
        """Times of these edges, where they have some."""
        self.topology = topology
        self._dataset = dataset

    @property
    def scorer(self) -> Scorer:
        """Scorer of pairs of embeddings."""
        assert self.ctx.model.scorer is not None, "a model of a task on edges has one"
        return self.ctx.model.scorer

    def size(self, split: str) -> int:
        return len(self.edges[split])

    def keep(self, split: str, chosen: np.ndarray) -> None:
        """Keep only the edges of `split` at `chosen`, positions or bool. Local."""
        self.edges[split] = self.edges[split][chosen]
        if (times := self.times[split]) is not None:
            self.times[split] = np.asarray(times)[chosen]

    def keep_sample(self) -> dict[str, np.ndarray]:
        """Keep as many edges as the settings allow; return their positions among all, by split. Local."""
        self.whole_sizes = {split: len(edges) for split, edges in self.edges.items()}
        found = {}
        for split, edges in self.edges.items():
            # Without a limit names do not matter.
            names = self.names_of(edges) if 0 < self.limit < len(edges) else edges
            found[split] = scored_sample(_STREAMS[split], self.ctx.seed, names, self.limit)
            self.keep(split, found[split])
        return found

    def names_of(self, edges: np.ndarray) -> np.ndarray:
        """Return int64[k, 2]: the original ids of the ends of `edges` (int64[k, 2]), of any ranks. Local."""
        if isinstance(self.topology, Topology):
            return self.topology.original_id[edges]
        return original_ids(self._dataset, edges.reshape(-1)).reshape(edges.shape)

    def scores_of(self, models: Sequence[Model], remote: str) -> list[dict[str, float | None]]:
        """Return the scores of each of `models`, one after the other, fed by the mode `remote`. Collective."""
        kept = self.ctx, self._mode
        found = []
        for model in models:
            self.ctx = replace(self.ctx, model=model)
            self._mode = mode_class(remote)(self.ctx)
            found.append(self.scores_now())
        self.ctx, self._mode = kept
        return found

    def key(self, split: str, group: int = 0) -> DrawKey:
        """Return the key of the draws of `split`, and of one of its groups."""
        return DrawKey(_STREAMS[split], self.ctx.seed, 0, group)

    def groups(self, split: str) -> list[tuple[DrawKey, np.ndarray]] | None:
        """Return keys of the groups of `split` with the positions of their edges, where draws read times; else None.
        Local.

        No draw of a group sees an edge that is later than the earliest of the group.
        """
        if (times := self._times(split)) is None:
            return None
        groups = self.ctx.sampler.drawing.edge_groups(times, self.batch_size)
        return None if groups is None else [(self.key(split, number), each) for number, each in enumerate(groups)]

    def hear_times(self, split: str, key: DrawKey, chosen: np.ndarray) -> None:
        """Let draws of `key` know the times of the edges at `chosen`, where there are some. Local."""
        if (times := self._times(split)) is not None and len(chosen):
            self.ctx.sampler.drawing.root_times(key, times[chosen])

    def _times(self, split: str) -> np.ndarray | None:
        found = self.times[split]
        return None if found is None else np.asarray(found)

    def dry_run_on(self, vertices: ToEmbed) -> None:
        """Choose the mode of the first round and embed a few of `vertices`. Collective."""
        splits, self.splits = self.splits, {"val": (VAL, vertices.few)}
        try:
            super().dry_run()
        finally:
            self.splits = splits

    def to_embed(self, vertices: np.ndarray | None) -> ToEmbed:
        """Return `vertices` (int64[k], ascending, the same on all ranks), or all where they are None. Local."""
        offsets, rank = self.ctx.rank_offsets, self.ctx.rank
        bounds = offsets if vertices is None else np.searchsorted(vertices, offsets)
        few = [np.arange(first, min(first + self.batch_size, end)) for first, end in pairwise(bounds.tolist())]
        places, own = np.concatenate(few), np.arange(bounds[rank], bounds[rank + 1])
        if vertices is not None:
            places, own = vertices[places], vertices[own]
        return ToEmbed(own, int(np.diff(bounds).max()), places)

    def embedded(self, key: DrawKey, vertices: ToEmbed) -> tuple[np.ndarray, torch.Tensor]:
        """Return those of `vertices` that this rank owns, and their embeddings float[k, D]. Collective."""
        own, parts = vertices.own, [np.empty((0, self.ctx.task.width))]
        if self.exact:
            return own, torch.from_numpy(self.exact_outputs(self.ctx.model, own))
        for first in range(0, vertices.most, self.batch_size):
            with self.round():
                roots = own[first : first + self.batch_size]
                parts.append(self._logits(key, roots, [self._mode])[0][0])
        return own, torch.from_numpy(np.concatenate(parts[1:] or parts))

    def to_all(self, sources: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of `sources`, whichever rank owns them: float[k, D]. Collective."""
        ctx = self.ctx
        distinct, inverse = np.unique(sources, return_inverse=True)
        counts = np.bincount(home_of(distinct, ctx.rank_offsets), minlength=ctx.ranks)
        mine = distinct[home_of(distinct, ctx.rank_offsets) == ctx.rank]
        rows = embeddings[torch.from_numpy(np.searchsorted(own, mine))].numpy()
        arrived = torch.from_numpy(ctx.communicator.all_gather_pieces(rows, counts, "embeddings"))
        return arrived[torch.from_numpy(inverse)]

    def at_home(self, candidates: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each of `candidates` (int64[k, n]) that this rank owns, and its position in `own`: int64
        each.
        """
        first, end = self.ctx.local_range
        rows, columns = np.nonzero((candidates >= first) & (candidates < end))
        return rows, np.searchsorted(own, candidates[rows, columns])
