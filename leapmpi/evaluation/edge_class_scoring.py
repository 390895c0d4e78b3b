"""Scoring the classes of edges that are held back: each on the home rank of its destination, by metrics of classes."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.hdf5.names import HELD_LABELS
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.evaluation.held_back_edges import HeldBackEdges
from leapmpi.evaluation.outputs import Round
from leapmpi.evaluation.scoring import OutcomeScoring
from leapmpi.exchange.context import RankContext
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.scoring.class_report import Outcome

_EDGES_AT_ONCE = 1 << 16


class EdgeClassScoring(OutcomeScoring):
    """Scoring of the labelled ones of the edges that are held back, or whose labels are.

    If the topology has them and the task leaves target edges out, a split is scored without all of its edges.
    """

    def __init__(
        self, config: Config, dataset: Dataset, topology: Topology | TopologyShard, ctx: RankContext, round: Round
    ) -> None:
        """Raise ConfigError for a sampler of evaluation that cannot leave edges out, if it has to."""
        super().__init__()
        assert isinstance(ctx.task, EdgeTask), "roots are edges"
        held = dataset.edge_splits.held if dataset.edge_splits else None
        self._leaves_out = ctx.task.leaves_out() and held == HELD_LABELS
        self.held_back = HeldBackEdges(config, dataset, topology, ctx, round, exact=not self._leaves_out)
        self.outputs, splits = self.held_back.outputs, self.held_back.splits
        if self._leaves_out and not self.outputs.ctx.sampler.leaves_edges_out:
            raise ConfigError("link.target_edges: this sampler of evaluation cannot leave edges out; give keep")

        # Edges with a known label, then a sample of them.
        self._labels: dict[str, np.ndarray] = {}
        for split, labels in (("val", splits.val_labels), ("test", splits.test_labels)):
            found = np.full(len(self.held_back.edges[split]), -1) if labels is None else np.asarray(labels)
            self.held_back.keep(split, found >= 0)
            self._labels[split] = found[found >= 0].astype(np.int64)
        self._left_out, self.whole_sizes = dict(self.held_back.edges), self.held_back.sizes()
        for split, chosen in self.held_back.keep_sample().items():
            self._labels[split] = self._labels[split][chosen]
        self.sizes = self.held_back.sizes()

    def dry_run(self) -> None:
        """Choose the mode of the first round and embed a few vertices. Collective."""
        ends = np.unique(np.concatenate(list(self.held_back.edges.values())))
        self.held_back.dry_run(self.held_back.to_embed(ends))

    def own_labels(self, split: str) -> np.ndarray:
        ctx = self.outputs.ctx
        home = home_of(self.held_back.edges[split][:, 1], ctx.rank_offsets)
        return self._labels[split][home == ctx.rank]

    def outcomes(self, split: str) -> list[Outcome]:
        """Return scores and labels of the edges of `split` whose destination this rank owns. Collective."""
        found: list[Outcome] = []
        held_back, ctx = self.held_back, self.outputs.ctx
        everything = [(held_back.key(split), np.arange(self.sizes[split]))]
        for key, chosen in held_back.groups(split) or everything:
            edges, labels = held_back.edges[split][chosen], self._labels[split][chosen]
            held_back.register_times(split, key, chosen)
            if self._leaves_out:
                ctx.sampler.leave_out(key, self._left_out[split])
            own, embeddings = held_back.embedded(key, held_back.to_embed(np.unique(edges)))

            # Some edges at a time: the embeddings of their sources go to all ranks.
            for first in range(0, len(edges), _EDGES_AT_ONCE):
                chunk = slice(first, first + _EDGES_AT_ONCE)
                with self.outputs.round(), torch.no_grad():
                    sources = held_back.to_all(edges[chunk, 0], own, embeddings)
                    rows, places = held_back.local_candidates(edges[chunk, 1:], own)
                    scores = held_back.scorer(sources[torch.from_numpy(rows)], embeddings[torch.from_numpy(places)])
                    found.append((ctx.task.answer(scores).numpy(), labels[chunk][rows]))
        return found
