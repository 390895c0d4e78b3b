"""Models that differ: from `--vary` to one config each, every one of which can be trained by itself."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from leapmpi.errors import ConfigError, nearest

if TYPE_CHECKING:
    from leapmpi.config import Config

_TRAINING = ("lr", "optimizer", "momentum", "weight_decay", "lr_schedule", "warmup_epochs", "clip_norm")


def variations(config: Config) -> dict[str, Config]:
    """The config of each model by label, such as 'model.hidden=16 train.lr=0.01': all combinations of --vary's values.

    Raises ConfigError for settings that models on the same batches must share, and for values that do not fit.
    """
    choices = [_choices(config, text) for text in config.strategy.vary]
    keys = [each[0][0] for each in choices]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ConfigError(f"strategy.vary: {twice.pop()} is varied twice; give all its values at once")
    alone = {"strategy.replicas": "equal", "strategy.vary": ()}
    models = {}
    for chosen in product(*choices):
        label = " ".join(f"{key}={value}" for key, value in chosen)
        models[label] = config.replaced(alone | dict(chosen), f"--vary {label}")
    return models


def _choices(config: Config, text: str) -> list[tuple[str, str]]:
    """The (key, value) pairs of 'key=value,value'."""
    from leapmpi.config import fields

    key, equals, values = (part.strip() for part in text.partition("="))
    given = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not given:
        raise ConfigError(f"strategy.vary: {text!r} names no values; write it as model.hidden=16,32")
    may = [name for name, _ in fields() if name.startswith("model.") or name in {f"train.{each}" for each in _TRAINING}]
    if key == "train.seed":
        raise ConfigError(
            "strategy.vary: train.seed also draws the batches, which all models share; vary model.seed, the seed of "
            "initial weights and dropout"
        )
    if key not in may:
        raise ConfigError(f"strategy.vary: models on the same batches cannot differ in {key}; {nearest(key, may)}")
    if len(given) != len(set(given)):
        raise ConfigError(f"strategy.vary: {text!r} names a value twice")
    return [(key, value) for value in given]


def check_replicas(config: Config) -> None:
    """Raise ConfigError for settings that do not go with models that differ, or with models that are equal."""
    strategy = config.strategy
    if strategy.replicas == "equal":
        if strategy.vary:
            raise ConfigError("strategy.vary: models that differ need --replicas independent")
        return
    if not strategy.vary:
        raise ConfigError("strategy.replicas: independent models need something to differ in; give --vary")
    needed = {
        "time_steps": (("auto", "1"), "every model trains the whole batch on its way around the ranks"),
        "remote": (("raw", "auto"), "projected rows and partial sums depend on the weights of one model"),
        "migrate": (("ring",), "independent models travel, their optimizers do not"),
    }
    for name, (values, why) in needed.items():
        if (given := getattr(strategy, name)) not in values:
            raise ConfigError(f"strategy.{name}: {given} does not go with --replicas independent: {why}")
    variations(config)
