"""The engine of tasks on edges: the roots of a batch are edges, whose ends are embedded like any roots.

All ranks get the batch's edges with their labels (edge_batches.py), draw the same negatives, and make the same plan
from them (leapmpi/plan/edge_plan.py). Where the task leaves target edges out, no draw of the iteration sees the edges
of the batch, in either direction.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.batch_rows import shared_out
from leapmpi.engine.edges.edge_batches import edges_of
from leapmpi.engine.edges.edge_features import fetch_edge_features
from leapmpi.engine.engine import Engine
from leapmpi.engine.traffic import embedding_bytes
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.edge_loss import EdgeLoss
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan, plan_edges
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.negative_sampler import NEGATIVES
from leapmpi.sampling.sharded.shared_candidates import CountedCandidates
from leapmpi.sampling.training_edges import BatchEdges
from leapmpi.system.counter_rng import PRESAMPLE, TRAIN, DrawKey


class EdgeEngine(Engine):
    """Plans, fetches and computes mini-batches of edges; a batch is int64[B, 2], sources and destinations."""

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        """Raises ConfigError for a strategy or a sampler with which edges cannot be trained."""
        super().__init__(ctx, config)
        assert isinstance(ctx.task, EdgeTask), "only tasks on edges are trained so"
        self.task = ctx.task
        self.deals = not self.placement.roots_are_local or bool(config.vary)
        """Whether edges are dealt: a model that differs is on one rank at a time, and so are its embeddings."""
        if self.task.leaves_out() and not ctx.sampler.leaves_edges_out:
            raise ConfigError(
                "sampling.sampler: this sampler cannot leave out the edges that a batch is to predict, and the model "
                "would see them; use node-wise, with-replacement, labor-0, weighted or temporal with --task "
                f"{self.task.name}"
            )
        link = self.task.link
        self.per_edge = link.negatives_per_edge if self.task.draws_negatives else 0
        self.edges = edges_of(ctx)
        kind = NEGATIVES.load(link.negatives).sampler
        self.negatives = kind(self.edges.candidates()) if self.per_edge else None

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Bring the edges of `batch` to all ranks, draw negatives, and sample. Collective.

        batch: on rank 0, None elsewhere; where the topology is sharded, the share of each rank.
        """
        ctx = self.ctx
        with ctx.phases("plan"):
            if ctx.rank == 0:
                self.placement.decide(self.tuning_log, epoch, iteration)
            time_steps, edges = self.edges.brought(batch, self.placement.time_steps)
            self.placement.time_steps = time_steps
            key = DrawKey(TRAIN, ctx.seed, epoch, iteration)
            plan = self._plan(key, edges, time_steps)
        with ctx.phases("sample"):
            return self._sampled(plan, key)

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        time_steps, edges = self.edges.brought(batch, time_steps)
        key = DrawKey(PRESAMPLE, self.ctx.seed, 0, 0)
        return self._sampled(self._plan(key, edges, time_steps), key)

    def planned(self, batch: np.ndarray, key: DrawKey) -> EdgePlan:
        return self._plan(key, self.edges.described(batch), self.placement.time_steps)

    def draw(self, planned: Schedule | EdgePlan, key: DrawKey) -> MiniBatch:
        assert isinstance(planned, EdgePlan), "what `planned` gives"
        return self._sampled(planned, key)

    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        return None if batch is None else np.unique(self.edges.ends(batch))

    def expected_roots(self, dataset: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
        vertices = np.argsort(self.ctx.sampler.topology.original_id)
        return vertices, min(len(vertices), batch_size * (2 + self.per_edge))

    def request(self, minibatch: MiniBatch) -> None:
        """Request the rows that do not depend on weights; labels of edges are on every rank. Collective."""
        with self.ctx.phases("exchange"):
            self.mode.request(minibatch)
            fetch_edge_features(self.ctx, minibatch.micro_batches)
            minibatch.batch_rows = shared_out(self.ctx, minibatch.micro_batches)
            nothing = self.ctx.root_labels(np.empty(0, np.int64), local=True)
            minibatch.labels = [nothing] * len(minibatch.micro_batches)

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        return True

    def predict_planning(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        assert minibatch.edge_loss is not None, "this engine has made it"
        self.edges.predict(minibatch.edge_loss.plan, traffic)

    def predict_epoch(self, batches: int, traffic: Traffic) -> None:
        self.edges.predict_epoch(batches, traffic)

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """With the embeddings of the edges' ends."""
        super().predict_request(minibatch, traffic)
        assert minibatch.edge_loss is not None, "this engine has made it"
        minibatch.edge_loss.predict(self.ctx.rank, embedding_bytes(self), traffic)

    def _plan(self, key: DrawKey, edges: BatchEdges, time_steps: int) -> EdgePlan:
        """The plan of all ranks, and the same everywhere. Collective where negatives and the topology are sharded."""
        placement, count = self.placement, len(edges.ends)

        def place(vertices: np.ndarray) -> Schedule:
            return placement.schedule(vertices, key.epoch, key.iteration, 1)

        negatives, told = np.empty((count, 0), np.int64), None
        if self.negatives:
            negatives = self.negatives.draw(key, edges.ends, self.per_edge, edges.names)
            if isinstance(candidates := self.negatives.candidates, CountedCandidates):
                told = candidates.take()
        how = None if self.deals else place
        numbers = {"epoch": key.epoch, "iteration": key.iteration}
        plan = plan_edges(edges.ends, negatives, time_steps, self.ctx.ranks, how, labels=edges.labels, **numbers)
        return replace(plan, told=told, times=edges.times)

    def _sampled(self, plan: EdgePlan, key: DrawKey) -> MiniBatch:
        """This rank's part of `plan`, drawn with `key`. Local, but for a sharded topology."""
        sampler = self.ctx.sampler
        if self.task.leaves_out():
            # By construction no block holds a target edge: they are left out before anything is drawn.
            sampler.leave_out(key, plan.edges)
        if plan.times is None:
            sampler.drawing.root_edges(key, plan.edges)
        else:
            sampler.drawing.root_times(key, plan.times)
        minibatch = self.sample(plan.schedule, key)
        scores = self.placement.labelled_rank
        minibatch.edge_loss = EdgeLoss(plan, scores, self.task, self.ctx.communicator, self.ctx.phases)
        return minibatch
