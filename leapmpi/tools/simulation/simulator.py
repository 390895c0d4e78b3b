"""From a config and a number of ranks to what an iteration moves, computes, holds and takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.first_layer.selection import compute_seconds_of, fewest_bytes, least_seconds, remote_mode, serving
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.strategy import Strategy
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
from leapmpi.training.trainer import strategy_class

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
        strategies = self.strategies(config, ranks)
        parts = self._batches(strategies[0], config)
        if strategies[0].chooses_remote:
            self._settle_remote(strategies, parts[0], rates)
        whole = parts[:-1] or parts
        chosen = np.unique(np.linspace(0, len(whole) - 1, min(self.iterations, len(whole))).astype(int))
        looked_at = [self.sample(strategies, parts[i], i, models) for i in chosen]
        last = self.sample(strategies, parts[-1], len(parts) - 1, models) if len(parts) > 1 else looked_at[-1]
        sent, rows = _mean(looked_at, Traffic.bytes_by_kind), _mean(looked_at, Traffic.rows_by_place)
        minibatch = np.mean([each.counts.rows + each.counts.edges for each in looked_at], axis=0)
        each, first = len(parts) - 1, strategies[0]
        return Forecast(
            strategy=label,
            ranks=ranks,
            time_steps=first.time_steps,
            remote=first.remote_name,
            iterations=len(parts),
            sent=sent,
            pairs=np.mean([one.traffic.pairs() for one in looked_at], axis=0),
            rows=rows,
            micrograph_locality=self.locality(first, parts[0]),
            imbalance=float(minibatch.max(axis=0).sum() / max(1e-9, minibatch.mean(axis=0).sum())),
            memory=self._memory(strategies, looked_at, sum(models)),
            seconds=None if rates is None or models else _seconds(looked_at, rates),
            epoch_sent={kind: each * sent[kind] + count for kind, count in last.traffic.bytes_by_kind().items()},
            epoch_rows={place: each * rows[place] + count for place, count in last.traffic.rows_by_place().items()},
        )

    def strategies(self, config: Config, ranks: int) -> list[Strategy]:
        """The strategy of `config` on each of `ranks` ranks."""
        kind = strategy_class(config.strategy.name)
        seated = (kind.seated(ctx) for ctx in virtual_ranks(config, self.dataset, self.topology, ranks))
        strategies = [kind(ctx, config.strategy) for ctx in seated]
        for strategy in filter(caches, strategies):
            access = access_of(strategy, self.dataset, self.topology, config.train.batch_size)
            ids = choose(access, config.strategy.cache_policy, int(config.strategy.cache * self.dataset.vertices))
            strategy.ctx.features.cache = RowCache(ids, self.dataset.vertices)
        return strategies

    def sample(
        self, strategies: Sequence[Strategy], batch: np.ndarray, iteration: int, models: Sequence[int] = ()
    ) -> _Sampled:
        """The iteration that trains `batch`, on random streams that no run draws from.

        `models` are the bytes of the parameters of each of several models.
        """
        key = DrawKey(PRESAMPLE, strategies[0].ctx.seed, _EPOCH, iteration)
        schedule = strategies[0].schedule(batch, _EPOCH, iteration)
        minibatches = [strategy.sampled(schedule, key) for strategy in strategies]
        traffic = predicted_traffic(strategies, minibatches, models)
        traffic.add_vote()
        memory = np.array(
            [each.predicted_memory(minibatch) for each, minibatch in zip(strategies, minibatches, strict=True)]
        )
        return _Sampled(traffic, _counts(strategies[0], schedule, minibatches, traffic), memory)

    def _settle_remote(self, strategies: Sequence[Strategy], batch: np.ndarray, rates: Rates | None) -> None:
        """Choose what crosses ranks as training does with `--remote auto`; by bytes where no rates are known."""
        key = DrawKey(PRESAMPLE, strategies[0].ctx.seed, _EPOCH, 0)
        schedule = strategies[0].schedule(batch, _EPOCH, 0)
        minibatches = [strategy.sampled(schedule, key) for strategy in strategies]
        pairs = list(zip(strategies, minibatches, strict=True))
        found = {
            name: np.array([remote_mode(name, each.ctx).predicted_bytes(minibatch) for each, minibatch in pairs])
            for name in serving(strategies[0].ctx.model)
        }
        name = fewest_bytes(found)
        if rates is not None:
            compute = max(compute_seconds_of(minibatch, rates) for minibatch in minibatches)
            name = least_seconds(found, compute, rates)[0]
        for strategy in strategies:
            strategy.use_remote(name)

    def locality(self, strategy: Strategy, batch: np.ndarray) -> float:
        """R_micro of the first roots of `batch`."""
        ctx, key = strategy.ctx, DrawKey(PRESAMPLE, strategy.ctx.seed, _EPOCH, 0)
        return locality(ctx.sampler, key, batch[:_MICROGRAPHS], lambda ids: home_of(ids, ctx.rank_offsets))

    def _batches(self, strategy: Strategy, config: Config) -> Sequence[np.ndarray]:
        sampler, train = strategy.ctx.sampler, self.dataset.splits.train
        return sampler.batches(train, config.train.seed, _EPOCH, config.train.batch_size, PRESAMPLE)

    def _memory(self, strategies: Sequence[Strategy], looked_at: Sequence[_Sampled], models: int) -> list[int]:
        """Bytes per rank: features at home, topology, model and optimizer, and the largest iteration.

        Of several models, whose parameters take `models` bytes, a rank has room for all, as if their optimizers were
        there too.
        """
        topology = self.topology.indptr.nbytes + self.topology.indices.nbytes + self.topology.original_id.nbytes
        model = 4 * (models or strategies[0].ctx.parameters.gradients.nbytes)
        largest = np.max([one.memory for one in looked_at], axis=0)
        return [
            int(each.feature_bytes + topology + model + bytes_)
            for each, bytes_ in zip(strategies, largest, strict=True)
        ]


def predicted_traffic(
    strategies: Sequence[Strategy], minibatches: Sequence[MiniBatch], models: Sequence[int] = ()
) -> Traffic:
    """What all ranks send and read in an iteration, given the strategy and the part of each.

    `models`: the bytes of the parameters of each of several models, which hop from rank to rank.
    """
    traffic = Traffic(len(minibatches))
    for strategy in strategies:
        (strategy.predict_fetch if models else strategy.predict)(minibatches, traffic)
    if models:
        predict_hops(traffic, models)
    return traffic


def _counts(strategy: Strategy, schedule: Schedule, minibatches: Sequence[MiniBatch], traffic: Traffic) -> Counts:
    """What the cost model asks for."""
    within = sum(traffic.sent[kind] for kind in ("activations", "gradients", "parameters"))
    hops = schedule.time_steps - 1 if traffic.sent["parameters"].any() else 0
    busiest = [max(each.sum(axis=0).max(), each.sum(axis=1).max()) for each in (traffic.pairs() - within, within)]
    exchanges = 1 if strategy.remote_name == "raw" else 2 * schedule.time_steps
    # The schedule, what is asked for, with how much of it there is, two halves of the reduction; the same for labels.
    others = 5 if strategy.labels_at_home(minibatches[0]) else 8
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
        together=hops > 0 or strategy.remote_name != "raw",
    )


def _seconds(looked_at: Sequence[_Sampled], rates: Rates) -> float:
    return float(np.mean([iteration_seconds(each.counts, rates) for each in looked_at]))


def _mean(looked_at: Sequence[_Sampled], of: Any) -> dict[str, float]:
    found = [of(each.traffic) for each in looked_at]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}
