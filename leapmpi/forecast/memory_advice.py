"""Advice where an iteration takes too much memory: smaller batches, fewer layers and so on, by forecasts.

A long closure - many layers, all neighbours - reaches most of the graph from few roots. Each change is drawn on virtual
ranks, one after the other, and only where a few roots show that its iteration is small enough to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.iteration_memory import predicted_memory
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import LeapmpiError
from leapmpi.forecast.simulator import Forecaster, roots_of
from leapmpi.forecast.strategy_choice import MOST_EDGES, edges_of
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.nn.task import task_of
from leapmpi.runs.text import size_text
from leapmpi.session.topology_kind import SHARDED

_HALVINGS = 10
"""The most halvings of a batch, and doublings of ranks."""

Change = tuple[str, Mapping[str, Any]]
"""A change in words, and as settings."""


class MemoryAdvice:
    """Forecasts of iterations of `config` on `ranks` ranks of `nodes` nodes, and of changes that take less."""

    def __init__(self, config: Config, dataset: Dataset, topology: Topology, ranks: int, nodes: int = 1) -> None:
        self.limited = bool(config.strategy.memory_limit)
        # Each change is judged alone, in one time step.
        self.config = config.replaced({"strategy.memory_limit": "", "strategy.cache": 0.0})
        self.dataset, self.ranks, self.nodes = dataset, ranks, nodes
        self.forecaster = Forecaster(dataset, topology)

    def sentence(self, room: float) -> str:
        """Describe the changes that fit `room` bytes on each rank; empty where none was found. Local."""
        if task_of(self.config, self.dataset).roots == "edges" or self.config.strategy.vary:
            return ""
        found = list(self._fitting(room))
        return f"predicted to fit: {', or '.join(found)}" if found else ""

    def iteration_bytes(self, config: Config, ranks: int) -> int | None:
        """Predict the bytes of an iteration on the fullest of `ranks` ranks; None where it is too large to draw.

        Raises ConfigError and DataError where it cannot be trained.
        """
        strategy_named(config.strategy.name).check_settings(config, self.dataset)
        # What is drawn is the same wherever lists are.
        job = self.forecaster.job(config.replaced({"run.topology": "node"}), ranks)
        engines, key = job.engines, job.key(0)
        first, batch = engines[0], self.forecaster.batches(job, config)[0][0]
        if edges_of(job.sampler, roots_of(job, batch), key, ranks) > MOST_EDGES:
            return None
        planned = job.plan(batch, key)
        if not isinstance(first.preparation, FullBatchGraphs):
            # The blocks of one rank at a time are held.
            return max(predicted_memory(engine, engine.draw(planned, key)) for engine in engines)
        made = zip(engines, job.draw_planned(planned, key), strict=True)
        preparations = ((engine.preparation, minibatch) for engine, minibatch in made)
        return max(each.needs(minibatch) for each, minibatch in preparations if isinstance(each, FullBatchGraphs))

    def _fitting(self, room: float) -> Iterator[str]:
        config, fanout = self.config, self.config.sampling.fanout

        # Of smaller batches the largest that fits, and of shallower models the deepest.
        if config.strategy.name not in ("depcomm", "depcache", "hybrid"):
            sizes = [config.train.batch_size >> shift for shift in range(1, _HALVINGS)]
            yield from self._first(
                [(f"--batch-size {size}", {"train.batch_size": size}) for size in sizes if size], room
            )
        fewer = [fanout[:layers] for layers in range(len(fanout) - 1, 0, -1)]
        texts = [",".join("all" if each == -1 else str(each) for each in given) for given in fewer]
        yield from self._first(
            [(f"--fanout {text}", {"sampling.fanout": given}) for text, given in zip(texts, fewer, strict=True)], room
        )

        # Another way to feed layers; no copy of the topology; more ranks.
        if config.strategy.remote != "partial":
            yield from self._first([("--remote partial", {"strategy.remote": "partial"})], room)
        if not self.limited and (saved := self._saved_by_shards()) > 0:
            needed = self._needed({}, self.ranks)
            if needed is not None and needed <= room + saved:
                yield f"--topology sharded, which saves {size_text(int(saved))} per rank"
        for ranks in (self.ranks << shift for shift in range(1, _HALVINGS)):
            needed = self._needed({}, ranks) if ranks <= self.dataset.parts else None
            if needed is not None and needed <= room:
                yield f"{ranks} ranks with as much memory each ({size_text(needed)})"
                return

    def _first(self, changes: Iterable[Change], room: float) -> Iterator[str]:
        """Yield the first of `changes` that fits `room`, if one does."""
        for words, settings in changes:
            needed = self._needed(settings, self.ranks)
            if needed is not None and needed <= room:
                yield f"{words} ({size_text(needed)})"
                return

    def _needed(self, settings: Mapping[str, Any], ranks: int) -> int | None:
        try:
            return self.iteration_bytes(self.config.replaced(dict(settings)), ranks)
        except LeapmpiError:
            return None

    def _saved_by_shards(self) -> float:
        """Count the bytes per rank that shards of the topology save over a copy on each node; 0 where impossible."""
        config = self.config
        if config.run.topology == SHARDED or strategy_named(config.strategy.name).why_whole_topology(config.strategy):
            return 0.0
        of_node = self.ranks / self.nodes
        shards = self.forecaster.topology_bytes(config, self.ranks, SHARDED)
        return self.forecaster.topology.nbytes / of_node - max(shards)
