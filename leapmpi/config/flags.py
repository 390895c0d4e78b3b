"""Config fields as command-line flags: each field of `leapmpi.config.schema` has one, made from its declaration."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from leapmpi.config.schema import Config
from leapmpi.config.sections import fields
from leapmpi.config.setting import Setting, names_code
from leapmpi.config.toml import read_toml
from leapmpi.errors import ConfigError

OF_RUN_FOLDERS = tuple(
    f"run.{name}"
    for name in (
        *("folder", "overwrite", "replay", "timeline"),
        *("checkpoint_every", "checkpoint_keep", "stop_before_end"),
    )
)
"""Settings that act on nothing where no run folder is made."""


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """The dataset folder as first argument; a TOML file may name it instead."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="dataset folder made by leapmpi-prep partition")


def add_settings(parser: argparse.ArgumentParser, without: Iterable[str] = ()) -> None:
    """--config, --set and one flag per field, but for the keys in `without`."""
    parser.add_argument("--config", metavar="FILE.toml", help="read settings from a TOML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set any key, such as train.lr=0.01"
    )
    add_flags(parser, [setting for key, setting in fields() if key not in {"data", *without}])


def add_flags(parser: argparse.ArgumentParser, settings: Iterable[Setting]) -> None:
    """One flag per setting; flags that are not given leave None."""
    for setting in settings:
        keywords: dict[str, Any] = {"dest": setting.key, "default": None, "metavar": "VALUE"}
        if setting.type is bool:
            keywords = {"dest": setting.key, "default": None, "action": argparse.BooleanOptionalAction}
        if setting.type == tuple[str, ...]:
            keywords["action"] = "append"
        default = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else setting.default
        shown = f" (default {default})" if default not in ("", None, False) else ""
        choices = f": {', '.join(setting.choices())}" if setting.choices() else ""
        parser.add_argument(f"--{setting.flag}", help=f"{setting.limits['help']}{choices}{shown}", **keywords)


def config_from(arguments: argparse.Namespace, config: Config | None = None) -> Config:
    """Defaults (or `config`), then the TOML file, then --set, then flags. Raises ConfigError."""
    config, known = config or Config(), dict(fields())
    if arguments.config is not None:
        config = config.assigned(read_toml(arguments.config), arguments.config)
    if arguments.set:
        config = config.assigned(dict(parse_assignment(text) for text in arguments.set), "--set")
    for key, value in given(arguments).items():
        config = config.assigned({key: value}, f"--{known[key].flag}")
    _check_code(arguments, config)
    if arguments.data is not None:
        config = config.assigned({"data": arguments.data}, "dataset folder")
    config.check()
    return config


def _check_code(arguments: argparse.Namespace, config: Config) -> None:
    """Raise ConfigError where a file of settings, and not the command line, names code to be run."""
    sampler = config.sampling.sampler
    named = getattr(arguments, "sampling.sampler", None), *(parse_assignment(text)[1] for text in arguments.set)
    if names_code(sampler) and sampler not in named:
        raise ConfigError(
            f"sampling.sampler: {sampler} is code, which runs only when the command line names it; "
            f"add --sampler {sampler}"
        )


def parse_assignment(text: str) -> tuple[str, str]:
    """The key and value of `--set key=value`. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: write it as key=value, such as train.lr=0.01")
    return key.strip(), value.strip()


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of flags made by `add_flags` that were given, by key."""
    return {key: value for key, value in vars(arguments).items() if "." in key and value is not None}
