"""Config: all settings of a run, filled from defaults, then a TOML file, then `--set`, then flags.

An unknown section or key is an error that names the nearest known one. With `--vary` models differ: each combination of
its values is a config by itself, with which that model can be trained alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from leapmpi.config.compatibility import check
from leapmpi.config.link import LinkConfig
from leapmpi.config.options import MODELS, SAMPLERS, options_of, with_option
from leapmpi.config.other_names import FORMER, recorded_values
from leapmpi.config.run_facts import Facts
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
from leapmpi.config.setting import ALL_NEIGHBOURS, Setting, names_code, parse_value
from leapmpi.errors import ConfigError
from leapmpi.registry import Registry

_OPTIMISATION = ("lr", "optimizer", "momentum", "weight_decay", "lr_schedule", "warmup_epochs", "clip_norm")
"""Settings of the section `train` in which models on the same batches may differ."""


@dataclass(frozen=True)
class Config:
    """Everything that `leapmpi.train` needs: the dataset folder, and the settings by section."""

    data: str = DATA
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    link: LinkConfig = field(default_factory=LinkConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], origin: str = "config") -> Config:
        """Check `values` (nested as in TOML, or with dotted keys) and build a Config.

        Raises ConfigError naming `origin` and the key for unknown keys and unusable values.
        """
        return cls().replaced(values, origin)

    @classmethod
    def recorded(cls, values: Mapping[str, Any], origin: str) -> Config:
        """Build the config from `values` recorded by this version or an earlier one, each checked alone."""
        return cls().assigned(recorded_values(flattened(values)), origin)

    def replaced(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """Return a copy with `values` in place of the present ones, checked as by `from_values`."""
        config = self.assigned(values, origin)
        config.check()
        return config

    def assigned(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """Return a copy with `values` set, each checked alone; call `check` after the last source."""
        config = self
        for key, value in flattened(values).items():
            config = config._with(key, value, origin)
        return config

    def to_values(self) -> dict[str, Any]:
        """Return the whole config as nested plain values, ready for TOML or JSON."""
        return dataclasses.asdict(self)

    @property
    def model_seed(self) -> int:
        """The seed of initial weights and dropout masks."""
        return self.train.seed if self.model.seed < 0 else self.model.seed

    @property
    def evaluation_fanout(self) -> tuple[int, ...]:
        """The fan-outs of evaluation, one per layer: those of training unless others are given; one serves all hops."""
        given, layers = self.evaluate.fanout, len(self.sampling.fanout)
        return given * layers if len(given) == 1 else given or self.sampling.fanout

    @property
    def evaluation_takes_all(self) -> bool:
        """Whether splits are scored by all in-neighbours."""
        return set(self.evaluation_fanout) == {ALL_NEIGHBOURS}

    @property
    def evaluation_samples(self) -> bool:
        """Whether splits are scored on sampled neighbourhoods: not by all in-neighbours, nor by none at all."""
        return not self.evaluation_takes_all and tuple(self.sampling.relation_fanout) != ("*=0",)

    def _with(self, key: str, value: Any, origin: str) -> Config:
        """Return a copy with `value`, checked alone, as setting `key`."""
        known = dict(fields())
        if f"{(holder := key.partition('.options.'))[0]}.options" in known and holder[1]:
            section = holder[0]
            key, value = f"{section}.options", with_option(getattr(self, section).options, holder[2], value)
        if former := FORMER.get(key):
            # Files of earlier versions name every setting; one that was left alone does no harm.
            if str(value).lower() == str(former.default).lower():
                return self
            if former.becomes:
                return self.assigned(former.becomes(value), origin)
        if key not in known:
            raise ConfigError(f"{origin}: {about_unknown(key, known)}")
        checked = parse_value(known[key], value, f"{origin}: {key}")
        section, _, name = key.rpartition(".")
        if not section:
            return dataclasses.replace(self, **{name: checked})
        return dataclasses.replace(self, **{section: dataclasses.replace(getattr(self, section), **{name: checked})})

    def check(self) -> None:
        """Raise ConfigError where values do not fit together."""
        check(Facts(self))
        _check_vary(self)
        # Code is not loaded here. Models that differ are checked one by one.
        held: list[tuple[Registry[Any], str, tuple[str, ...]]] = [
            (SAMPLERS, self.sampling.sampler, self.sampling.options)
        ]
        held += [] if self.strategy.vary else [(MODELS, self.model.name, self.model.options)]
        for members, name, options in held:
            if options and not names_code(name):
                options_of(members, name, options)
        given, layers = len(self.evaluate.fanout), len(self.sampling.fanout)
        if given not in (0, 1, layers):
            raise ConfigError(
                f"evaluate.fanout has a length of {given}, but the model's number of layers is {layers}, as many as "
                "--fanout has; give one fan-out for all hops, such as all, or one per layer"
            )


def _check_vary(config: Config) -> None:
    """Raise ConfigError for settings that do not go with models that differ."""
    if not config.strategy.vary:
        return
    for each in variations(config).values():
        if each.model.norm == "batch" and not names_code(each.model.name):
            raise ConfigError(
                "model.norm: batch normalisation is not offered for models that differ, which travel past the rows of "
                "a batch; leave out --vary or use --norm layer"
            )


def variations(config: Config) -> dict[str, Config]:
    """Build the config of each model by label, such as 'model.hidden=16 train.lr=0.01': all combinations of --vary.

    Raises ConfigError for settings that models on the same batches must share, and for values that do not fit.
    """
    # The values of each setting.
    choices = [_choices(text) for text in config.strategy.vary]
    keys = [each[0][0] for each in choices]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ConfigError(f"strategy.vary: {twice.pop()} is varied twice; give all its values at once")

    # One config per combination, with settings of a run of one model.
    one_model: dict[str, Any] = {"strategy.vary": ()}
    models = {}
    for combination in product(*choices):
        label = " ".join(f"{key}={value}" for key, value in combination)
        models[label] = config.replaced(one_model | dict(combination), f"--vary {label}")
    return models


def models_of(config: Config) -> list[Config]:
    """List the configs of the trained models: `config` itself for a single one."""
    return list(variations(config).values()) if config.strategy.vary else [config]


def model_names(config: Config) -> str:
    """Name the trained models, each once: 'sage', or 'gcn and gat'."""
    return enumeration(list(dict.fromkeys(each.model.name for each in models_of(config))))


def enumeration(words: list[str]) -> str:
    """Join `words`: 'a', 'a and b', or 'a, b and c'."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _choices(text: str) -> list[tuple[str, str]]:
    """Parse the (key, value) pairs of 'key=value,value'."""
    key, equals, values = (part.strip() for part in text.partition("="))
    given = [value.strip() for value in values.split(",") if value.strip()]
    if equals and not key:
        raise ConfigError(f"strategy.vary: {text!r} names no setting; write it as model.hidden=16,32")
    if not equals or not given:
        raise ConfigError(f"strategy.vary: {text!r} names no values; write it as model.hidden=16,32")
    setting = _varied(key)
    # Two spellings of one value would train the same model twice.
    if len(given) != len({parse_value(setting, value, f"strategy.vary: {text}") for value in given}):
        raise ConfigError(f"strategy.vary: {text!r} names a value twice")
    return [(key, value) for value in given]


def _varied(key: str) -> Setting:
    """Return the setting `key`. Raises ConfigError for an unknown one, or one in which models cannot differ."""
    known = dict(fields())
    if key.startswith("model.options.") and key.count(".") == 2:
        return Setting(key, str, "", {})
    optimisation = {"link.scorer", *(f"train.{each}" for each in _OPTIMISATION)}
    allowed = {name: each for name, each in known.items() if name.startswith("model.") or name in optimisation}

    # One reason each for names that are not allowed.
    if key == "train.seed":
        raise ConfigError(
            "strategy.vary: train.seed also draws the batches, which all models share; vary model.seed, the seed of "
            "initial weights and dropout"
        )
    if key not in known:
        raise ConfigError(f"strategy.vary: {about_unknown(key, allowed)}")
    if key not in allowed:
        raise ConfigError(
            f"strategy.vary: models on the same batches cannot differ in {key}, but in {', '.join(allowed)}"
        )
    return allowed[key]
