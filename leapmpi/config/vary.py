"""Models that differ: one config per combination of the values in `--vary`; each can be trained by itself."""

from __future__ import annotations

from itertools import product
from typing import Any, Protocol, Self, TypeVar

from leapmpi.config.sections import ModelConfig, StrategyConfig, about_unknown, fields
from leapmpi.config.setting import Setting, parse_value
from leapmpi.errors import ConfigError

_TRAINING = ("lr", "optimizer", "momentum", "weight_decay", "lr_schedule", "warmup_epochs", "clip_norm")


class Config(Protocol):
    """What this module needs of `leapmpi.config.schema.Config`, which calls `check_replicas`."""

    @property
    def model(self) -> ModelConfig: ...

    @property
    def strategy(self) -> StrategyConfig: ...

    def replaced(self, values: dict[str, Any], origin: str = "config") -> Self:
        """A copy with `values` in place of the present ones."""
        ...


C = TypeVar("C", bound=Config)


def variations(config: C) -> dict[str, C]:
    """The config of each model by label, such as 'model.hidden=16 train.lr=0.01': all combinations of --vary's values.

    Raises ConfigError for settings that models on the same batches must share, and for values that do not fit.
    """
    # The values of each setting.
    choices = [_choices(text) for text in config.strategy.vary]
    keys = [each[0][0] for each in choices]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ConfigError(f"strategy.vary: {twice.pop()} is varied twice; give all its values at once")

    # One config per combination, with settings of a run of one model.
    one_model = {"strategy.replicas": "equal", "strategy.vary": ()}
    models = {}
    for combination in product(*choices):
        label = " ".join(f"{key}={value}" for key, value in combination)
        models[label] = config.replaced(one_model | dict(combination), f"--vary {label}")
    return models


def models_of(config: C) -> list[C]:
    """The configs of the models that are trained: `config` itself where there is one."""
    return list(variations(config).values()) if config.strategy.replicas == "independent" else [config]


def model_names(config: Config) -> str:
    """The names of the models that are trained, each once: 'sage', or 'gcn and gat'."""
    return enumeration(list(dict.fromkeys(each.model.name for each in models_of(config))))


def enumeration(words: list[str]) -> str:
    """'a', 'a and b', or 'a, b and c'."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _choices(text: str) -> list[tuple[str, str]]:
    """The (key, value) pairs of 'key=value,value'."""
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
    """The setting `key`. Raises ConfigError for one that is unknown, or in which models cannot differ."""
    known = dict(fields())
    optimisation = {f"train.{each}" for each in _TRAINING}
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


def check_replicas(config: Config) -> None:
    """Raise ConfigError for settings that do not go with models that differ, or with models that are equal."""
    strategy = config.strategy
    if strategy.replicas == "equal":
        if strategy.vary:
            raise ConfigError("strategy.vary: models that differ need --replicas independent")
        return
    if not strategy.vary:
        raise ConfigError("strategy.replicas: independent models need something to differ in; give --vary")

    # Settings that models on their way around the ranks need.
    needed = {
        "time_steps": (("auto", "1"), "every model trains the whole batch on its way around the ranks"),
        "remote": (("raw", "auto"), "projected rows and partial sums depend on the weights of one model"),
        "migrate": (("ring",), "independent models travel, their optimizers do not"),
    }
    for name, (values, why) in needed.items():
        if (given := getattr(strategy, name)) not in values:
            raise ConfigError(f"strategy.{name}: {given} does not go with --replicas independent: {why}")

    # Each model by itself.
    variations(config)
