"""The engine of tasks on edges: the roots of a batch are edges, whose ends are embedded like any roots.

Rank 0 broadcasts the batch's edges; every rank draws the same negatives, or finds the same labels in its topology, and
makes the same plan from them (leapmpi/plan/edge_plan.py). Where the task leaves target edges out, no draw of the
iteration sees the edges of the batch, in either direction.
"""

from __future__ import annotations

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.batch_rows import shared_out
from leapmpi.engine.context import RankContext
from leapmpi.engine.edges.edge_features import fetch_edge_features
from leapmpi.engine.edges.edge_loss import EdgeLoss
from leapmpi.engine.engine import Engine
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.traffic import embedding_bytes
from leapmpi.errors import ConfigError
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan, plan_edges
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.edge_lookup import numbers_of_edges
from leapmpi.sampling.edges.negative_sampler import HOME, NEGATIVES, Candidates, NegativeSampler
from leapmpi.system.counter_rng import PRESAMPLE, TRAIN, DrawKey


class EdgeEngine(Engine):
    """Plans, fetches and computes mini-batches of edges; a batch is int64[B, 2], sources and destinations."""

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        """Raises ConfigError for a strategy or a sampler with which edges cannot be trained."""
        super().__init__(ctx, config)
        assert isinstance(ctx.task, EdgeTask), "only tasks on edges are trained so"
        self.task = ctx.task
        self.deals = not self.placement.roots_are_local or config.replicas == "independent"
        """Whether edges are dealt: a model that differs is on one rank at a time, and so are its embeddings."""
        if self.task.leaves_out() and not ctx.sampler.leaves_edges_out:
            raise ConfigError(
                "sampling.sampler: this sampler cannot leave out the edges that a batch is to predict, and the model "
                "would see them; use node-wise, with-replacement, labor-0, weighted or temporal with --task "
                f"{self.task.name}"
            )
        link = self.task.link
        self.per_edge = link.negatives_per_edge if self.task.draws_negatives else 0
        offsets = ctx.rank_offsets if link.negatives_at == HOME else None
        kind: type[NegativeSampler] = NEGATIVES.load(link.negatives).NEGATIVES
        self.negatives = kind(Candidates(ctx.sampler.topology, offsets)) if self.per_edge else None

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Broadcast the edges of `batch` (on rank 0, None elsewhere), draw negatives, and sample. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            if batch is not None:
                self.placement.decide(self.tuning_log, epoch, iteration)
            time_steps, edges = self._broadcast(batch, self.placement.time_steps)
            self.placement.time_steps = time_steps
            key = DrawKey(TRAIN, ctx.seed, epoch, iteration)
            plan = self._plan(key, edges, time_steps)
        with ctx.phases("sample"):
            return self._sampled(plan, key)

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        time_steps, edges = self._broadcast(batch, time_steps)
        key = DrawKey(PRESAMPLE, self.ctx.seed, 0, 0)
        return self._sampled(self._plan(key, edges, time_steps), key)

    def planned(self, batch: np.ndarray, key: DrawKey) -> EdgePlan:
        return self._plan(key, batch, self.placement.time_steps)

    def draw(self, planned: Schedule | EdgePlan, key: DrawKey) -> MiniBatch:
        assert isinstance(planned, EdgePlan), "what `planned` gives"
        return self._sampled(planned, key)

    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        return None if batch is None else np.unique(batch)

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

    def broadcast_bytes(self, minibatch: MiniBatch) -> int:
        assert minibatch.edge_loss is not None, "this engine has made it"
        return 8 * (1 + 2 * minibatch.edge_loss.edges)

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """With the embeddings of the edges' ends."""
        super().predict_request(minibatch, traffic)
        assert minibatch.edge_loss is not None, "this engine has made it"
        minibatch.edge_loss.predict(self.ctx.rank, embedding_bytes(self), traffic)

    def _broadcast(self, batch: np.ndarray | None, time_steps: int) -> tuple[int, np.ndarray]:
        """Time steps and edges of rank 0, on every rank. Collective."""
        words = None if batch is None else np.concatenate([[time_steps], batch.reshape(-1)])
        words = self.ctx.communicator.broadcast(words, "schedule")
        return int(words[0]), words[1:].reshape(-1, 2)

    def _plan(self, key: DrawKey, edges: np.ndarray, time_steps: int) -> EdgePlan:
        """The plan of all ranks. Local, and the same everywhere."""
        placement, topology = self.placement, self.ctx.sampler.topology

        def place(vertices: np.ndarray) -> Schedule:
            return placement.schedule(vertices, key.epoch, key.iteration, 1)

        negatives = (
            self.negatives.draw(key, edges, self.per_edge) if self.negatives else np.empty((len(edges), 0), np.int64)
        )
        labels = None
        if self.task.reads_edge_labels:
            assert topology.edge_label is not None, "it is loaded for the tasks that read it"
            labels = topology.edge_label[numbers_of_edges(topology, edges)].astype(np.int64)
        how = None if self.deals else place
        numbers = {"epoch": key.epoch, "iteration": key.iteration}
        return plan_edges(edges, negatives, time_steps, self.ctx.ranks, how, labels=labels, **numbers)

    def _sampled(self, plan: EdgePlan, key: DrawKey) -> MiniBatch:
        """This rank's part of `plan`, drawn with `key`. Local."""
        sampler = self.ctx.sampler
        if self.task.leaves_out():
            # By construction no block holds a target edge: they are left out before anything is drawn.
            sampler.leave_out(key, plan.edges)
        sampler.drawing.root_edges(key, plan.edges)
        minibatch = self.sample(plan.schedule, key)
        scores = self.placement.labelled_rank
        minibatch.edge_loss = EdgeLoss(plan, scores, self.task, self.ctx.communicator, self.ctx.phases)
        return minibatch
