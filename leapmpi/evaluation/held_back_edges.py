"""Edges that are held back, with embeddings of their ends: sources are sent to where edges are scored.

Each vertex that is needed is embedded by its owner, once, or once for each group of edges where draws read times. Draws
see the whole topology. It lacks the edges that are held back, or the edges of the split are left out if the task says
so, as in training.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.evaluation.outputs import Outputs, Round
from leapmpi.exchange.context import RankContext
from leapmpi.features.row_memory import RowMemory
from leapmpi.inference.batch_outputs import GROUP
from leapmpi.nn.scorer import Scorer
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids
from leapmpi.scoring.scored_sample import scored_sample
from leapmpi.system.counter_rng import TEST, VAL, DrawKey

STREAMS = {"val": VAL, "test": TEST}
"""Random streams of the draws of each split."""


class ToEmbed(NamedTuple):
    """The vertices of all ranks that are to be embedded, as one rank sees them."""

    own: np.ndarray
    """int64, ascending: those that this rank owns."""
    most: int
    """As many as the rank with the most has."""
    few: np.ndarray
    """int64: up to a batch of each rank's, the same on all ranks."""


class HeldBackEdges:
    """The edges of val and test, int64[k, 2] each, `edges` by split, and embeddings of their ends.

    Those of a typed graph are int64[k, 3], with relations.

    exact: whether ends may be embedded from all in-neighbours at once.
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        topology: Topology | TopologyShard,
        ctx: RankContext,
        round: Round,
        exact: bool = True,
    ) -> None:
        self.outputs = Outputs(config, topology, ctx, round, {}, exact)
        self.splits = dataset.edge_splits or _no_edges(typed=dataset.types is not None)
        self.edges = {split: _with_relations(self.splits, split) for split in STREAMS}
        self.times = {split: getattr(self.splits, f"{split}_time") for split in self.edges}
        """Times of these edges, if they have some."""
        self._dataset, self._limit = dataset, config.evaluate.limit

    @property
    def scorer(self) -> Scorer:
        """Scorer of pairs of embeddings."""
        assert self.outputs.ctx.model.scorer is not None, "a model of a task on edges has one"
        return self.outputs.ctx.model.scorer

    def keep(self, split: str, chosen: np.ndarray) -> None:
        """Keep only the edges of `split` at `chosen`, positions or bool. Local."""
        self.edges[split] = self.edges[split][chosen]
        if (times := self.times[split]) is not None:
            self.times[split] = np.asarray(times)[chosen]

    def keep_sample(self) -> dict[str, np.ndarray]:
        """Keep as many edges as the settings allow; return their positions (int64) among all, by split. Local."""
        found, seed = {}, self.outputs.ctx.seed
        for split, edges in self.edges.items():
            # Without a limit names do not matter.
            names = self.names_of(edges) if 0 < self._limit < len(edges) else edges
            found[split] = scored_sample(STREAMS[split], seed, names, self._limit)
            self.keep(split, found[split])
        return found

    def sizes(self) -> dict[str, int]:
        """Return the number of edges by split. Local."""
        return {split: len(edges) for split, edges in self.edges.items()}

    def names_of(self, edges: np.ndarray) -> np.ndarray:
        """Return int64[k, 2]: the original ids of the ends of `edges`, of any ranks. Local."""
        edges = edges[:, :2]
        if isinstance(self.outputs.topology, Topology):
            return self.outputs.topology.original_id[edges]
        return original_ids(self._dataset, edges.reshape(-1)).reshape(edges.shape)

    def key(self, split: str, group: int = 0) -> DrawKey:
        """Return the key of the draws of `split`, and of one of its groups."""
        return DrawKey(STREAMS[split], self.outputs.ctx.seed, 0, group)

    def groups(self, split: str) -> list[tuple[DrawKey, np.ndarray]] | None:
        """Return keys of the groups of `split` with the positions of their edges, where draws read times; else None.
        Local.

        No draw of a group sees an edge that is later than the earliest of the group.
        """
        if (times := self._times(split)) is None:
            return None
        groups = self.outputs.ctx.sampler.drawing.edge_groups(times, GROUP)
        return None if groups is None else [(self.key(split, number), each) for number, each in enumerate(groups)]

    def register_times(self, split: str, key: DrawKey, chosen: np.ndarray) -> None:
        """Let draws of `key` know the times of the edges at `chosen`, where there are some. Local."""
        if (times := self._times(split)) is not None and len(chosen):
            self.outputs.ctx.sampler.drawing.root_times(key, times[chosen])

    def _times(self, split: str) -> np.ndarray | None:
        found = self.times[split]
        return None if found is None else np.asarray(found)

    def dry_run(self, vertices: ToEmbed) -> None:
        """Choose the mode of the first round and embed a few of `vertices`. Collective."""
        if len(vertices.few):
            self.outputs.dry_run(VAL, vertices.few)
        else:
            self.outputs.use_whole_model()

    def to_embed(self, vertices: np.ndarray | None) -> ToEmbed:
        """Return `vertices` (int64[k], ascending, the same on all ranks), or all where they are None. Local."""
        offsets, rank = self.outputs.ctx.rank_offsets, self.outputs.ctx.rank
        bounds = offsets if vertices is None else np.searchsorted(vertices, offsets)
        few = [np.arange(first, min(first + self.outputs.batch_size, end)) for first, end in pairwise(bounds.tolist())]
        places, own = np.concatenate(few), np.arange(bounds[rank], bounds[rank + 1])
        if vertices is not None:
            places, own = vertices[places], vertices[own]
        return ToEmbed(own, int(np.diff(bounds).max()), places)

    def embedded(self, key: DrawKey, vertices: ToEmbed) -> tuple[np.ndarray, torch.Tensor]:
        """Return those of `vertices` that this rank owns, and their embeddings float[k, D]. Collective."""
        own, found = vertices.own, np.empty((0, self.outputs.ctx.task.width))
        if self.outputs.exact:
            return own, torch.from_numpy(self.outputs.all_at_once(self.outputs.ctx.model, own))
        # In a file where the rows of training are in one.
        learned = self.outputs.ctx.learned
        memory = learned.memory if learned else RowMemory()
        for first in range(0, vertices.most, self.outputs.batch_size):
            with self.outputs.round():
                roots = own[first : first + self.outputs.batch_size]
                rows = self.outputs.batch(key, roots, [self.outputs.mode])[0][0]
            if not first:
                found = memory.zeros((len(own), rows.shape[1]), rows.dtype)
            found[first : first + len(rows)] = rows
            memory.touch(len(rows), rows.shape[1] * rows.itemsize)
        return own, torch.from_numpy(found)

    def to_all(self, sources: np.ndarray, own: np.ndarray, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of `sources`, whichever rank owns them: float[k, D]. Collective."""
        ctx = self.outputs.ctx
        distinct, inverse = np.unique(sources, return_inverse=True)
        counts = np.bincount(home_of(distinct, ctx.rank_offsets), minlength=ctx.ranks)
        mine = distinct[home_of(distinct, ctx.rank_offsets) == ctx.rank]
        rows = embeddings[torch.from_numpy(np.searchsorted(own, mine))].numpy()
        arrived = torch.from_numpy(ctx.communicator.all_gather_pieces(rows, counts, "embeddings"))
        return arrived[torch.from_numpy(inverse)]

    def local_candidates(self, candidates: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each of `candidates` (int64[k, n]) that this rank owns, and its position in `own`: int64
        each.
        """
        first, end = self.outputs.ctx.local_range
        rows, columns = np.nonzero((candidates >= first) & (candidates < end))
        return rows, np.searchsorted(own, candidates[rows, columns])


def _no_edges(typed: bool) -> EdgeSplits:
    """Return splits without edges; those of a typed graph have relations, too."""
    none, relation = np.zeros((0, 2), np.int64), np.zeros(0, np.int64) if typed else None
    return EdgeSplits(none, none, val_relation=relation, test_relation=relation)


def _with_relations(splits: EdgeSplits, split: str) -> np.ndarray:
    """Return the edges of `split`, with their relations if they have some."""
    edges, relation = np.array(getattr(splits, split)), getattr(splits, f"{split}_relation")
    return edges if relation is None else np.column_stack([edges, np.asarray(relation).astype(np.int64)])
