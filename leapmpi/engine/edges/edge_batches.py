"""How the edges of a batch come to all ranks, which plan it alike, and from where its negatives are drawn.

Where every rank sees all edges, rank 0 names them; where the topology is sharded, each rank names those to its own
vertices. A forecast of the second holds a whole topology, and counts what ranks would tell each other.
"""

from __future__ import annotations

import numpy as np

from leapmpi.exchange.context import RankContext
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.homes import home_of
from leapmpi.plan.list_traffic import predict_own_counts
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.candidates import Candidates
from leapmpi.sampling.edge_lookup import numbers_of_edges
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.shared_candidates import CountedCandidates, SharedCandidates
from leapmpi.sampling.sharded.shared_edges import edge_bytes, gathered
from leapmpi.sampling.training_edges import BatchEdges

_FACTS = 16
"""Bytes by which a rank says how many edges it names, and in how many time steps."""


class EdgesOfNode:
    """Batches int64[B, 2] of sources and destinations, on rank 0; the topology is on every rank."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx

    def ends(self, batch: np.ndarray) -> np.ndarray:
        """int64[k, 2]: the edges of `batch`. Local."""
        return batch

    def brought(self, batch: np.ndarray | None, time_steps: int) -> tuple[int, BatchEdges]:
        """The time steps of rank 0, and the edges of the batch, on every rank. Collective."""
        words = None if batch is None else np.concatenate([[time_steps], batch.reshape(-1)])
        words = self.ctx.communicator.broadcast(words, "schedule")
        return int(words[0]), self.described(words[1:].reshape(-1, 2))

    def described(self, edges: np.ndarray) -> BatchEdges:
        """`edges` int64[B, 2] with what the topology says of them. Local."""
        topology, labels = self.ctx.sampler.topology, None
        if self.ctx.task.reads_edge_labels:
            assert topology.edge_label is not None, "it is loaded for the tasks that read it"
            labels = topology.edge_label[numbers_of_edges(topology, edges)].astype(np.int64)
        return BatchEdges(edges, topology.original_id[edges], labels)

    def candidates(self) -> Candidates:
        """What negatives are drawn from. Local."""
        return Candidates(self.ctx.sampler.topology)

    def announce(self, plan: EdgePlan, time_steps: int) -> None:
        """Bring the edges of `plan` to all ranks. Collective."""
        self.brought(plan.edges if self.ctx.rank == 0 else None, time_steps)

    def predict_epoch(self, batches: int, traffic: Traffic) -> None:
        """Add to `traffic` what this rank sends to cut an epoch into `batches`. Local."""


class ForecastEdgesOfShards(EdgesOfNode):
    """The same in one process, for ranks that would hold a shard each."""

    def candidates(self) -> Candidates:
        return CountedCandidates(self.ctx.sampler.topology, self.ctx.rank_offsets)

    def announce(self, plan: EdgePlan, time_steps: int) -> None:
        counters, rank = self.ctx.communicator.byte_counters, self.ctx.rank
        named = int((home_of(plan.edges[:, 1], self.ctx.rank_offsets) == rank).sum())
        counters.add_to_each("control", _FACTS)
        counters.add_to_each("schedule", named * edge_bytes(self.ctx.sampler.topology))
        if plan.told is not None:
            counters.add_to_each("topology", int(plan.told[rank]))

    def predict_epoch(self, batches: int, traffic: Traffic) -> None:
        columns = 1 if self.ctx.sampler.topology.edge_time is None else 2
        predict_own_counts(self.ctx.rank, batches, columns, traffic)


class EdgesOfShards(EdgesOfNode):
    """Batches int64[k, columns] on every rank, its own share each (sampling/sharded/shared_edges.py)."""

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
    """How batches of edges come to the ranks of `ctx`."""
    if isinstance(ctx.sampler, ShardedSampler):
        return EdgesOfShards(ctx, ctx.sampler)
    return EdgesOfNode(ctx) if ctx.answers is None else ForecastEdgesOfShards(ctx)
