"""`--strategy auto`: the strategy whose epoch is predicted to be shortest.

A few iterations are counted on virtual ranks. Their computation and traffic take time by the rates of the machine
(leapmpi/plan/machine_rates.py). No clock is read: the same command on the same data chooses the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from leapmpi.config import sections
from leapmpi.config.run_facts import mixes_attention
from leapmpi.config.schema import Config
from leapmpi.config.setting import names_code
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.engine import Preparation
from leapmpi.engine.placement import mode_is_open, strategy_named
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.forecast.simulator import Forecaster, roots_of, sampled_of
from leapmpi.forecast.virtual_job import VirtualJob
from leapmpi.nn.task import task_of
from leapmpi.plan.chosen_strategy import Choice, EpochCost
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.schedule_buffers import whole_buffer
from leapmpi.plan.traffic_model import Traffic
from leapmpi.runs.text import size_text
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, Sampler
from leapmpi.system.counter_rng import DrawKey

AUTO = "auto"

FIRST = "leap"
"""Default strategy, unless another is clearly faster."""

_CANDIDATES = (FIRST, "pull", "p3", "owner")

_FULL_BATCH = ("hybrid", "depcomm", "depcache", FIRST, "pull")
"""Those for full batches of all neighbours; the first one is the default."""

_KEEPS_EDGES = "depcomm"
"""The one that keeps all edges of a vertex at its owner, in every layer."""

_CLEARLY = 0.9
"""Another strategy must promise less than this fraction of the default's seconds."""

_ITERATIONS = 3
"""Iterations of an epoch that are counted, fewer where they are large."""

MOST_EDGES = 20_000_000
"""Approximate edges drawn to count an iteration of a strategy; a larger one is not counted."""

_PROBED = 32
"""Roots by which the edges of an iteration are estimated."""

_MOST_READ = 32 << 30
"""Bytes that the ranks of p3 may read at the start, over all, to get their columns out of rows."""

_OF_LEAP = ("time_steps", "merge", "memory_limit")
"""Settings that leap alone reads, or that request its time steps."""

_SENDS = {"p3": "never sends", "owner": "seldom sends"}
"""Words for the rare or missing raw rows of some strategies."""


def choose(
    config: Config,
    dataset: Dataset,
    topology: Topology,
    ranks: int,
    machine: MachineRates,
    real: RankContext | None = None,
    forecaster: Forecaster | None = None,
) -> Choice:
    """Choose the strategy for `config` on `ranks` ranks by the rates of `machine`. Local, pure.

    In a job `real` is the context of this rank. A `forecaster` of the same data saves work. Raises ConfigError and
    DataError for settings that no strategy can train.
    """
    candidates = _candidates(config, dataset)
    stands = candidates[0]
    if why := _without_counting(config, dataset, ranks):
        return Choice(stands, why)

    # Caches bear on leap and pull alike, and take long to choose.
    left_out = _left_out(config, dataset, ranks) if stands == FIRST else {}
    config = config.replaced({"strategy.cache": 0.0})
    count = _Count(config, forecaster or Forecaster(dataset, topology, real=real), ranks, machine)
    iterations = count.iterations
    if not iterations:
        return Choice(stands, f"an iteration of about {count.edges:,.0f} edges takes long to count")
    # Only the default must be able to train this; others that cannot are left out, with the reason.
    forecasts = {}
    for name in candidates:
        try:
            if name not in left_out:
                strategy_named(name).check_settings(config.replaced({"strategy.name": name}), dataset)
                forecasts[name] = count.forecast(name)
        except ConfigError as error:
            if name == stands:
                raise
            left_out[name] = str(error).removeprefix("strategy: ").partition(";")[0]
    rates = "documented rates" if machine == MachineRates() else "kept rates"
    return Choice(_least(forecasts), "", forecasts, left_out, iterations, rates)


def first_of(config: Config, dataset: Dataset) -> str:
    """Return the default strategy, for settings without a comparison. Local."""
    return _candidates(config, dataset)[0]


def _candidates(config: Config, dataset: Dataset) -> tuple[str, ...]:
    """Return the strategies to choose from, the default first. Raises ConfigError where the only one cannot train."""
    if mixes_attention(config):
        strategy_named(_KEEPS_EDGES).check_settings(config.replaced({"strategy.name": _KEEPS_EDGES}), dataset)
        return (_KEEPS_EDGES,)
    first = _FULL_BATCH[0]
    if dataset.types is not None:
        return _CANDIDATES
    try:
        strategy_named(first).check_settings(config.replaced({"strategy.name": first}), dataset)
    except ConfigError:
        return _CANDIDATES
    # Full batches of all neighbours; a setting that leap alone reads speaks for it.
    return _CANDIDATES if _given(config, [each for each in _OF_LEAP if each != "memory_limit"]) else _FULL_BATCH


def _without_counting(config: Config, dataset: Dataset, ranks: int) -> str:
    """Return why the first candidate is taken at once; empty where there is a choice."""
    if ranks == 1:
        return "there is one rank"
    if config.strategy.vary:
        return "auto does not compare strategies for models that differ"
    if names_code(config.sampling.sampler):
        return "auto does not compare strategies for a sampler of your own"
    if names_code(config.model.name):
        return "auto does not compare strategies for a model of your own"
    if task_of(config, dataset).roots == "edges":
        return "auto does not compare strategies for edge tasks"
    flags = _given(config, _OF_LEAP) if first_of(config, dataset) == FIRST else []
    return f"{flags[0]} is a setting of leap" if flags else ""


def _left_out(config: Config, dataset: Dataset, ranks: int) -> dict[str, str]:
    """Return why p3 and owner are not candidates, by their names; empty where they are."""
    if config.strategy.cache:
        return {name: f"--cache acts on raw rows, which it {what}" for name, what in _SENDS.items()}
    if config.train.batch_size == len(dataset.splits.train):
        return dict.fromkeys(_SENDS, "it trains mini-batches")
    if dataset.types is not None:
        return {"p3": "it does not train typed graphs"}
    if not dataset.feature_dim:
        return {"p3": "it does not learn rows"}
    size = 4 * dataset.vertices * dataset.feature_dim * ranks
    if not (dataset.has_columns or dataset.sparse) and size > _MOST_READ:
        return {"p3": f"its ranks would read {size_text(size)} of rows for their columns; prepare --layout columns"}
    return {}


def _given(config: Config, names: Sequence[str]) -> list[str]:
    """Return the flags of the strategy's settings `names` that differ from their defaults."""
    known = dict(sections.fields())
    settings = {name: known[f"strategy.{name}"] for name in names}
    return [f"--{each.flag}" for name, each in settings.items() if getattr(config.strategy, name) != each.default]


def _least(forecasts: Mapping[str, EpochCost]) -> str:
    """Return the strategy of the shortest epoch, or the first one unless another is clearly faster."""
    first, best = next(iter(forecasts)), min(forecasts, key=lambda name: forecasts[name].seconds)
    return best if forecasts[best].seconds < _CLEARLY * forecasts[first].seconds else first


class _Count:
    """Counts the same iterations for one strategy after the other."""

    def __init__(self, config: Config, forecaster: Forecaster, ranks: int, machine: MachineRates) -> None:
        self.config, self.forecaster, self.ranks, self.machine = config, forecaster, ranks, machine
        self._drawn: dict[tuple[type[Preparation], int, bytes], tuple[list[MiniBatch], Traffic]] = {}
        # The batches of an epoch, by a sampler that all strategies share. Settings of another hold for leap too.
        self.first = forecaster.job(self._config_of(FIRST), ranks)
        sampler, (self.batches, _) = self.first.sampler, forecaster.batches(self.first, config)
        self.edges = edges_of(sampler, roots_of(self.first, self.batches[0]), self.first.key(0), ranks)
        passes = ranks if sampler.family == FRONTIER_GLOBAL else 1
        fewest = min(_ITERATIONS, forecaster.iterations, len(self.batches))
        self.iterations = int(min(fewest, MOST_EDGES // max(1, self.edges * passes)))

    def _config_of(self, name: str) -> Config:
        return self.config.replaced({"strategy.name": name})

    def forecast(self, name: str) -> EpochCost:
        """Return the forecast of the strategy `name`. Raises ConfigError where it cannot train this."""
        job = self.first if name == FIRST else self.forecaster.job(self._config_of(name), self.ranks)
        engines = job.engines
        for engine in engines:
            engine.ctx.machine = self.machine
        config = self._config_of(name)
        if mode_is_open(engines[0].placement) and not self.forecaster.takes_known_mode(job, config):
            self.forecaster.choose_mode(job, config, self._minibatches(job, 0), self.batches[0])

        # Whole batches spread over the epoch; the last one may be short.
        whole = len(self.batches) - 1 or 1
        chosen = np.unique(np.linspace(0, whole - 1, self.iterations).astype(int)).tolist()
        seconds, sent = zip(*(self._iteration(job, config, number) for number in chosen), strict=True)
        sizes = [len(roots_of(job, each)) for each in self.batches]
        share = sum(sizes) / max(1, sum(sizes[number] for number in chosen))
        return EpochCost(share * sum(seconds), share * sum(sent), engines[0].mode_name)

    def _minibatches(self, job: VirtualJob, number: int) -> list[MiniBatch]:
        """Return the mini-batch of each rank for batch `number`; strategies with equal schedules share them."""
        job.world.take()
        schedule = job.plan(self.batches[number], job.key(number))
        assert isinstance(schedule, Schedule), "roots are vertices"
        of_plan, key = job.world.take(), (type(job.engines[0].preparation), number, whole_buffer(schedule).tobytes())
        if key not in self._drawn:
            found = job.draw_planned(schedule, job.key(number))
            self._drawn[key] = found, job.world.take()
        found, of_draws = self._drawn[key]
        if not job.engines[0].preparation.plans_once:
            job.world.traffic.add(of_plan)
        job.world.traffic.add(of_draws)
        return [replace(each, feeds=[]) for each in found]

    def _iteration(self, job: VirtualJob, config: Config, number: int) -> tuple[float, int]:
        """Return seconds and bytes of training batch `number`."""
        minibatches = self._minibatches(job, number)
        traffic = job.count(minibatches)
        sampled = sampled_of(job, minibatches, traffic)
        if not self.forecaster.real:
            # `leapmpi plan` forecasts the same strategies next.
            self.forecaster.keep(job, config, number, sampled)
        return sampled.seconds, sum(traffic.bytes_by_kind().values())


def edges_of(sampler: Sampler, batch: np.ndarray, key: DrawKey, ranks: int) -> float:
    """Estimate from a few roots the edges of the blocks of `batch` over all `ranks`; a lower bound."""
    roots, topology = batch[:_PROBED], sampler.topology
    share, total = len(batch) / max(1, len(roots)), 0.0
    for block in sampler.sample(key, roots, batch):
        # A rank draws once for each vertex and hop, however many roots lead there.
        of_all = topology.vertices * block.edges / max(1, block.n_dst)
        total += min(share * block.edges, ranks * min(topology.edges, of_all))
    return total
