"""Base of strategies that train all training vertices in every iteration, each at its home."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.config.sections import StrategyConfig
from leapmpi.config.setting import ALL_NEIGHBOURS, names_code
from leapmpi.engine.placement import Placement
from leapmpi.engine.tuning_log import TuningLog
from leapmpi.errors import ConfigError
from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, RAW, Chooser, LayerInputs, Split
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.full_batch.layer_by_layer import LayerByLayer, may_mix, reads_learned, refusal
from leapmpi.nn.layer import Layer
from leapmpi.nn.task import task_of
from leapmpi.plan.planner import plan_leap
from leapmpi.plan.schedule import Schedule

if TYPE_CHECKING:
    from leapmpi.dataset.partitioned import Dataset

MIXED = "mixed"
"""The value of `--remote` that mixes projected rows and partial sums."""

MODE = "layer by layer"
"""Name in records of the way in which layers are fed."""


class FullBatchPlacement(Placement):
    """Training vertices on their home ranks, one time step. Sub-classes say which remote inputs a rank caches."""

    takes_full_batch = deals_parts = draws_by_layer = True
    communicates = True
    """Whether hidden rows cross ranks, so that `--remote` may say how."""

    keeps_sums = False
    """Whether sums of features are made once and kept, where layer and memory allow it."""
    chooses_kinds = False
    """Whether it chooses by itself what is communicated."""

    def chooser(self, room: float = math.inf) -> Chooser:
        """Return the chooser that splits the inputs of all layers, once; its cache may take `room` bytes. Local."""
        return self

    @property
    def caches_by_room(self) -> bool:
        """Whether `room` bears on what is cached."""
        return False

    def settle(self, log: TuningLog) -> None:
        """Agree on the rates by which inputs will be split. Collective."""
        return

    def record(self, log: TuningLog, evidence: Mapping[str, Any]) -> None:
        """Record the choice, where there was one, with the counts that came of it. Local."""
        return

    def caches(self, layer: int, vertices: np.ndarray) -> np.ndarray:
        """Return which remote inputs (int64[k], distinct) of `layer` (0 is the first) this rank computes itself:
        bool[k].

        Of the first layer: whose features it keeps. Local and pure.
        """
        raise NotImplementedError(f"{type(self).__name__} splits inputs in another way")

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Return 0 for the kind that `--remote` names if the layer can be fed so, else for raw rows; infinity for
        others.
        """
        kind = RAW if self.config.remote == "auto" or self._refusal(inputs.layer) else self._kind
        return np.where([each == kind for each in KINDS], 0.0, np.inf)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Split inputs by `caches`; the others are sent as `kind`."""
        cached = np.zeros(inputs.block.n_src, bool)
        remote = np.flatnonzero(inputs.home != self.ctx.rank)
        cached[remote] = self.caches(inputs.layer, inputs.block.src[remote])
        layer = self.ctx.model.layers[inputs.layer]
        return Split(cached, np.ones(self.ctx.ranks, bool), layer.rows.pair is not None, self.mixes(layer))

    def mixes(self, layer: Layer) -> bool:
        """Return whether projected rows of `layer` are sent among its partial sums: not where these are requested
        alone.
        """
        return self.config.remote != PARTIAL and may_mix(self.ctx, layer)

    @property
    def _kind(self) -> str:
        """The kind of KINDS that `--remote` names."""
        return PARTIAL if self.config.remote == MIXED else self.config.remote

    def _refusal(self, layer: int) -> str:
        """Return why layer number `layer` cannot be fed as `--remote` says; empty where it can."""
        return refusal(self.ctx.model.layers[layer], self._kind, layer == 0 and reads_learned(self.ctx))

    @classmethod
    def why_whole_topology(cls, config: StrategyConfig) -> str:
        return "--balance-parts counts the lists of all parts; leave it out" if config.balance_parts != "off" else ""

    @staticmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """Return 1. Raises ConfigError for settings of time steps and tuning."""
        given = {
            "time_steps": config.time_steps not in ("auto", "1") and not (ranks == 1 and config.time_steps == "N"),
            "tune": config.tune,
        }
        for name, asked in given.items():
            if asked:
                raise ConfigError(
                    f"strategy.{name}: {config.name} trains every vertex at home in one step; leave it out or use leap"
                )
        return 1

    @classmethod
    def check_settings(cls, config: Config, dataset: Dataset) -> None:
        """Raise ConfigError for what is no full batch, and for what cannot be trained by one."""
        name, train = config.strategy.name, len(dataset.splits.train)
        if task_of(config, dataset).roots == "edges":
            raise ConfigError(f"strategy: {name} trains vertices, not edges; use leap, pull or p3 with --task link")
        if config.train.batch_size < train:
            raise ConfigError(
                f"strategy: {name} trains all {train:,} training vertices in every step, and --batch-size is "
                f"{config.train.batch_size:,}; give --batch-size full, or use leap or pull"
            )
        if any(fanout != ALL_NEIGHBOURS for fanout in config.sampling.fanout):
            layers = ",".join(["all"] * len(config.sampling.fanout))
            raise ConfigError(f"strategy: {name} draws nothing; give --fanout {layers}, or use leap or pull")
        if config.sampling.sampler != "node-wise":
            raise ConfigError(
                f"strategy: {name} draws nothing, so that --sampler {config.sampling.sampler} has no part in it; "
                "leave it out, or use leap or pull"
            )
        if names_code(config.model.name):
            raise ConfigError(
                f"strategy: {name} computes layer by layer, and {config.model.name} is run as a whole; use leap or pull"
            )
        if not dataset.feature_dim and not cls.communicates:
            raise ConfigError(
                f"strategy: {name} keeps copies of rows, and learned ones would be out of date after a step; use "
                "depcomm or hybrid, or leap or pull"
            )
        if not dataset.feature_dim and config.strategy.balance_parts != "off":
            raise ConfigError("strategy.balance_parts: learned rows stay with their ranks; leave it out")
        cls.check_strategy(config)

    @classmethod
    def check_strategy(cls, config: Config) -> None:
        """Raise ConfigError for settings of strategies that do not act on one that computes layer by layer."""
        name, by_kind = config.strategy.name, config.strategy.remote not in ("auto", RAW)
        if config.model.norm == "batch":
            raise ConfigError(f"model.norm: {name} has no batch normalisation; give --norm layer, or use leap or pull")
        for key, given, why in (
            ("remote", by_kind and config.strategy.remote not in (*KINDS, MIXED), f"has no {config.strategy.remote}"),
            ("remote", by_kind and not cls.communicates, "computes all hidden rows where they are read"),
            ("remote", by_kind and cls.chooses_kinds, "chooses for each layer what is sent"),
            ("vary", bool(config.strategy.vary), "trains one model"),
            ("cache", config.strategy.cache > 0, "keeps what it caches by a rule of its own"),
            ("feature_memory", bool(config.strategy.feature_memory), "reads all rows in every iteration"),
        ):
            if given:
                raise ConfigError(f"strategy.{key}: {name} {why}; leave it out, or use leap or pull")

    def exchange_mode(self) -> tuple[str, ExchangeMode]:
        """Return the mode of full batches. Raises ConfigError where no layer can be fed as `--remote` says."""
        if self.config.remote != "auto" and all(reasons := list(map(self._refusal, range(len(self.ctx.model.layers))))):
            raise ConfigError(
                f"strategy.remote: {self.config.remote} cannot feed any layer of this model: {reasons[-1]}; use raw or "
                "auto"
            )
        return MODE, LayerByLayer(self.ctx)

    @property
    def mode_is_open(self) -> bool:
        """Nothing is left to choose."""
        return False

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Return all roots on their home ranks."""
        return plan_leap(batch, self.ctx.rank_offsets, 1, epoch=epoch, iteration=iteration)
