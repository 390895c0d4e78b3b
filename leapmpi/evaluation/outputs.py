"""Outputs of a model for scoring, each computed by its owner with fixed draws, so that epochs and runs are comparable.

With all in-neighbours there is nothing to draw: outputs are computed layer by layer (leapmpi/inference), each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.topology import Topology
from leapmpi.evaluation.scoring_by_layers import ScoringByLayers
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.own_lists import serves_all
from leapmpi.exchange.selection import mode_class
from leapmpi.inference.batch_outputs import GROUP, batch_outputs, cut_by_edges, mode_for_scoring, roots_at_once
from leapmpi.inference.drawn_lists import lists_of_schema
from leapmpi.inference.layerwise import LayerwiseInference, runs_in_layers
from leapmpi.nn.model import Model
from leapmpi.plan.homes import in_range
from leapmpi.sampling.edge_lookup import bounds_by_root, with_edge_data
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.relation_lists import scoring_fanouts
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard, whole
from leapmpi.system.counter_rng import DrawKey

Round = Callable[[], AbstractContextManager[None]]
"""Function that makes a context, which all ranks enter together for each batch or chunk."""


class Outputs:
    """Outputs of the model of `ctx` for vertices of this rank.

    splits: by stream, the vertices int64 that will be scored, for draws that read times. exact: whether layers may go
    through all in-neighbours at once, if that is what the settings draw.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology | TopologyShard,
        ctx: RankContext,
        round: Round,
        splits: Mapping[int, np.ndarray],
        exact: bool = True,
    ) -> None:
        self.topology, self.round, self._config = topology, round, config
        fanouts, drawing = config.evaluation_fanout, ctx.sampler.drawing
        self.batch_size = roots_at_once(fanouts)
        """Vertices that a rank embeds at once, where none bounds another."""
        # The sampler of training may have a way of its own; else draws are node-wise.
        types = ctx.sampler.types
        self._of_relations = of_relations = scoring_fanouts(types, config.sampling, fanouts) if types else None
        own = drawing.for_scoring(fanouts, splits, GROUP, of_relations)
        sampler = own or NodeWiseSampler(whole(topology), fanouts, ctx.sampler.threads, of_relations)
        sampler = with_edge_data(sampler, ctx.edge_features is not None)
        # Whole models are scored, on whole rows.
        answers = sampler.answers if isinstance(sampler, ShardedSampler) else None
        self.ctx = replace(ctx, sampler=sampler, answers=answers, columns=None, drops=False)
        self.exact = exact and config.evaluation_takes_all and runs_in_layers(ctx.model) and self._takes_all(own)
        """Whether outputs are computed layer by layer, from all in-neighbours."""
        self.by_layers = None
        plain = isinstance(topology, Topology) and topology.edge_weight is None
        if own is None and plain and not ctx.edge_features:
            self.by_layers = ScoringByLayers(whole(topology), of_relations)
        self.mode: ExchangeMode | None = None
        """Mode that feeds the model's first layer, once it is chosen."""

    def _takes_all(self, own: Sampler | None) -> bool:
        """Return whether all in-neighbours can be gone through; `own` draws for evaluation, if anything does."""
        if own is None:
            return True
        if not (isinstance(own, ShardedSampler) and isinstance(self.topology, TopologyShard)):
            return False
        return isinstance(own.inner, NodeWiseSampler) and serves_all(self.topology, self.ctx.model.layers)

    def mine(self, ids: np.ndarray) -> np.ndarray:
        """Return those of the vertices `ids` whose home is this rank. Local."""
        return in_range(ids, *self.ctx.local_range)

    def bounded_batches(self, ids: np.ndarray) -> list[np.ndarray] | None:
        """Cut this rank's vertices of `ids` by edges, where each bounds what it reads; else None. Collective."""
        if not bounds_by_root(self._config):
            return None
        return cut_by_edges(self.ctx, self.mine(ids), self._config.evaluation_fanout)

    def use_whole_model(self) -> None:
        """Take the whole model as it is now, where ranks hold shares of its parameters. Collective."""
        model = self.ctx.parameters.whole_model()
        if model is not self.ctx.model:
            self.ctx, self.mode = replace(self.ctx, model=model), None

    @contextmanager
    def of(self, model: Model, remote: str) -> Iterator[None]:
        """Compute outputs of `model`, fed by the mode `remote`, while the body runs."""
        kept = self.ctx, self.mode
        self.ctx = replace(self.ctx, model=model)
        self.mode = mode_class(remote)(self.ctx)
        try:
            yield
        finally:
            self.ctx, self.mode = kept

    def dry_run(self, stream: int, ids: np.ndarray) -> None:
        """Choose the mode and compute outputs of a few of the vertices `ids`, to compile kernels. Collective."""
        self.use_whole_model()
        cut = self.bounded_batches(ids)
        mine = self.mine(ids)[: self.batch_size] if cut is None else cut[0]
        if self.exact:
            self.all_at_once(self.ctx.model, np.sort(mine[:2]))
            return
        key = DrawKey(stream, self.ctx.seed, 0, 0)
        first = MicroBatch(mine, self.ctx.sampler.sample(key, mine), None)
        self._chosen_mode(MiniBatch(None, key, [first], drops=False))
        self.batch(key, mine[:2], [self.mode])

    def all_at_once(self, model: Model, vertices: np.ndarray) -> np.ndarray:
        """Return the answers of `model` for `vertices` (int64 ascending), from all in-neighbours. Collective."""
        ctx = replace(self.ctx, model=model)
        given, lists_of = self._of_relations, None
        if given is not None:
            lists_of = lists_of_schema(ctx, self.topology, given)
        inference = LayerwiseInference(ctx, self.topology, round=lambda: self.round(), lists_of=lists_of)
        outputs = torch.from_numpy(inference.outputs(vertices)).to(self.ctx.device)
        return self.ctx.task.answer(outputs).cpu().numpy()

    def batch(
        self, key: DrawKey, roots: np.ndarray, modes: Sequence[ExchangeMode | None]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return answers and labels of `roots`, for the model of each mode; None: the mode is yet to be chosen.

        Collective.
        """
        labels = self.ctx.root_labels(roots, local=True).cpu().numpy().copy()
        answer, found = self.ctx.task.answer, batch_outputs(self.ctx, key, roots, modes, self._chosen_mode)
        return [(answer(each).cpu().numpy().copy(), labels) for each in found]

    def _chosen_mode(self, minibatch: MiniBatch) -> ExchangeMode:
        """Return the mode that feeds this model's first layer, chosen in the first round. Collective."""
        if self.mode is None:
            self.mode = mode_for_scoring(self.ctx, minibatch, self._config.strategy.remote)
        return self.mode
