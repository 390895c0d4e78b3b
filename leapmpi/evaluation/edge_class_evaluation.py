"""Scoring the classes of edges that are held back: each on the home rank of its destination, by metrics of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.hdf5.names import HELD_LABELS
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.evaluation.edge_evaluation import EdgeEvaluator
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.scoring.class_report import Outcome

_EDGES_AT_ONCE = 1 << 16


class EdgeClassEvaluator(EdgeEvaluator):
    """Scores the labelled ones of the edges that are held back, or whose labels are.

    Where the topology has them and the task leaves target edges out, a split is scored without all of its edges.
    """

    def __init__(self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext) -> None:
        """Raise ConfigError for a sampler of evaluation that cannot leave edges out, if it has to."""
        super().__init__(config, dataset, topology, ctx)
        labels = {"val": self.held_back.val_labels, "test": self.held_back.test_labels}
        self._labels: dict[str, np.ndarray] = {}
        for split, edges in self.edges.items():
            found = np.full(len(edges), -1) if labels[split] is None else np.asarray(labels[split])
            self.keep(split, found >= 0)
            self._labels[split] = found[found >= 0].astype(np.int64)
        self._left_out = dict(self.edges)
        for split, chosen in self.keep_sample().items():
            self._labels[split] = self._labels[split][chosen]
        self.splits = {split: (self.key(split).stream, edges) for split, edges in self.edges.items()}
        assert isinstance(ctx.task, EdgeTask), "the trainer chooses by task"
        self._leaves_out = ctx.task.leaves_out() and self.held_back.held == HELD_LABELS
        if self._leaves_out and not self.ctx.sampler.leaves_edges_out:
            raise ConfigError("link.target_edges: this sampler of evaluation cannot leave edges out; give keep")
        self.exact = self.exact and not self._leaves_out

    def dry_run(self) -> None:
        """Choose the mode of the first round and embed a few vertices. Collective."""
        self.dry_run_on(self.to_embed(np.unique(np.concatenate(list(self.edges.values())))))

    def own_labels(self, split: str) -> np.ndarray:
        home = home_of(self.edges[split][:, 1], self.ctx.rank_offsets)
        return self._labels[split][home == self.ctx.rank]

    def outcomes(self, split: str, modes: Sequence[ExchangeMode | None]) -> list[list[Outcome]]:
        """Return scores and labels of the edges of `split` whose destination this rank owns. Collective."""
        found: list[Outcome] = []
        everything = [(self.key(split), np.arange(len(self.edges[split])))]
        for key, chosen in self.groups(split) or everything:
            edges, labels = self.edges[split][chosen], self._labels[split][chosen]
            self.hear_times(split, key, chosen)
            if self._leaves_out:
                self.ctx.sampler.leave_out(key, self._left_out[split])
            own, embeddings = self.embedded(key, self.to_embed(np.unique(edges)))

            # Some edges at a time: the embeddings of their sources go to all ranks.
            for first in range(0, len(edges), _EDGES_AT_ONCE):
                chunk = slice(first, first + _EDGES_AT_ONCE)
                with self.round(), torch.no_grad():
                    sources = self.to_all(edges[chunk, 0], own, embeddings)
                    rows, places = self.at_home(edges[chunk, 1:], own)
                    scores = self.scorer(sources[torch.from_numpy(rows)], embeddings[torch.from_numpy(places)])
                    found.append((self.ctx.task.answer(scores).numpy(), labels[chunk][rows]))
        return [found]
