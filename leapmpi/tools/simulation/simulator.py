"""From a config and a number of ranks to what an iteration moves, computes, holds and takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.engine import Engine
from leapmpi.engine.exchange.selection import (
    compute_seconds_of,
    exchange_mode,
    fewest_bytes,
    least_seconds,
    serving_modes,
)
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.placement import placement_class
from leapmpi.engine.traffic import predict_fetch, predict_traffic, predicted_memory
from leapmpi.features.access import choose
from leapmpi.features.cache import RowCache
from leapmpi.plan.cost_model import Counts, Rates, iteration_seconds
from leapmpi.plan.homes import home_of
from leapmpi.plan.micrograph import locality
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.tools.simulation.ensembles import seated
from leapmpi.tools.simulation.virtual_ranks import virtual_ranks
from leapmpi.training.ensemble_ring import predict_hops
from leapmpi.training.feature_cache import access_of, caches

_EPOCH = 1
"""Of the random streams that what-ifs draw from; caches that rehearse the sampler use epoch 0 of these."""

_MICROGRAPHS = 256
"""Roots whose locality is looked at one by one."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """What one iteration with a whole batch is expected to be, and one whole epoch.

    sent: bytes by kind; pairs: float64[ranks, ranks] bytes from rank to rank; rows by place; memory: bytes by rank.
    `epoch_sent` and `epoch_rows` are sums over the iterations of an epoch.
    """

    strategy: str
    ranks: int
    time_steps: int
    remote: str
    iterations: int
    sent: dict[str, float]
    pairs: np.ndarray
    rows: dict[str, float]
    micrograph_locality: float
    imbalance: float
    memory: list[int]
    seconds: float | None
    epoch_sent: dict[str, float]
    epoch_rows: dict[str, float]

    @property
    def remote_ratio(self) -> float:
        """The share of rows that come from elsewhere."""
        return self.rows["remote"] / max(1.0, sum(self.rows.values()))

    def to_values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "pairs": self.pairs.tolist(), "remote_ratio": self.remote_ratio}


@dataclass(frozen=True, eq=False)
class _Sampled:
    """One iteration, as all ranks would have it."""

    traffic: Traffic
    counts: Counts
    memory: np.ndarray


class Forecaster:
    """Predicts for one dataset; `iterations` of an epoch are looked at, and its last, which may be short."""

    def __init__(self, dataset: Dataset, topology: Topology, iterations: int = 4) -> None:
        self.dataset, self.topology, self.iterations = dataset, topology, iterations

    def forecast(self, label: str, config: Config, ranks: int, rates: Rates | None = None) -> Forecast:
        """What `config` would do on `ranks` ranks. Raises ConfigError and DataError for what cannot be trained."""
        config, models = seated(config, self.dataset)
        engines = self.engines(config, ranks)
        parts = self._batches(engines[0], config)
        if engines[0].placement.mode_is_open:
            self._choose_mode(engines, parts[0], rates)
        whole = parts[:-1] or parts
        chosen = np.unique(np.linspace(0, len(whole) - 1, min(self.iterations, len(whole))).astype(int))
        looked_at = [self.sample(engines, parts[i], i, models) for i in chosen]
        last = self.sample(engines, parts[-1], len(parts) - 1, models) if len(parts) > 1 else looked_at[-1]
        sent, rows = _mean(looked_at, Traffic.bytes_by_kind), _mean(looked_at, Traffic.rows_by_place)
        minibatch = np.mean([each.counts.rows + each.counts.edges for each in looked_at], axis=0)
        each, first = len(parts) - 1, engines[0]
        return Forecast(
            strategy=label,
            ranks=ranks,
            time_steps=first.placement.time_steps,
            remote=first.mode_name,
            iterations=len(parts),
            sent=sent,
            pairs=np.mean([one.traffic.pairs() for one in looked_at], axis=0),
            rows=rows,
            micrograph_locality=self.locality(first, parts[0]),
            imbalance=float(minibatch.max(axis=0).sum() / max(1e-9, minibatch.mean(axis=0).sum())),
            memory=self._memory(engines, looked_at, sum(models)),
            seconds=None if rates is None or models else _seconds(looked_at, rates),
            epoch_sent={kind: each * sent[kind] + count for kind, count in last.traffic.bytes_by_kind().items()},
            epoch_rows={place: each * rows[place] + count for place, count in last.traffic.rows_by_place().items()},
        )

    def engines(self, config: Config, ranks: int) -> list[Engine]:
        """The engine of `config` on each of `ranks` ranks."""
        placement = placement_class(config.strategy.name)
        contexts = virtual_ranks(config, self.dataset, self.topology, ranks)
        engines = [Engine(placement.place_parameters(ctx), config.strategy) for ctx in contexts]
        for engine in filter(caches, engines):
            access = access_of(engine, self.dataset, self.topology, config.train.batch_size)
            ids = choose(access, config.strategy.cache_policy, int(config.strategy.cache * self.dataset.vertices))
            engine.ctx.features.cache = RowCache(ids, self.dataset.vertices)
        return engines

    def sample(
        self, engines: Sequence[Engine], batch: np.ndarray, iteration: int, models: Sequence[int] = ()
    ) -> _Sampled:
        """The iteration that trains `batch`, on random streams that no run draws from.

        `models` are the bytes of the parameters of each of several models.
        """
        key = DrawKey(PRESAMPLE, engines[0].ctx.seed, _EPOCH, iteration)
        schedule = engines[0].placement.schedule(batch, _EPOCH, iteration)
        minibatches = [engine.sample(schedule, key) for engine in engines]
        traffic = predicted_traffic(engines, minibatches, models)
        traffic.add_vote()
        memory = np.array(
            [predicted_memory(each, minibatch) for each, minibatch in zip(engines, minibatches, strict=True)]
        )
        return _Sampled(traffic, _counts(engines[0], schedule, minibatches, traffic), memory)

    def _choose_mode(self, engines: Sequence[Engine], batch: np.ndarray, rates: Rates | None) -> None:
        """Choose what crosses ranks as training does with `--remote auto`; by bytes where no rates are known."""
        key = DrawKey(PRESAMPLE, engines[0].ctx.seed, _EPOCH, 0)
        schedule = engines[0].placement.schedule(batch, _EPOCH, 0)
        minibatches = [engine.sample(schedule, key) for engine in engines]
        pairs = list(zip(engines, minibatches, strict=True))
        found = {
            name: np.array([exchange_mode(name, each.ctx).predicted_bytes(minibatch) for each, minibatch in pairs])
            for name in serving_modes(engines[0].ctx.model.layers[0])
        }
        name = fewest_bytes(found)
        if rates is not None:
            compute = max(compute_seconds_of(minibatch, rates) for minibatch in minibatches)
            name = least_seconds(found, compute, rates)[0]
        for engine in engines:
            engine.use_mode(name)

    def locality(self, engine: Engine, batch: np.ndarray) -> float:
        """R_micro of the first roots of `batch`."""
        ctx, key = engine.ctx, DrawKey(PRESAMPLE, engine.ctx.seed, _EPOCH, 0)
        return locality(ctx.sampler, key, batch[:_MICROGRAPHS], lambda ids: home_of(ids, ctx.rank_offsets))

    def _batches(self, engine: Engine, config: Config) -> Sequence[np.ndarray]:
        sampler, train = engine.ctx.sampler, self.dataset.splits.train
        return sampler.batches(train, config.train.seed, _EPOCH, config.train.batch_size, PRESAMPLE)

    def _memory(self, engines: Sequence[Engine], looked_at: Sequence[_Sampled], models: int) -> list[int]:
        """Bytes per rank: features at home, topology, model and optimizer, and the largest iteration.

        Of several models, whose parameters take `models` bytes, a rank has room for all, as if their optimizers were
        there too.
        """
        topology = self.topology.indptr.nbytes + self.topology.indices.nbytes + self.topology.original_id.nbytes
        model = 4 * (models or engines[0].ctx.parameters.gradients.nbytes)
        largest = np.max([one.memory for one in looked_at], axis=0)
        return [
            int(each.placement.feature_bytes + topology + model + bytes_)
            for each, bytes_ in zip(engines, largest, strict=True)
        ]


def predicted_traffic(
    engines: Sequence[Engine], minibatches: Sequence[MiniBatch], models: Sequence[int] = ()
) -> Traffic:
    """What all ranks send and read in an iteration, given the engine and the part of each.

    `models`: the bytes of the parameters of each of several models, which hop from rank to rank.
    """
    traffic = Traffic(len(minibatches))
    for engine in engines:
        (predict_fetch if models else predict_traffic)(engine, minibatches, traffic)
    if models:
        predict_hops(traffic, models)
    return traffic


def _counts(engine: Engine, schedule: Schedule, minibatches: Sequence[MiniBatch], traffic: Traffic) -> Counts:
    """What the cost model asks for."""
    within = sum(traffic.sent[kind] for kind in ("activations", "gradients", "parameters"))
    hops = schedule.time_steps - 1 if traffic.sent["parameters"].any() else 0
    busiest = [max(each.sum(axis=0).max(), each.sum(axis=1).max()) for each in (traffic.pairs() - within, within)]
    exchanges = 1 if not engine.mode.needs_weights else 2 * schedule.time_steps
    # The schedule, what is asked for, with how much of it there is, two halves of the reduction; the same for labels.
    others = 5 if engine.labels_are_local(minibatches[0]) else 8
    return Counts(
        rows=np.array(
            [[micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches] for minibatch in minibatches]
        ),
        edges=np.array(
            [
                [sum(block.edges for block in micro_batch.blocks) for micro_batch in minibatch.micro_batches]
                for minibatch in minibatches
            ]
        ),
        bytes_ahead=float(busiest[0]),
        bytes_within=float(busiest[1]),
        hops=hops,
        # Its bytes are among those within.
        hop_bytes=0.0,
        collectives=others + exchanges,
        together=hops > 0 or engine.mode.needs_weights,
    )


def _seconds(looked_at: Sequence[_Sampled], rates: Rates) -> float:
    return float(np.mean([iteration_seconds(each.counts, rates) for each in looked_at]))


def _mean(looked_at: Sequence[_Sampled], of: Any) -> dict[str, float]:
    found = [of(each.traffic) for each in looked_at]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}
