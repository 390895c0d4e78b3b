"""Full batches: blocks and routes are made once and kept, since every iteration has the same roots."""

from __future__ import annotations

import math
import socket
import time
from dataclasses import astuple, replace

import numpy as np
from torch import Tensor

from leapmpi.config.setting import parse_size
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.engine.engine import Engine, Preparation
from leapmpi.engine.iteration_memory import predicted_memory
from leapmpi.exchange.feeds.feed_choice import can_run_by_owner, runs_by_owner
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.layer_graphs import (
    KINDS,
    RAW,
    Chooser,
    GraphBuilder,
    LayerGraph,
    LayerInputs,
    Split,
    build_here,
)
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.features.shards.row_request import RowCache
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.kept_sums import sums_can_be_kept, sums_feed, with_sums
from leapmpi.full_batch.layer_account import Account, account_of, counts_of, received_features, sentence
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of, held_rows, reads_learned
from leapmpi.full_batch.one_hop import one_hop
from leapmpi.nn.attention_links import with_links
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.memory_model import Needs, TooLarge, too_much
from leapmpi.plan.schedule import Schedule
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.memory import available_bytes


class FullBatchGraphs(Preparation):
    """Layer graphs of all training vertices, made for the first iteration and kept."""

    limits_memory = plans_once = True
    placement: FullBatchPlacement

    @property
    def _caches_by_room(self) -> bool:
        """Whether `--memory-limit` bears on what is cached."""
        return self.placement.rules.chooses_kinds and bool(self.engine.config.memory_limit)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        limit = engine.config.memory_limit
        self._kept: MiniBatch | None = None
        self._account: Account = []
        self._read_counts: dict[str, int] = {}
        """Rows, by place, that an iteration reads of features that stay."""
        self._limit = parse_size(limit, "--memory-limit") if limit else math.inf

    # -- one iteration ---------------------------------------------------------------------------------------------

    def ready(self, key: DrawKey) -> MiniBatch | None:
        return None if self._kept is None else replace(self._kept, key=key)

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Make the mini-batch of all training vertices, with all that does not change between iterations. Collective.

        Raises TooLarge, on all ranks, where it takes more memory than it may. A forecast takes the smallest then, and
        makes the graph alone.
        """
        if not self.ctx.communicator.carries:
            return self._forecast(schedule, key)
        begin = time.perf_counter()
        self._kept = self._made(schedule)
        self.planning_seconds = time.perf_counter() - begin
        return replace(self._kept, key=key)

    def _forecast(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Make the mini-batch of a forecast, with the cache that would be filled. Collective."""
        ctx, (minibatch, _, _) = self.ctx, self._chosen(schedule, key)
        graph = graph_of(minibatch)
        come = bool(received_features(graph, ctx.rank_offsets, ctx.rank))
        stay = not ctx.communicator.all_gather_rows(np.array([come], np.int64)).any() and not reads_learned(ctx)
        return replace(minibatch, graph=replace(graph, features_stay=stay))

    def request(self, minibatch: MiniBatch) -> None:
        """Request the feature rows that are not kept; labels and weights of the roots are. Collective, if any are."""
        graph = graph_of(minibatch)
        if graph.features_stay:
            self._read_counts = self._read_counts or self.ctx.features.request(graph.fed).read_counts
            self.ctx.communicator.byte_counters.add({}, self._read_counts)
        else:
            self.engine.mode.request(minibatch)

    @property
    def prefetch_depth(self) -> int:
        """Number of mini-batches prepared ahead: none by default, as their rows take as much memory again."""
        given, features = self.engine.config.prefetch, self.ctx.features
        return 0 if given == "auto" or features.returned_row_bytes else int(given)

    def sentences(self) -> list[str]:
        """Return sentences about how the ranks get inputs that they do not own."""
        if self.ctx.ranks == 1:
            return []
        by_owner = self._kept is not None and graph_of(self._kept).by_owner
        less = ["to save memory, layers that can do so hold rows of one other rank at a time"] * by_owner
        return [sentence(self._account), *less]

    # -- what is made once -----------------------------------------------------------------------------------------

    def builder(self, schedule: Schedule, chooser: Chooser) -> GraphBuilder:
        """Return a builder of this rank's graph, split by `chooser`. Local."""
        ctx = self.ctx
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        return GraphBuilder(one_hop(ctx), roots, ctx.rank_offsets, ctx.rank, layers, chooser)

    def minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph, by_owner: bool = False) -> MiniBatch:
        """Return the mini-batch that computes `graph`; name the rows that are kept, but do not fetch them. Local.

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

    def can_run_by_owner(self, graph: LayerGraph) -> bool:
        """Return whether layers of `graph` can hold the rows of one other rank at a time, and there is one. Local."""
        parts = list(zip(self.ctx.model.layers, graph.plans, strict=True))
        some = self.ctx.ranks > 1 and any(runs_by_owner(*each) for each in parts)
        return some and all(can_run_by_owner(*each) for each in parts)

    @property
    def _sums_are_wanted(self) -> bool:
        return self.placement.rules.keeps_sums and sums_can_be_kept(self.ctx)

    def needs(self, minibatch: MiniBatch) -> int:
        """Return the bytes, about, that an iteration of `minibatch` takes on this rank, with rows that are kept.
        Local.
        """
        features = self.ctx.features
        kept = features.cached_bytes(features.cache) if features.cache else 0
        return predicted_memory(self.engine, minibatch) + kept

    def room(self, least: MiniBatch) -> float:
        """Return the bytes that caching may take, where a full batch that caches nothing is `least`. Local."""
        no_rows = RowCache(np.empty(0, np.int64), self.ctx.vertices)
        return self._limit - predicted_memory(self.engine, least) - self.ctx.features.cached_bytes(no_rows)

    def _made(self, schedule: Schedule) -> MiniBatch:
        """Make the mini-batch of `schedule`, with all that does not change between iterations. Collective."""
        ctx, placement, key = self.ctx, self.placement, DrawKey(TRAIN, self.ctx.seed, 0, 0)
        tuning_log = self.engine.tuning_log
        with ctx.phases("plan"):
            placement.settle(tuning_log)
        minibatch, why, room = self._chosen(schedule, key)
        graph = graph_of(minibatch)
        if why:
            config, carries = self.engine.config, any(layer.carries for layer in ctx.model.layers)
            ways = advice(config.name, bool(config.memory_limit), len(graph.plans), carries)
            raise TooLarge(f"{why}; {ways}", room)
        # A graph that does not fit is refused on all ranks, with the changes that would make it fit.
        self._account = account_of(ctx.communicator.all_gather_rows(counts_of(graph, ctx.rank_offsets, ctx.rank)))
        placement.record(tuning_log, {"layers": self._account})

        # Cached features, features of edges and labels are the same in every iteration, so they travel once.
        with ctx.phases("exchange"):
            if any(layer["cached"] for layer in self._account[:1]):
                ctx.features.fill(ctx.features.cache or RowCache(graph.cached, ctx.vertices))
            fetch_edge_features(ctx, minibatch.micro_batches)
            labels = ctx.root_labels(graph.roots, local=True)
            assert isinstance(labels, Tensor), "labels are stored dense"
            # A copy: the memory of fetched rows is used again.
            minibatch.labels = [labels.clone()]
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = with_links(ctx.model.layers, micro_batch.on_device(ctx.device))
        feeds = feeds_of(ctx, graph, micro_batch.tensors)
        if self._sums_are_wanted and graph.plans[0].kind == RAW:
            feeds[0] = self._summed(graph, micro_batch.tensors[-1]) or feeds[0]
        minibatch.feeds = [feeds]
        minibatch.root_weights = [ctx.sampler.root_weights(minibatch.key, graph.roots, schedule.batch_size)]
        self._read_counts = {}
        # Where no features cross ranks, the first layer's inputs never change: they are fetched once.
        if not self._account[0]["rows"] and not reads_learned(ctx):
            with ctx.phases("exchange"):
                self.engine.mode.request(minibatch)
                minibatch.complete()
            minibatch.graph = replace(graph, features_stay=True)
        return minibatch

    def _summed(self, graph: LayerGraph, block: BlockTensors) -> LayerFeed | None:
        """Return the feed of the first layer from sums of features, where this rank keeps them. Collective."""
        nothing = np.empty(0, np.int64)
        with self.ctx.phases("exchange"):
            # A rank that keeps no sums requests nothing, but takes part: the fetch is collective.
            requested = nothing if graph.summed is None else graph.summed
            rows = self.ctx.features.fetch(requested)
        if graph.summed is None:
            return None
        with self.ctx.phases("compute"):
            return sums_feed(self.ctx, block, rows)

    def _chosen(self, schedule: Schedule, key: DrawKey) -> tuple[MiniBatch, str, float]:
        """Choose the mini-batch; one that takes less where that is more than it may, or than is left. Collective.

        Returns it with the reason why it does not fit, empty where it does, and the bytes that it may take.
        """
        # From the fastest to the smallest: with caching, without it, and with the rows of one owner at a time. `why` is
        # the same on all ranks, so they take the same branches (rule R4).
        communicator, limit, least = self.ctx.communicator, math.inf, None
        if self._caches_by_room:
            least = build_here(self.builder(schedule, AllCommunicated()), communicator)
            limit = self.room(self.minibatch(schedule, key, least))
        graph = build_here(self.builder(schedule, self.placement.chooser(limit)), communicator)
        minibatch = self.minibatch(schedule, key, graph)
        why, room = self._too_much(minibatch)
        if why and self.placement.rules.chooses_kinds:
            graph = least or build_here(self.builder(schedule, AllCommunicated()), communicator)
            minibatch = self.minibatch(schedule, key, graph)
            why, room = self._too_much(minibatch)
        if why and communicator.all_gather_rows(np.array([int(self.can_run_by_owner(graph))])).all():
            minibatch = self.minibatch(schedule, key, graph, by_owner=True)
            why, room = self._too_much(minibatch)
        return minibatch, why, room

    def _too_much(self, minibatch: MiniBatch) -> tuple[str, float]:
        """Return why an iteration takes more than it may, or than is left, and that room; empty where it fits.
        Collective.
        """
        features = self.ctx.features
        kept = features.cached_bytes(features.cache) if features.cache else 0
        communicator = self.ctx.communicator
        free = available_bytes() if communicator.carries else None
        needs = Needs(socket.gethostname(), self.needs(minibatch), kept, free)
        found = [Needs(*each) for each in communicator.all_gather_objects(list(astuple(needs)))]
        return too_much("a full batch", found, self._limit)


class AllCommunicated:
    """All remote inputs come as rows: the split that caches nothing, by which the room for caching is measured."""

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Return costs that allow raw rows alone."""
        return np.where([kind == RAW for kind in KINDS], 0.0, np.inf)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Return a split that caches nothing."""
        return Split(np.zeros(inputs.block.n_src, bool), np.ones(int(inputs.home.max(initial=0)) + 1, bool))


def advice(strategy: str, limited: bool, layers: int, carries: bool = False) -> str:
    """Return advice for people on how to use less memory.

    limited: whether there is a --memory-limit. carries: whether attention is carried from layer to layer.
    """
    ways = ["use depcomm, which computes and keeps nothing twice"] if strategy == "depcache" else []
    ways += ["give a --memory-limit, which limits what is cached"] if strategy == "hybrid" and not limited else []
    ways += ["give fewer layers (--fanout)"] if layers > 1 else []
    # Carried attention needs all edges, which mini-batches do not have.
    batches = "" if carries else ", or train mini-batches (--strategy leap)"
    return ", ".join([*ways, f"take fewer --hidden columns or more ranks{batches}"])
