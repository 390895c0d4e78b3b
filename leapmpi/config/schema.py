"""Config: all settings of a run, filled from defaults, then a TOML file, then `--set`, then flags.

An unknown section or key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leapmpi.config.options import check_options
from leapmpi.config.sections import (
    DATA,
    EvaluateConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    StrategyConfig,
    TrainConfig,
    about_unknown,
    fields,
    flattened,
)
from leapmpi.config.setting import parse_value
from leapmpi.config.vary import check_replicas
from leapmpi.errors import ConfigError


@dataclass(frozen=True)
class Config:
    """Everything that `leapmpi.train` needs: the dataset folder, and the settings by section."""

    data: str = DATA
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], origin: str = "config") -> Config:
        """Check `values` (nested as in TOML, or with dotted keys) and build a Config.

        Raises ConfigError naming `origin` and the key for unknown keys and unusable values.
        """
        return cls().replaced(values, origin)

    def replaced(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """A copy with `values` in place of the present ones, checked as by `from_values`."""
        config = self.assigned(values, origin)
        config.check()
        return config

    def assigned(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """A copy with `values` in place of the present ones, each checked alone; call `check` after the last source."""
        config = self
        for key, value in flattened(values).items():
            config = config._with(key, value, origin)
        return config

    def to_values(self) -> dict[str, Any]:
        """The whole config as nested plain values, ready for TOML or JSON."""
        return dataclasses.asdict(self)

    @property
    def model_seed(self) -> int:
        """The seed of initial weights and dropout masks."""
        return self.train.seed if self.model.seed < 0 else self.model.seed

    @property
    def evaluation_fanout(self) -> tuple[int, ...]:
        """The fan-outs of evaluation: those of training unless others are given."""
        return self.evaluate.fanout or self.sampling.fanout

    def _with(self, key: str, value: Any, origin: str) -> Config:
        """A copy with `value`, checked alone, as setting `key`."""
        known = dict(fields())
        if key not in known:
            raise ConfigError(f"{origin}: {about_unknown(key, known)}")
        checked = parse_value(known[key], value, f"{origin}: {key}")
        section, _, name = key.rpartition(".")
        if not section:
            return dataclasses.replace(self, **{name: checked})
        return dataclasses.replace(self, **{section: dataclasses.replace(getattr(self, section), **{name: checked})})

    def check(self) -> None:
        """Raise ConfigError where values do not fit together."""
        # Models that differ are checked one by one, by check_replicas.
        if self.strategy.replicas == "equal" and self.model.name == "gat" and self.model.hidden % self.model.heads:
            raise ConfigError(f"model.hidden ({self.model.hidden}) must be a multiple of heads ({self.model.heads})")
        check_replicas(self)
        if self.sampling.sampler != "node-wise" or self.sampling.options:
            check_options(self.sampling.sampler, self.sampling.options)
        if self.strategy.memory_limit and self.strategy.time_steps != "auto":
            raise ConfigError("strategy.memory_limit chooses time steps by itself; leave out --time-steps or the limit")
        given, layers = len(self.evaluate.fanout), len(self.sampling.fanout)
        if given not in (0, layers):
            raise ConfigError(
                f"evaluate.fanout has a length of {given}, but the model's number of layers is {layers}; "
                "give one fan-out per layer"
            )
