"""Predicted traffic, work, memory and seconds of an iteration, from a config and a number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from leapmpi.comm.byte_counters import KINDS
from leapmpi.config.compatibility import check
from leapmpi.config.schema import Config, variations
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.calibration import by_machine, counted_seconds, local_roots
from leapmpi.engine.engine import Engine
from leapmpi.engine.iteration_memory import predicted_memory
from leapmpi.engine.placement import mode_is_open, strategy_named
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.selection import (
    compute_seconds_of,
    fewest_bytes,
    leading_model,
    least_seconds,
    mode_class,
    modes_for,
    modes_of,
)
from leapmpi.forecast.predicted_seconds import most_operations, predicted_seconds
from leapmpi.forecast.type_counts import of_first_iteration
from leapmpi.forecast.virtual_job import DRY_EPOCH, Batches, VirtualJob, keep_copies, root_batches
from leapmpi.forecast.virtual_ranks import virtual_ranks
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.nn.model import model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.plan.cost_model import Counts, Rates
from leapmpi.plan.homes import home_of
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.plan.micrograph import locality
from leapmpi.plan.traffic_model import Traffic, mean_pairs
from leapmpi.sampling.construction.build import build_sampler
from leapmpi.session.chosen_split import with_best_split
from leapmpi.session.session import facts_of
from leapmpi.session.topology_kind import lists_in_memory
from leapmpi.system.counter_rng import PRESAMPLE
from leapmpi.training.feature_cache import caches

_WITHIN = ("activations", "embeddings", "gradients", "parameters", "row gradients")
"""Kinds of bytes that depend on current weights."""

_OF_ROWS = ("ids", "features")
"""Kinds that do where rows are learned."""

_MICROGRAPHS = 256
"""Roots whose locality is computed, one by one."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The expected traffic, reads and memory of one iteration with a whole batch, and of one whole epoch."""

    strategy: str
    ranks: int
    time_steps: int
    remote: str
    """Name of the exchange mode of the first layer."""
    iterations: int
    """Iterations of an epoch."""
    sent: dict[str, float]
    """Bytes by kind."""
    pairs: np.ndarray | None
    """float64[ranks, ranks]: bytes from rank to rank; None for more than 512 ranks."""
    rows: dict[str, float]
    """Input rows by place."""
    micrograph_locality: float
    imbalance: float
    """Work of the slowest rank at each time step, over the mean."""
    memory: list[int]
    """Bytes by rank."""
    epoch_seconds: float | None
    """By the rates of the machine; None for several models."""
    epoch_sent: dict[str, float]
    """Bytes by kind, over the iterations of an epoch."""
    epoch_rows: dict[str, float]
    """Rows by place, over the iterations of an epoch."""
    typed: dict[str, list[dict[str, Any]]] | None = None
    """Rows that an iteration on a typed graph reads from other ranks, by type and relation."""

    @property
    def remote_ratio(self) -> float:
        """The share of rows that come from other ranks."""
        return self.rows["remote"] / max(1.0, sum(self.rows.values()))

    def to_values(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        pairs = None if self.pairs is None else self.pairs.tolist()
        return {**vars(self), "pairs": pairs, "remote_ratio": self.remote_ratio}


@dataclass(frozen=True, eq=False)
class Sampled:
    """One sampled iteration of all ranks."""

    traffic: Traffic
    counts: Counts
    memory: np.ndarray
    """int64[ranks]: bytes that the iteration takes on each rank."""
    seconds: float
    """By the rates of the machine."""


class Forecaster:
    """Predicts for one dataset, from a sample of `iterations` of an epoch and its last one, which may be short."""

    def __init__(
        self, dataset: Dataset, topology: Topology, iterations: int = 4, real: RankContext | None = None
    ) -> None:
        self.dataset = dataset
        self.topology = topology
        self.iterations = iterations
        self.real = real
        """In a job, the context of this rank, whose sampler and model serve here too."""
        self._part = cache(dataset.part)
        self.settled = cache(partial(with_best_split, dataset, topology))
        """(config, ranks) -> config, on one node: with the split of memory that a job chooses, if it does."""
        self._modes: dict[tuple[Config, int, MachineRates], str] = {}
        self._kept: dict[tuple[object, ...], Sampled] = {}
        self.machine: MachineRates | None = None
        """Rates by which engines choose, where they are not the documented ones."""

    def forecast(self, label: str, config: Config, ranks: int) -> Forecast:
        """Predict `config` on `ranks` ranks. Raises ConfigError and DataError for settings that cannot be trained."""
        check(facts_of(config, self.dataset))
        strategy_named(config.strategy.name).check_settings(config, self.dataset)
        differing = variations(config).values() if config.strategy.vary else ()
        several = [model_of(each, self.dataset) for each in differing]
        models = [ParameterLayout(model).gradients.nbytes for model in several]
        if several:
            # Inputs are fetched once for all, and the largest model stands for the memory of an iteration.
            config = list(variations(config).values())[leading_model(several)]
        job = self.job(config, ranks, scatters=bool(models))
        engines = job.engines
        first, batches, begun = engines[0], *self.batches(job, config)
        copied = job.copy_lists(lambda epoch: self.batches(job, config, epoch)[0])
        names = modes_for(several, first.ctx.features, config) if several else None
        drawn = None
        if mode_is_open(first.placement) and not self.takes_known_mode(job, config, names):
            drawn = job.draw(batches[0], 0)
            self.choose_mode(job, config, drawn, batches[0], names)

        # Whole batches are alike, so a few stand for all. The last one may be short, and is counted apart.
        whole = max(1, len(batches) - 1)
        chosen = np.unique(np.linspace(0, whole - 1, min(self.iterations, whole)).astype(int))
        found = [self._sampled(job, config, batches[i], i, models, None if i else drawn) for i in chosen.tolist()]
        held = [sum(each) for each in zip(self.topology_bytes(config, ranks), copied, strict=True)]
        last = found[-1]
        if len(batches) > 1:
            last = self._sampled(job, config, batches[len(batches) - 1], len(batches) - 1, models)

        # An epoch has the mean of the sampled iterations for all but the last.
        sent, rows = _mean(found, Traffic.bytes_by_kind), _mean(found, Traffic.rows_by_place)
        others = len(batches) - 1
        seconds = None if models else others * float(np.mean([each.seconds for each in found])) + last.seconds
        micrographs, offsets = roots_of(job, batches[0])[:_MICROGRAPHS], first.ctx.rank_offsets
        work = np.mean([each.counts.rows + each.counts.edges for each in found], axis=0)
        return Forecast(
            strategy=label,
            ranks=ranks,
            time_steps=first.placement.time_steps,
            remote=first.mode_name,
            iterations=len(batches),
            sent=sent,
            pairs=mean_pairs([one.traffic for one in found]),
            rows=rows,
            micrograph_locality=locality(job.sampler, job.key(0), micrographs, lambda ids: home_of(ids, offsets)),
            imbalance=float(work.max(axis=0).sum() / max(1e-9, work.mean(axis=0).sum())),
            memory=self._memory(engines, found, held, sum(models)),
            epoch_seconds=seconds,
            epoch_sent={
                kind: begun[kind] + others * sent[kind] + count for kind, count in last.traffic.bytes_by_kind().items()
            },
            epoch_rows={place: others * rows[place] + count for place, count in last.traffic.rows_by_place().items()},
            typed=of_first_iteration(self.dataset.types, job, batches[0]),
        )

    def _sampled(
        self,
        job: VirtualJob,
        config: Config,
        batch: Batches,
        iteration: int,
        models: Sequence[int],
        drawn: Sequence[MiniBatch] | None = None,
    ) -> Sampled:
        """Return the iteration that trains `batch`, as it was `drawn` last, if it was.

        models: the bytes of the parameters of each of several models; empty for one.
        """
        if not models and (kept := self._kept.get(_place_of(job, config, iteration))):
            return kept
        minibatches = drawn or job.draw(batch, iteration)
        traffic = job.count(minibatches, models)
        return sampled_of(job, minibatches, traffic)

    def keep(self, job: VirtualJob, config: Config, iteration: int, sampled: Sampled) -> None:
        """Keep what was counted of an `iteration` of `config`, for its forecast."""
        self._kept[_place_of(job, config, iteration)] = sampled

    def batches(
        self, job: VirtualJob, config: Config, epoch: int = DRY_EPOCH
    ) -> tuple[Sequence[Batches], dict[str, int]]:
        """Return the batches of an epoch of dry runs by rank, and the bytes by kind that ranks send to cut it.

        They are training vertices on rank 0, or edges int64[B, 2], if these are roots; with a sharded topology each
        rank has its share of the edges.
        """
        engines = job.engines
        job.world.take()

        # Cut as in training, from a random stream of dry runs.
        by_rank = root_batches(config, self.dataset, self.topology, job.world, [each.ctx for each in engines])
        if not by_rank[0].all_ranks_plan:
            found = replace(by_rank[0], sampler=job.sampler).of_epoch(epoch, PRESAMPLE)
            return [job.on_first(each) for each in found], dict.fromkeys(KINDS, 0)
        job.world.take()
        shares = job.world.run(lambda rank: by_rank[rank].of_epoch(epoch, PRESAMPLE))
        begun = job.world.take().bytes_by_kind()
        # What is exchanged once is exchanged by the first plan.
        batches = list(zip(*shares, strict=True))
        job.plan(batches[0], job.key(0))
        return batches, begun

    def job(self, config: Config, ranks: int, scatters: bool = False) -> VirtualJob:
        """Return the job of `config` on so many virtual ranks, with the ids of their caches."""
        world, config = VirtualWorld(ranks), self.settled(config, ranks)
        placement = strategy_named(config.strategy.name)
        contexts = virtual_ranks(config, self.dataset, self.topology, world, self._part, self.real)
        for ctx in contexts:
            ctx.machine = self.machine or ctx.machine
        engines = [Engine(placement.place_parameters(ctx), config.strategy, scatters=scatters) for ctx in contexts]
        if caches(engines[0]):
            batches = root_batches(config, self.dataset, self.topology, world, contexts)
            keep_copies(config, self.dataset, self.topology, world, engines, batches)
        sampler = contexts[0].sampler
        if sampler.sharded:
            sampler = build_sampler(config, self.topology, self.dataset.splits.train)
        return VirtualJob(world, engines, sampler)

    def choose_mode(
        self,
        job: VirtualJob,
        config: Config,
        minibatches: Sequence[MiniBatch],
        batch: Batches,
        common: Sequence[str] | None = None,
    ) -> None:
        """Choose the mode of the first layer as training does with `--remote auto`, by counted rates.

        minibatches: those of all ranks when `batch` is trained. common: the modes that several models can share; the
        one that moves the fewest bytes is taken.
        """
        engines = job.engines

        # The bytes of each mode by rank, and the seconds that they take beside computing.
        found: dict[str, np.ndarray] = {}
        kept: list[ExchangeMode] = []
        for name in common or modes_of(engines[0].ctx):
            modes = [mode_class(name)(each.ctx) for each in engines]
            counts = [mode.predicted_bytes(each) for mode, each in zip(modes, minibatches, strict=True)]
            found[name] = np.array(counts)
            # What a mode has found of these mini-batches serves their count, which follows.
            kept = modes if fewest_bytes(found) == name else kept
        name = fewest = fewest_bytes(found)
        if not common and any(counts.any() for counts in found.values()):
            rates = _counted(job, batch)
            compute = max(compute_seconds_of(minibatch, rates) for minibatch in minibatches)
            name = least_seconds(found, compute, rates, engines[0].ctx.features.returned_row_bytes > 0)[0]
        if not common:
            self._modes[config, len(engines), engines[0].ctx.machine] = name
        for engine, mode in zip(engines, kept, strict=True):
            engine.use_mode(name, mode if name == fewest else None)

    def takes_known_mode(self, job: VirtualJob, config: Config, common: Sequence[str] | None = None) -> bool:
        """Use the mode that was chosen before for `config` on as many ranks; False where none was."""
        name = self._modes.get((config, len(job.engines), job.engines[0].ctx.machine))
        if name is None or common:
            return False
        for engine in job.engines:
            engine.use_mode(name)
        return True

    def _memory(
        self, engines: Sequence[Engine], sampled: Sequence[Sampled], topology: Sequence[int], models: int
    ) -> list[int]:
        """Count bytes per rank: local features, topology, model and optimizer, and the largest iteration.

        topology: bytes of the topology by rank; models: those of the parameters of several models, 0 for one. A rank
        has room for all of them and their optimizers.
        """
        model = 4 * (models or engines[0].ctx.parameters.gradients.nbytes)
        largest = np.max([one.memory for one in sampled], axis=0)
        return [
            int(each.placement.strategy.feature_bytes(each.ctx) + lists + model + bytes_)
            for each, lists, bytes_ in zip(engines, topology, largest, strict=True)
        ]

    def topology_bytes(self, config: Config, ranks: int, kind: str = "") -> list[int]:
        """Count bytes of the topology by rank: the node's copy, or an own shard, as `kind` or `config` says."""
        return lists_in_memory(self.settled(config, ranks), self.dataset, self.topology, ranks, kind)


def roots_of(job: VirtualJob, batch: Batches) -> np.ndarray:
    """Return the vertices int64 that are embedded for `batch`."""
    by_rank = (each.roots.vertices_of(share) for each, share in zip(job.engines, batch, strict=True))
    found = [each for each in by_rank if each is not None]
    return found[0] if len(found) == 1 else np.unique(np.concatenate(found))


def _place_of(job: VirtualJob, config: Config, iteration: int) -> tuple[object, ...]:
    """Return what decides the figures of `iteration` in a `job` of `config`."""
    first = job.engines[0]
    return config, len(job.engines), first.ctx.machine, first.mode_name, iteration


def sampled_of(job: VirtualJob, minibatches: Sequence[MiniBatch], traffic: Traffic) -> Sampled:
    """Return the iteration that trains `minibatches`, one a rank, with this `traffic`."""
    first = job.engines[0]
    counts = _counts(first, minibatches, traffic)
    operations = most_operations(job.engines, minibatches, traffic)
    seconds = predicted_seconds(counts, operations, first.ctx.machine, ahead=first.prefetch_depth > 0)
    return Sampled(traffic, counts, _memory(job, minibatches), seconds)


def _memory(job: VirtualJob, minibatches: Sequence[MiniBatch]) -> np.ndarray:
    """Return the bytes that an iteration of `minibatches` takes on each rank: int64[ranks]."""
    return np.array(list(map(predicted_memory, job.engines, minibatches)))


def _counts(engine: Engine, minibatches: Sequence[MiniBatch], traffic: Traffic) -> Counts:
    """Return the counts for the cost model, from the mini-batches of all ranks and their `traffic`."""
    schedule = minibatches[0].planned

    # Bytes that depend on current weights cannot be prefetched; of both kinds the busiest rank decides.
    within = {*_WITHIN, *(() if engine.fetches_ahead else _OF_ROWS)}
    busiest = [traffic.busiest(each) for each in (set(traffic.sent) - within, within)]
    hops = schedule.time_steps - 1 if traffic.sent["parameters"].any() else 0

    # Collectives: the exchanges of the first layer; and the schedule, the requests with their counts, two halves of the
    # reduction, and the same for labels.
    exchanges = engine.mode.collectives(schedule.time_steps)
    others = 5 if engine.preparation.labels_are_local(minibatches[0]) else 8
    return Counts(
        rows=np.array([[each.blocks[-1].n_src for each in minibatch.micro_batches] for minibatch in minibatches]),
        edges=np.array(
            [[sum(b.edges for b in each.blocks) for each in minibatch.micro_batches] for minibatch in minibatches]
        ),
        bytes_ahead=float(busiest[0]),
        bytes_within=float(busiest[1]),
        hops=hops,
        hop_bytes=0.0,  # they are part of bytes_within
        collectives=others + exchanges,
        steps_synchronised=hops > 0 or engine.mode.needs_weights,
    )


def _mean(sampled: Sequence[Sampled], of: Callable[[Traffic], dict[str, int]]) -> dict[str, float]:
    """Return the means of the figures `of` the traffic of each sampled iteration."""
    found = [of(each.traffic) for each in sampled]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def _counted(job: VirtualJob, batch: Batches) -> Rates:
    """Return the rates of the slowest rank by the constants of a machine."""
    roots, contexts = roots_of(job, batch), [each.ctx for each in job.engines]
    seconds = job.uncounted(lambda rank: counted_seconds(contexts[rank], local_roots(contexts[rank], roots)))
    return by_machine(contexts[0], *np.max(seconds, axis=0).tolist())
