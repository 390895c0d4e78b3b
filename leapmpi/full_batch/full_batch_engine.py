"""The engine of full batches: blocks and routes are made once and kept, since every iteration has the same roots."""

from __future__ import annotations

import math
import socket
import time
from dataclasses import astuple, replace

import numpy as np
from torch import Tensor

from leapmpi.config.sections import StrategyConfig
from leapmpi.config.setting import parse_size
from leapmpi.engine.edges.edge_features import fetch_edge_features
from leapmpi.engine.engine import Engine
from leapmpi.engine.memory import predicted_memory
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.feed_choice import can_go_by_owner, goes_by_owner
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.layer_graphs import RAW, Chooser, GraphBuilder, LayerGraph, build_here
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.features.cache import RowCache
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.kept_sums import sums_can_be_kept, sums_feed, with_sums
from leapmpi.full_batch.layer_account import Account, account_of, counts_of, features_that_come, sentence
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of, held_rows, reads_learned
from leapmpi.full_batch.memory_needs import AllCommunicated, advice
from leapmpi.full_batch.one_hop import one_hop
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.memory_model import Needs, TooLarge, too_much
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.memory import available_bytes


class FullBatchEngine(Engine):
    """Trains all training vertices in every iteration. `plan` makes the LayerGraph when it is first called."""

    limits_memory = True
    plans_once = True
    placement: FullBatchPlacement

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        super().__init__(ctx, config)
        self._kept: MiniBatch | None = None
        self._account: Account = []
        self._read_counts: dict[str, int] = {}
        """Rows that an iteration reads of features that stay, by place."""
        self._limit = parse_size(config.memory_limit, "--memory-limit") if config.memory_limit else math.inf

    # -- one iteration ---------------------------------------------------------------------------------------------

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """The mini-batch of all training vertices; `batch` (on rank 0) is read in the first call alone. Collective."""
        if self._kept is None:
            begin = time.perf_counter()
            self._kept = self._made(batch)
            self.planning_seconds = time.perf_counter() - begin
        return replace(self._kept, key=DrawKey(TRAIN, self.ctx.seed, epoch, iteration))

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        """The same as in training. Collective."""
        return self.plan(batch, 0, 0)

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Not possible: what a rank computes depends on what the others choose."""
        raise NotImplementedError("use draw or plan")

    def announce(self, planned: Schedule | EdgePlan) -> None:
        """Nothing: the roots are known before the first iteration."""

    def draw(self, planned: Schedule | EdgePlan, key: DrawKey) -> MiniBatch:
        """This rank's part of what is `planned`, with the cache that it would fill. Collective."""
        assert isinstance(planned, Schedule), "what `planned` gives"
        minibatch, _, _ = self._chosen(planned, key)
        ctx, graph = self.ctx, graph_of(minibatch)
        come = bool(features_that_come(graph, ctx.rank_offsets, ctx.rank))
        stay = not ctx.communicator.all_gather_rows(np.array([come], np.int64)).any() and not reads_learned(ctx)
        return replace(minibatch, graph=replace(graph, features_stay=stay))

    def request(self, minibatch: MiniBatch) -> None:
        """Request the feature rows that are not kept; labels and weights of the roots are. Collective, if any are."""
        graph = graph_of(minibatch)
        if graph.features_stay:
            self._read_counts = self._read_counts or self.ctx.features.request(graph.fed).read_counts
            self.ctx.communicator.byte_counters.add({}, self._read_counts)
            return
        with self.ctx.phases("exchange"):
            self.mode.request(minibatch)

    def predict_draws(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Nothing: lists have come before the first iteration."""

    @property
    def prefetch_depth(self) -> int:
        """None unless asked: rows that are fetched ahead take as much memory again."""
        asked = self.config.prefetch != "auto" and not self.ctx.features.returned_row_bytes
        return int(self.config.prefetch) if asked else 0

    def sentences(self) -> list[str]:
        """How the ranks get what they have not at home."""
        if self.ctx.ranks == 1:
            return []
        by_owner = self._kept is not None and graph_of(self._kept).by_owner
        less = ["to save memory, rows of one other rank at a time are held where layers allow it"] * by_owner
        return [sentence(self._account), *less]

    # -- what is made once -----------------------------------------------------------------------------------------

    def builder(self, schedule: Schedule, chooser: Chooser) -> GraphBuilder:
        """What builds the graph of this rank, split by `chooser`. Local."""
        ctx = self.ctx
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        return GraphBuilder(one_hop(ctx), roots, ctx.rank_offsets, ctx.rank, layers, chooser)

    def minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph, by_owner: bool = False) -> MiniBatch:
        """The mini-batch that computes `graph`; names the rows that are kept, but does not fetch them. Local.

        by_owner: whether layers that can hold the rows of one other rank at a time do.
        """
        found = self._minibatch(schedule, key, graph, by_owner)
        if not self._sums_are_wanted or graph.plans[0].kind != RAW:
            return found
        summed = self._minibatch(schedule, key, with_sums(self.ctx, graph), by_owner)
        return summed if self.needs(summed) <= self._limit else self._minibatch(schedule, key, graph, by_owner)

    def _minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph, by_owner: bool) -> MiniBatch:
        self.ctx.features.cache = RowCache(graph.cached, self.ctx.vertices) if len(graph.cached) else None
        graph = replace(graph, by_owner=by_owner)
        held = held_rows(graph, self.ctx.model.layers)
        return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None, held_rows=held)], graph=graph)

    def can_go_by_owner(self, graph: LayerGraph) -> bool:
        """Whether layers of `graph` can hold the rows of one other rank at a time, and there is one. Local."""
        parts = list(zip(self.ctx.model.layers, graph.plans, strict=True))
        some = self.ctx.ranks > 1 and any(goes_by_owner(*each) for each in parts)
        return some and all(can_go_by_owner(*each) for each in parts)

    @property
    def _sums_are_wanted(self) -> bool:
        return self.placement.keeps_sums and sums_can_be_kept(self.ctx)

    def needs(self, minibatch: MiniBatch) -> int:
        """Bytes, about, that an iteration of `minibatch` takes on this rank, with rows that are kept. Local."""
        features = self.ctx.features
        kept = features.cached_bytes(features.cache) if features.cache else 0
        return predicted_memory(self, minibatch) + kept

    def room(self, least: MiniBatch) -> float:
        """Bytes that caching may take, where a full batch that caches nothing is `least`. Local."""
        no_rows = RowCache(np.empty(0, np.int64), self.ctx.vertices)
        return self._limit - predicted_memory(self, least) - self.ctx.features.cached_bytes(no_rows)

    def _made(self, batch: np.ndarray | None) -> MiniBatch:
        """The mini-batch of `batch` (on rank 0), with all that does not change between iterations. Collective."""
        ctx, placement, key = self.ctx, self.placement, DrawKey(TRAIN, self.ctx.seed, 0, 0)
        with ctx.phases("plan"):
            buffer = None if batch is None else placement.schedule(batch, 0, 0).to_buffer()
            schedule = Schedule.from_buffer(ctx.communicator.broadcast(buffer, "schedule"))
            placement.settle(self.tuning_log)
        with ctx.phases("sample"):
            minibatch, why, room = self._chosen(schedule, key)
        graph = graph_of(minibatch)
        if why:
            ways = advice(self.config.name, bool(self.config.memory_limit), len(graph.plans))
            raise TooLarge(f"{why}; {ways}", room)
        self._account = account_of(ctx.communicator.all_gather_rows(counts_of(graph, ctx.rank_offsets, ctx.rank)))
        placement.record(self.tuning_log, {"layers": self._account})

        # Features that are kept, those of edges, and labels.
        with ctx.phases("exchange"):
            if any(layer["cached"] for layer in self._account[:1]):
                ctx.features.fill(ctx.features.cache or RowCache(graph.cached, ctx.vertices))
            fetch_edge_features(ctx, minibatch.micro_batches)
            labels = ctx.root_labels(graph.roots, local=True)
            assert isinstance(labels, Tensor), "labels are stored dense"
            minibatch.labels = [labels.clone()]
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = micro_batch.on_device(ctx.device)
        feeds = feeds_of(ctx, graph, micro_batch.tensors)
        if self._sums_are_wanted and graph.plans[0].kind == RAW:
            feeds[0] = self._summed(graph, micro_batch.tensors[-1]) or feeds[0]
        minibatch.feeds = [feeds]
        minibatch.root_weights = [ctx.sampler.root_weights(minibatch.key, graph.roots, schedule.batch_size)]
        self._read_counts = {}
        if not self._account[0]["rows"] and not reads_learned(ctx):
            with ctx.phases("exchange"):
                self.mode.request(minibatch)
                minibatch.complete()
            minibatch.graph = replace(graph, features_stay=True)
        return minibatch

    def _summed(self, graph: LayerGraph, block: BlockTensors) -> LayerFeed | None:
        """The feed of the first layer from sums of features, where this rank keeps them. Collective."""
        nothing = np.empty(0, np.int64)
        with self.ctx.phases("exchange"):
            asked = nothing if graph.summed is None else graph.summed
            rows = self.ctx.features.fetch(asked)
        if graph.summed is None:
            return None
        with self.ctx.phases("compute"):
            return sums_feed(self.ctx, block, rows)

    def _chosen(self, schedule: Schedule, key: DrawKey) -> tuple[MiniBatch, str, float]:
        """Choose the mini-batch; one that takes less where that is more than it may, or than is left. Collective.

        Returns it with the reason why it does not fit, empty where it does, and the bytes that it may take.
        """
        communicator, limit, least = self.ctx.communicator, math.inf, None
        if self.placement.caches_by_room:
            least = build_here(self.builder(schedule, AllCommunicated()), communicator)
            limit = self.room(self.minibatch(schedule, key, least))
        graph = build_here(self.builder(schedule, self.placement.chooser(limit)), communicator)
        minibatch = self.minibatch(schedule, key, graph)
        why, room = self._too_much(minibatch)
        if why and self.placement.chooses_kinds:
            graph = least or build_here(self.builder(schedule, AllCommunicated()), communicator)
            minibatch = self.minibatch(schedule, key, graph)
            why, room = self._too_much(minibatch)
        if why and communicator.all_gather_rows(np.array([int(self.can_go_by_owner(graph))])).all():
            minibatch = self.minibatch(schedule, key, graph, by_owner=True)
            why, room = self._too_much(minibatch)
        return minibatch, why, room

    def _too_much(self, minibatch: MiniBatch) -> tuple[str, float]:
        """Why an iteration takes more than it may, or than is left, and that room; empty where it fits. Collective."""
        features = self.ctx.features
        kept = features.cached_bytes(features.cache) if features.cache else 0
        communicator = self.ctx.communicator
        free = available_bytes() if communicator.carries else None
        needs = Needs(socket.gethostname(), self.needs(minibatch), kept, free)
        found = [Needs(*each) for each in communicator.all_gather_objects(list(astuple(needs)))]
        return too_much("a full batch", found, self._limit)
