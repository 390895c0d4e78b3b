"""Edges as the roots of a batch: their ends are embedded like any roots.

All ranks get the edges of the batch with their labels, draw the same negatives, and make the same plan from them
(leapmpi/plan/edge_plan.py). If the task leaves target edges out, no draw of the iteration sees the edges of the batch,
in either direction.

With a whole topology on each rank, rank 0 names the edges. With a sharded one, each rank names those to its own
vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.engine.placement import Placement, labelled_rank
from leapmpi.engine.root_source import DrawnFor, Plan, RootSource, Sample, of_kind
from leapmpi.engine.tuning_log import TuningLog
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.edge_loss import EdgeLoss
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan, plan_edges
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.candidates import Candidates, HardLists
from leapmpi.sampling.edge_lookup import numbers_of_edges
from leapmpi.sampling.negative_sampler import NegativeSampler, negatives_named
from leapmpi.sampling.replaced_ends import OwnEnds, ReplacedEnds
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.shared_candidates import SharedCandidates
from leapmpi.sampling.sharded.shared_edges import gathered
from leapmpi.sampling.training_edges import BatchEdges
from leapmpi.sampling.typed_negatives import DESTINATION, SOURCE, Negatives, PlainNegatives, TypedNegatives
from leapmpi.system.counter_rng import TRAIN, DrawKey

if TYPE_CHECKING:
    from leapmpi.dataset.partitioned import Dataset


class EdgesOfNode:
    """Batches int64[B, 2] of sources and destinations, on rank 0; the topology is on every rank.

    Those of a typed graph are int64[B, 3], with relations.
    """

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx

    def ends(self, batch: np.ndarray) -> np.ndarray:
        """Return the edges of `batch`, int64[k, 2]. Local."""
        return batch[:, :2]

    def brought(self, batch: np.ndarray | None, time_steps: int) -> tuple[int, BatchEdges]:
        """Share the time steps of rank 0 and the edges of the batch with all ranks. Collective."""
        words = None if batch is None else np.concatenate([[time_steps], batch.reshape(-1)])
        words = self.ctx.communicator.broadcast(words, "schedule")
        return int(words[0]), self.described(words[1:].reshape(-1, 2 if self.ctx.sampler.types is None else 3))

    def described(self, batch: np.ndarray) -> BatchEdges:
        """Return the edges of `batch` with their names and labels from the topology. Local."""
        topology, labels, edges = self.ctx.sampler.topology, None, self.ends(batch)
        relations = None if batch.shape[1] == 2 else batch[:, 2]
        if self.ctx.task.reads_edge_labels:
            assert topology.edge_label is not None, "it is loaded for the tasks that read it"
            labels = topology.edge_label[numbers_of_edges(topology, edges)].astype(np.int64)
        return BatchEdges(edges, topology.original_id[edges], labels, relations=relations)

    def negatives(self, kind: Callable[[Candidates], NegativeSampler]) -> Negatives:
        """Return draws of negatives by samplers of `kind`. Local."""
        if self.ctx.sampler.types is not None:
            assert isinstance(self.ctx.task, EdgeTask), "roots are edges"
            return TypedNegatives(kind, self.ctx.sampler.topology, self.ctx.task.known_are_negatives)
        return PlainNegatives(kind(self.candidates()))

    def candidates(self) -> Candidates:
        """Return the candidates that negatives are drawn from. Local."""
        return Candidates(self.ctx.sampler.topology)


class EdgesOfShards(EdgesOfNode):
    """Batches int64[k, columns] on every rank, each with its own share (sampling/sharded/shared_edges.py)."""

    def __init__(self, ctx: RankContext, sampler: ShardedSampler) -> None:
        super().__init__(ctx)
        self.sampler = sampler

    def ends(self, batch: np.ndarray) -> np.ndarray:
        return batch[:, 1:3]

    def brought(self, batch: np.ndarray | None, time_steps: int) -> tuple[int, BatchEdges]:
        assert batch is not None, "every rank has a share"
        communicator = self.ctx.communicator
        facts = communicator.all_gather_rows(np.array([len(batch), time_steps]))
        return int(facts[0, 1]), gathered(batch, facts[:, 0].copy(), self.sampler.shard.own, communicator)

    def candidates(self) -> Candidates:
        return SharedCandidates(self.sampler.shard, self.ctx.communicator, self.ctx.rank_offsets)


def edges_of(ctx: RankContext) -> EdgesOfNode:
    """Return the way in which the ranks of `ctx` share batches of edges."""
    if isinstance(ctx.sampler, ShardedSampler):
        return EdgesOfShards(ctx, ctx.sampler)
    return EdgesOfNode(ctx)


class _SharedEdges(NamedTuple):
    """Edges of a batch on all ranks, with their negatives: of destinations, and of sources if typed."""

    time_steps: int
    edges: BatchEdges
    replaced: list[ReplacedEnds]


class EdgeRoots(RootSource):
    """Ends of edges as roots; a batch is int64[B, 2], sources and destinations.

    scatters: whether edges are assigned to any rank, as where several models are on one rank at a time, and so are
    their embeddings.
    """

    def __init__(self, ctx: RankContext, placement: Placement, tuning_log: TuningLog, scatters: bool = False) -> None:
        """Raise ConfigError for a sampler that cannot leave edges out, if the task needs that."""
        super().__init__(ctx, placement, tuning_log)
        assert isinstance(ctx.task, EdgeTask), "roots are edges"
        self.task = ctx.task
        # An edge is scored where one of its ends is embedded, and the other may be elsewhere.
        self._scatters = scatters or not placement.strategy.roots_are_local
        self.embeds_remotely = not self._scatters
        if self.task.leaves_out() and not ctx.sampler.leaves_edges_out:
            raise ConfigError(
                "sampling.sampler: this sampler cannot leave out the edges that a batch is to predict, and the model "
                "would see them; use node-wise, with-replacement, labor-0, weighted or temporal with --task "
                f"{self.task.name}"
            )
        link = self.task.link
        self.per_edge = link.negatives_per_edge if self.task.draws_negatives else 0
        self.edges = edges_of(ctx)
        self.kind = negatives_named(link.negatives_and_file[0])
        self.negatives = self._negatives() if self.per_edge else None

    def _negatives(self) -> Negatives:
        """Return draws of negatives, from lists of a file where these are read. Local."""
        if not self.kind.reads_lists:
            return self.edges.negatives(self.kind)
        triples = self.task.hard_negatives(check=self.ctx.rank == 0)
        lists = HardLists(triples, self.ctx.sampler.topology)
        return self.edges.negatives(partial(self.kind, lists=lists))

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> EdgePlan:
        """Bring the edges of `batch` to all ranks and draw negatives. Collective.

        batch: on rank 0, None elsewhere; the share of each rank if the topology is sharded.
        """
        ctx = self.ctx
        with ctx.phases("plan"):
            if ctx.rank == 0:
                self.placement.decide(self.tuning_log, epoch, iteration)
            key = DrawKey(TRAIN, ctx.seed, epoch, iteration)
            shared = self.share(batch, key, self.placement.time_steps)
            # Rank 0 alone has decided: the others learn it with the batch.
            self.placement.time_steps = shared.time_steps
            return self.plan_shared(shared, key)

    def share(self, batch: np.ndarray | None, key: DrawKey, time_steps: int) -> _SharedEdges:
        time_steps, edges = self.edges.brought(batch, time_steps)
        ends = [] if self.negatives is None else [DESTINATION] if edges.relations is None else [DESTINATION, SOURCE]
        return _SharedEdges(time_steps, edges, [self._replaced(key, edges, end) for end in ends])

    def _replaced(self, key: DrawKey, edges: BatchEdges, end: int) -> ReplacedEnds:
        """Draw negatives in place of one end of each edge. Collective with a sharded topology."""
        assert self.negatives is not None, "the task draws negatives"
        if self.kind.shared:
            return self.negatives.draw_shared(key, edges, self.per_edge, end)
        return OwnEnds(self.negatives.draw(key, edges, self.per_edge, end))

    def plan_shared(self, shared: _SharedEdges, key: DrawKey) -> EdgePlan:
        placement, (time_steps, edges, replaced) = self.placement, shared

        def place(vertices: np.ndarray) -> Schedule:
            return placement.schedule(vertices, key.epoch, key.iteration, 1)

        # Scattered edges are split evenly; else ends are embedded where the strategy would send them as roots.
        how = None if self._scatters else place
        plan = plan_edges(
            edges.ends,
            replaced,
            time_steps,
            self.ctx.ranks,
            how,
            epoch=key.epoch,
            iteration=key.iteration,
            labels=edges.labels,
            relations=edges.relations,
        )
        return replace(plan, times=edges.times)

    def draw(self, plan: Plan, key: DrawKey, sample: Sample) -> MiniBatch:
        plan = of_kind(plan, EdgePlan)
        self._begin(plan, key)
        minibatch = sample(plan.schedule, key)
        scores = labelled_rank(self.placement)
        minibatch.edge_loss = EdgeLoss(plan, scores, self.task, self.ctx)
        return minibatch

    def _begin(self, plan: EdgePlan, key: DrawKey) -> None:
        """Prepare the draws of `plan`. Local."""
        sampler = self.ctx.sampler
        if self.task.leaves_out():
            # By construction no block holds a target edge: they are left out before anything is drawn.
            sampler.leave_out(key, plan.edges)
        if plan.times is None:
            sampler.drawing.root_edges(key, plan.edges)
        else:
            sampler.drawing.root_times(key, plan.times)

    def label(self, minibatch: MiniBatch, roots: Sequence[np.ndarray], local: bool) -> None:
        """Give the mini-batch no labels of vertices: those of edges are on every rank. Local."""
        nothing = self.ctx.root_labels(np.empty(0, np.int64), local=True)
        minibatch.labels = [nothing] * len(minibatch.micro_batches)

    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        return None if batch is None else np.unique(self.edges.ends(batch))

    def rehearsed(self, batch: np.ndarray | None, key: DrawKey, drawn_for: DrawnFor) -> tuple[np.ndarray, np.ndarray]:
        plan = self.plan_shared(self.share(batch, key, self.placement.time_steps), key)
        self._begin(plan, key)
        # An end of edges of several time steps is embedded in each, and its row is fetched once.
        return np.unique(plan.schedule.rank_roots(self.ctx.rank)), np.unique(plan.schedule.roots)

    def expected(self, dataset: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
        vertices = np.argsort(self.ctx.sampler.topology.original_id)
        if self.negatives is not None and self.kind.takes_all:
            return vertices, len(vertices)
        # Both ends of a typed edge have negatives.
        negatives = self.per_edge * (1 if self.ctx.sampler.types is None else 2)
        drawn = negatives if self.kind.shared else batch_size * negatives
        return vertices, min(len(vertices), 2 * batch_size + drawn)


def embedding_bytes(ctx: RankContext) -> int:
    """Return the bytes of the embedding of an edge's end. Local."""
    return ctx.task.width * ctx.model.dtype.itemsize
