"""The feature rows that a rank holds in memory: copies of remote rows (`--cache`), and its own (`--feature-memory`).

The cache acts on raw feature rows only. Where training moves none, it is left out, with a sentence. With
`--feature-memory` a rank's most read rows are in memory, the others stay in their files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.engine import Engine
from leapmpi.exchange.context import Loaded
from leapmpi.features.access import AccessPattern, DryRoots
from leapmpi.features.expected_reads import choose, hottest_rows, predicted_hits
from leapmpi.features.memory_split import Split
from leapmpi.features.shards.mapped_shard import MappedShard
from leapmpi.features.shards.row_request import RowCache
from leapmpi.features.typed_shard import TypedShard, replicated_rows
from leapmpi.plan.homes import home_of
from leapmpi.runs.text import size_text
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.system.memory import check_memory
from leapmpi.training.root_batches import RootBatches, VertexBatches

_MOST_EDGE_BATCHES = 512
"""Batches of edges in an epoch of a dry run, at most."""


def caches(engine: Engine) -> bool:
    """Return whether `engine`, as far as it has chosen, keeps copies of raw rows."""
    return bool(engine.config.cache) and engine.ctx.communicator.size > 1 and engine.mode.moves_raw_rows


def access_of(
    engine: Engine, dataset: Dataset, topology: Topology | TopologyShard, batches: RootBatches
) -> AccessPattern:
    """Return how the rank of `engine` will read rows in `batches`."""
    ctx, preparation = engine.ctx, engine.preparation
    sampler = ctx.sampler.counting() if isinstance(ctx.sampler, ShardedSampler) else ctx.sampler

    # An epoch of edges has far more batches than tell rows apart.
    iterations = batches.per_epoch if ctx.task.roots == "vertices" else min(batches.per_epoch, _MOST_EDGE_BATCHES)

    def chances() -> np.ndarray:
        roots, expected = engine.roots.expected(dataset, batches.config.batch_size)
        found = np.zeros(dataset.vertices)
        found[roots] = preparation.share_of(roots) * min(1.0, expected / max(1, len(roots)))
        return found

    def dry_run(epoch: int) -> Iterator[DryRoots]:
        # Edges are shared by the rank that plans them; of vertices all ranks know the batches.
        planned: Sequence[np.ndarray | None] = [None] * batches.per_epoch
        if ctx.task.roots == "vertices" or batches.all_ranks_plan or ctx.rank == 0:
            planned = replace(batches, sampler=sampler).of_epoch(epoch, PRESAMPLE)
        for iteration, batch in enumerate(islice(planned, iterations)):
            key = DrawKey(PRESAMPLE, ctx.seed, epoch, iteration)
            yield key, *engine.roots.rehearsed(batch, key, preparation.drawn_for)

    return AccessPattern(topology, sampler, chances, ctx.rank, ctx.rank_offsets, iterations, dry_run)


class FeatureCache:
    """The rows that one training holds in memory. `about` describes them, the same on all ranks."""

    def __init__(
        self, config: Config, world: World, loaded: Loaded, engine: Engine, batches: RootBatches | None = None
    ) -> None:
        """Take the `batches` of training; by default those of its training vertices."""
        self.config, self.world, self.loaded, self.engine = config.strategy, world, loaded, engine
        self._batches = batches or VertexBatches(loaded.ctx.sampler, loaded.dataset.splits.train, config.train)
        # Until `fill` knows what crosses ranks.
        self.about: dict[str, Any] = {"cache": None, "feature_memory": None, "memory_split": None}
        self._chosen: RowCache | None = None
        self._replicated: list[str] = []

    def choose(self) -> None:
        """Choose the rows of the cache, so that the requests of a fetch can be predicted. Collective.

        Features of types that every rank holds whole are fetched at once.
        """
        self._fetch_replicated()
        if not caches(self.engine):
            return
        ctx, dataset = self.loaded.ctx, self.loaded.dataset
        count = int(self.config.cache * dataset.vertices)
        # The caches of this node's ranks must fit into what memory is left.
        needed, host = count * ctx.features.shard.row_bytes * self.world.node_comm.size, self.world.host
        taken = "the remote-row cache of its ranks takes"
        self.world.on_all(lambda: check_memory(needed, taken, host, "use a smaller --cache"))
        ids = choose(self._access(), count)
        self._chosen = ctx.features.cache = RowCache(ids, dataset.vertices)

    def _fetch_replicated(self) -> None:
        ctx, dataset = self.engine.ctx, self.loaded.dataset
        if dataset.types is None or self.world.size == 1 or self.config.prepare_ranks:
            return
        features, shard = ctx.features, ctx.features.shard
        assert isinstance(shard, TypedShard), "the graph is typed"
        ids = replicated_rows(dataset, shard)
        self._replicated = [dataset.types.vertices[t].name for t in np.unique(shard.types_of(ids))]
        if self._replicated:
            cache = RowCache(ids[home_of(ids, ctx.rank_offsets) != ctx.rank], dataset.vertices)
            needed = features.cached_bytes(cache) * self.world.node_comm.size
            taken = f"copies of all rows of {', '.join(self._replicated)} on its ranks take"
            mend = "partition with a smaller --replicate-below"
            self.world.on_all(lambda: check_memory(needed, taken, self.world.host, mend))
            features.fill(cache)

    def keep_hottest(self) -> None:
        """Load the own rows that are read most into memory, if not all have room. Collective.

        Learned rows have a memory of their own.
        """
        if not self._keeps:
            return
        ctx, world, shard = self.engine.ctx, self.world, self._mapped
        # Refuse before anything is loaded: ranks of a node share its memory.
        needed = sum(all_gather_values(world.node_comm, shard.resident_bytes if shard else 0))
        taken, mend = "feature rows that its ranks hold in memory take", "use a smaller --feature-memory"
        world.on_all(lambda: check_memory(needed, taken, world.host, mend))

        # Ranks whose rows are elsewhere, on a device, say how they will read those of the others.
        ids, share = np.empty(0, np.int64), 1.0
        if self.engine.preparation.reads_rows:
            capacity = shard.capacity if shard else 0
            ids, share = hottest_rows(self._access(), capacity, ctx.communicator, ctx.features.cache)
        figures, split = (0, 0, 1.0), self.loaded.split or Split(0, 0, 0.0)
        if shard:
            shard.keep(ids)
            figures = shard.resident_bytes, shard.nbytes - len(ids) * shard.row_bytes, share
        # All ranks report, those without files too, so that figures are complete on rank 0.
        figures_of_split = split.lists, split.rows, split.file_bytes
        table = self.loaded.ctx.communicator.all_gather_rows(np.array(figures + figures_of_split, np.float64))
        self.about["feature_memory"] = {
            "resident_bytes": [int(each) for each in table[:, 0]],
            "mapped_bytes": [int(each) for each in table[:, 1]],
            "predicted_share": [float(each) for each in table[:, 2]],
        }
        if table[:, 4].any():
            columns = table[:, 3:].astype(np.int64).T.tolist()
            self.about["memory_split"] = dict(zip(("lists", "rows", "file_bytes"), columns, strict=True))

    def fill(self) -> None:
        """Fetch the chosen rows, or forget them if training moves no raw rows after all. Collective."""
        cache, features = self._chosen, self.loaded.ctx.features
        if cache is None:
            return
        features.cache = None
        if not self.engine.mode.moves_raw_rows:
            return
        communicator = self.loaded.ctx.communicator
        before = communicator.byte_counters.bytes["features"]
        features.fill(cache)
        sent = communicator.byte_counters.bytes["features"] - before
        figures = len(cache.ids), features.cached_bytes(cache), sent
        table = communicator.all_gather_rows(np.array(figures, np.float64))
        # What moves roots is chosen by now, unlike when the rows were chosen.
        expected = predicted_hits(self._access(), cache.ids)
        hits, away = communicator.all_gather_rows(np.array(expected)).sum(axis=0)
        rows, _, filled = table.sum(axis=0).tolist()
        self.about["cache"] = {
            "rows": int(rows),
            "bytes": [int(each) for each in table[:, 1]],
            "filled_bytes": int(filled),
            "predicted_hit_rate": hits / away if away else 0.0,
        }

    def begin(self) -> None:
        """Forget what was counted so far. Local."""
        if self._mapped:
            self._mapped.take_counts()

    def sentences(self) -> list[str]:
        """Return sentences about settings that do not act, and about the cache."""
        sentences, learned = self.ignored(), self.loaded.ctx.learned
        if learned is not None and learned.memory.room is not None:
            room, folder = size_text(learned.memory.room), tempfile.gettempdir()
            sentences.append(
                f"learned rows are in unnamed files in {folder}, written once {room} have changed on a rank"
            )
        if self._replicated:
            sentences.append(f"every rank holds all rows of {', '.join(self._replicated)}")
        if cache := self.about["cache"]:
            sentences.append(
                f"cache: {cache['rows']:,} rows over all ranks, predicted to save "
                f"{cache['predicted_hit_rate']:.0%} of the remote rows"
            )
        if split := self.about["memory_split"]:
            lists, rows, read = (size_text(max(split[name])) for name in ("lists", "rows", "file_bytes"))
            sentences.append(
                f"memory split: {lists} for in-neighbour lists on a node, {rows} for feature rows on a rank; an "
                f"iteration is predicted to read {read} from files on a node"
            )
        if held := self.about["feature_memory"]:
            sentences.append(
                f"feature memory: at most {size_text(max(held['resident_bytes']))} resident and "
                f"{size_text(max(held['mapped_bytes']))} mapped from files on a rank; at least "
                f"{min(held['predicted_share']):.0%} of reads are predicted to find their row in memory"
            )
        return sentences

    def ignored(self) -> list[str]:
        """Return sentences about settings that do not act."""
        why = self._why_no_raw_rows()
        return [f"--cache is ignored: {why}"] if self.config.cache and why else []

    def epoch(self, rows: dict[str, int]) -> dict[str, Any]:
        """Return the figures for an epoch's record, given its rows by place over all ranks. Collective."""
        record: dict[str, Any] = {}
        if self.about["cache"]:
            away = rows["cached"] + rows["remote"]
            predicted = self.about["cache"]["predicted_hit_rate"]
            record["cache"] = {"hit_rate": rows["cached"] / away if away else 0.0, "predicted_hit_rate": predicted}
        if self._keeps:
            counts = self._mapped.take_counts() if self._mapped else (0, 0)
            read = self.loaded.ctx.communicator.all_gather_rows(np.array(counts))
            record["feature_memory"] = dict(zip(("resident", "mapped"), read.sum(axis=0).tolist(), strict=True))
        return record

    @property
    def _keeps(self) -> bool:
        return bool(self.config.feature_memory) and self.loaded.ctx.learned is None

    @property
    def _mapped(self) -> MappedShard | None:
        """The rows of this rank, where they are in memory and in files."""
        shard = self.engine.ctx.features.shard
        return shard if isinstance(shard, MappedShard) else None

    def _why_no_raw_rows(self) -> str:
        """Return why no raw rows cross ranks; empty where they do."""
        if self.world.size == 1:
            return "one rank reads no rows of others"
        engine = self.engine
        return "" if engine.mode.moves_raw_rows else f"no raw rows cross ranks (first layer: {engine.mode_name})"

    def _access(self) -> AccessPattern:
        return access_of(self.engine, self.loaded.dataset, self.loaded.topology, self._batches)
