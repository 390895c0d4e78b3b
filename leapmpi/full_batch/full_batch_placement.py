"""Base of strategies that train all training vertices in every iteration, each at its home."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.config.sections import StrategyConfig
from leapmpi.config.setting import ALL_NEIGHBOURS, names_code
from leapmpi.engine.placement import Placement, Strategy
from leapmpi.engine.tuning_log import TuningLog
from leapmpi.errors import ConfigError, counted
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, RAW, Chooser, LayerInputs, Split
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.full_batch.layer_by_layer import LayerByLayer, may_mix, reads_learned, refusal
from leapmpi.nn.layer import Layer
from leapmpi.nn.task import task_of
from leapmpi.plan.planner import plan_leap
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.relation_lists import relation_fanouts

if TYPE_CHECKING:
    from leapmpi.dataset.partitioned import Dataset

MIXED = "mixed"
"""The value of `--remote` that mixes projected rows and partial sums."""

MODE = "layer by layer"
"""Name in records of the way in which layers are fed."""


@dataclass(frozen=True)
class FullBatchRules:
    """Differences between the strategies that compute layer by layer."""

    caches: bool = False
    """Whether a rank computes all remote inputs itself, and keeps their features; else their owners send them."""
    communicates: bool = True
    """Whether hidden rows cross ranks, so that `--remote` may say how."""
    keeps_sums: bool = False
    """Whether sums of features are made once and kept, where layer and memory allow it."""
    chooses_kinds: bool = False
    """Whether it chooses by itself what is communicated, and what is cached, within `--memory-limit`."""


class FullBatchPlacement(Placement):
    """Training vertices on their home ranks, one time step, by `rules`."""

    def __init__(self, ctx: RankContext, config: StrategyConfig, strategy: Strategy, *, rules: FullBatchRules) -> None:
        super().__init__(ctx, config, strategy)
        self.rules = rules

    def chooser(self, room: float = math.inf) -> Chooser:
        """Return the chooser that splits the inputs of all layers, once; its cache may take `room` bytes. Local."""
        return self

    def settle(self, log: TuningLog) -> None:
        """Agree on the rates by which inputs will be split. Collective."""
        return

    def record(self, log: TuningLog, evidence: Mapping[str, Any]) -> None:
        """Record the choice, where there was one, with the counts that came of it. Local."""
        return

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Return all roots on their home ranks."""
        return plan_leap(batch, self.ctx.rank_offsets, 1, epoch=epoch, iteration=iteration)

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Return 0 for the kind that `--remote` names if the layer can be fed so, else for raw rows; infinity for
        others.
        """
        remote = self.config.remote
        kind = RAW if remote == "auto" or _refusal(self.ctx, remote, inputs.layer) else _kind(remote)
        return np.where([each == kind for each in KINDS], 0.0, np.inf)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Cache all remote inputs, or none; the others are sent as `kind`."""
        cached = np.zeros(inputs.block.n_src, bool)
        remote = np.flatnonzero(inputs.home != self.ctx.rank)
        cached[remote] = self.rules.caches
        layer = self.ctx.model.layers[inputs.layer]
        return Split(cached, np.ones(self.ctx.ranks, bool), layer.rows.pair is not None, self.mixes(layer))

    def mixes(self, layer: Layer) -> bool:
        """Return whether projected rows of `layer` are sent among its partial sums: not where these are requested
        alone.
        """
        return self.config.remote != PARTIAL and may_mix(self.ctx, layer)


def by_layer_strategy(
    rules: FullBatchRules,
    preparation: type[Any],
    placement: type[FullBatchPlacement] = FullBatchPlacement,
    check_settings: Callable[[FullBatchRules, Config, Dataset], None] | None = None,
    reassigns_parts: bool = True,
) -> Strategy:
    """Return the strategy that computes layer by layer by `rules`; by default it trains full batches."""
    return Strategy(
        partial(placement, rules=rules),
        one_step,
        preparation,
        layer_by_layer,
        takes_full_batch=True,
        by_layer=True,
        reassigns_parts=reassigns_parts,
        check_settings=partial(check_settings or check_full_batch, rules),
        why_whole_topology=why_whole_topology,
    )


def why_whole_topology(config: StrategyConfig) -> str:
    """Explain why the lists of all parts are read."""
    return "--balance-parts counts the lists of all parts; leave it out" if config.balance_parts != "off" else ""


def one_step(config: StrategyConfig, ranks: int) -> int:
    """Return 1. Raises ConfigError for more time steps."""
    if config.time_steps not in ("auto", "1") and not (ranks == 1 and config.time_steps == "N"):
        raise ConfigError(
            f"strategy.time_steps: {config.name} trains every vertex at its owner in one step; leave it out or use leap"
        )
    return 1


def check_full_batch(rules: FullBatchRules, config: Config, dataset: Dataset) -> None:
    """Raise ConfigError for what is not a full batch, and for what cannot be trained by one."""
    name, train = config.strategy.name, len(dataset.splits.train)
    if task_of(config, dataset).roots == "edges":
        raise ConfigError(f"strategy: {name} trains vertices, not edges; use leap or pull with --task link")
    if config.train.batch_size < train:
        raise ConfigError(
            f"strategy: {name} trains all {counted(train, 'training vertex')} in every step, and --batch-size is "
            f"{config.train.batch_size:,}; give --batch-size full, or use leap or pull"
        )
    _check_all_neighbours(config, dataset)
    # Each layer is computed by itself, with an exchange before the next.
    if names_code(config.model.name):
        raise ConfigError(
            f"strategy: {name} computes layer by layer, and {config.model.name} is run as a whole; use leap or pull"
        )
    # Training moves learned rows, and copies on other ranks would not move with them.
    if not dataset.feature_dim and not rules.communicates:
        raise ConfigError(
            f"strategy: {name} keeps copies of rows, and learned ones would be out of date after a step; use "
            "depcomm or hybrid, or leap or pull"
        )
    if not dataset.feature_dim and config.strategy.balance_parts != "off":
        raise ConfigError("strategy.balance_parts: learned rows stay with their ranks; leave it out")
    check_by_layer(rules, config)


def _check_all_neighbours(config: Config, dataset: Dataset) -> None:
    """Raise ConfigError where some in-neighbours would be drawn."""
    name, sampling, types = config.strategy.name, config.sampling, dataset.types
    # Graphs are built once from the whole lists, so nothing may draw from them.
    if any(fanout != ALL_NEIGHBOURS for fanout in sampling.fanout):
        layers = ",".join(["all"] * len(sampling.fanout))
        raise ConfigError(f"strategy: {name} draws nothing; give --fanout {layers}, or use leap or pull")
    if types and np.any(relation_fanouts(types, sampling.fanout, sampling.relation_fanout) > 0):
        raise ConfigError(
            f"strategy: {name} draws nothing; give all or 0 in --relation-fanout, or use leap, pull or owner"
        )
    if sampling.sampler != "node-wise":
        raise ConfigError(
            f"strategy: {name} draws nothing, so that --sampler {sampling.sampler} has no part in it; "
            "leave it out, or use leap or pull"
        )


def check_by_layer(rules: FullBatchRules, config: Config) -> None:
    """Raise ConfigError for settings of strategies that do not act on one that computes layer by layer."""
    name, by_kind = config.strategy.name, config.strategy.remote not in ("auto", RAW)
    if config.model.norm == "batch":
        raise ConfigError(f"model.norm: {name} has no batch normalisation; give --norm layer, or use leap or pull")
    for key, given, why in (
        ("remote", by_kind and config.strategy.remote not in (*KINDS, MIXED), f"has no {config.strategy.remote}"),
        ("remote", by_kind and not rules.communicates, "computes all hidden rows where they are read"),
        ("remote", by_kind and rules.chooses_kinds, "chooses for each layer what is sent"),
        ("vary", bool(config.strategy.vary), "trains one model"),
        ("cache", config.strategy.cache > 0, "keeps what it caches by a rule of its own"),
        ("feature_memory", bool(config.strategy.feature_memory), "reads all rows in every iteration"),
    ):
        if given:
            raise ConfigError(f"strategy.{key}: {name} {why}; leave it out, or use leap or pull")


def layer_by_layer(ctx: RankContext, config: StrategyConfig) -> tuple[str, ExchangeMode]:
    """Return the mode of full batches. Raises ConfigError where no layer can be fed as `--remote` says."""
    remote, layers = config.remote, range(len(ctx.model.layers))
    if remote != "auto" and all(reasons := [_refusal(ctx, remote, layer) for layer in layers]):
        raise ConfigError(
            f"strategy.remote: {remote} cannot feed any layer of this model: {reasons[-1]}; use raw or auto"
        )
    return MODE, LayerByLayer(ctx)


def _kind(remote: str) -> str:
    """Return the kind of KINDS that `--remote` names."""
    return PARTIAL if remote == MIXED else remote


def _refusal(ctx: RankContext, remote: str, layer: int) -> str:
    """Return why layer number `layer` cannot be fed as `--remote` says; empty where it can."""
    return refusal(ctx.model.layers[layer], _kind(remote), layer == 0 and reads_learned(ctx))
