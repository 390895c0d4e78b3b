"""Settings as command-line flags: each setting of `leapmpi.config.sections` has one, made from its declaration."""

from __future__ import annotations

import argparse
import inspect
import numbers
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leapmpi.config.options import lines_of_help
from leapmpi.config.other_names import about_former_flag
from leapmpi.config.parser import CommandParser
from leapmpi.config.schema import Config, models_of
from leapmpi.config.sections import DATA_AND_RUN, GROUPS, fields
from leapmpi.config.setting import Setting, names_code
from leapmpi.config.toml import read_toml
from leapmpi.config.user_code import name_given
from leapmpi.errors import ConfigError, nearest

OF_RUN_FOLDERS = (
    *("run.folder", "run.overwrite", "run.replay", "run.timeline"),
    *("run.checkpoint_every", "train.init"),
)
"""Settings that act on nothing where no run folder is made."""


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """Add the dataset folder as first argument; a TOML file may name it instead."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="dataset folder made by leapmpi-prep partition")


def add_settings(parser: CommandParser, without: Iterable[str] = ()) -> None:
    """Add --config, --set, one flag per setting but for the keys in `without`, and --help-all.

    --help explains the settings declared as `common` and lists the names of the others.
    """
    shown = [setting for key, setting in fields() if key not in {"data", *without}]

    # One heading per group; the two flags that take any setting stand first.
    for title in GROUPS:
        group = parser.add_argument_group(title)
        if title == DATA_AND_RUN:
            group.add_argument("--config", metavar="FILE.toml", help="read settings from a TOML file")
            group.add_argument(
                "--set", action="append", default=[], metavar="KEY=VALUE", help="set any key, such as train.lr=0.01"
            )
            if "run.log_level" not in without:
                about = "show all that log.txt in the run folder has, as --log-level debug"
                group.add_argument("--verbose", action="store_true", help=about)
        for setting in shown:
            if setting.limits["group"] == title:
                action = add_flag(group, setting)
                if not setting.limits.get("common"):
                    parser.hide(action, title)
    parser.add_help_all(lines_of_help)


def add_flag(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, setting: Setting, default: str | None = None
) -> argparse.Action:
    """Add the flag of `setting`; if absent it leaves None. Help shows the text `default`, if given, as default."""
    keywords: dict[str, Any] = {"dest": setting.key, "default": None}
    if setting.type is bool:
        keywords["action"] = argparse.BooleanOptionalAction
    else:
        keywords["metavar"] = setting.metavar
        keywords["action"] = "append" if setting.type == tuple[str, ...] else "store"

    # The help, the choices that the metavar does not show, and the default.
    help = setting.limits["help"]
    if setting.choices() and setting.metavar != "|".join(setting.choices()):
        help += f": {_listed(setting.choices())}"
    if shown := setting.default_text if default is None else default:
        help += f" (default {shown})"
    return parser.add_argument(f"--{setting.flag}", help=help, **keywords)


def _listed(choices: Sequence[str]) -> str:
    """List `choices`, those that differ in a last number alone, such as hits-1 and hits-3, once for all numbers."""
    numbers: dict[str, list[int]] = {}
    for stem, _, last in (each.rpartition("-") for each in choices):
        if last.isdigit():
            numbers.setdefault(stem, []).append(int(last))
    stems: dict[str, list[str]] = {}
    for stem, each in numbers.items():
        if len(each) > 1:
            stems.setdefault(", ".join(map(str, sorted(each))), []).append(stem)
    short = {stem for same in stems.values() for stem in same}
    alone = [each for each in choices if each.rpartition("-")[0] not in short]
    families = [f"{', '.join(f'{stem}-K' for stem in same)} for K {each}" for each, same in stems.items()]
    return "; ".join([", ".join(alone), *families])


def with_flags(config: Config, values: Mapping[str, Any]) -> Config:
    """Set `values` by names of flags, with `_` for `-`, in `config`. Raises ConfigError for an unknown one."""
    keys = {setting.flag.replace("-", "_"): key for key, setting in fields()}
    for name, value in values.items():
        if name not in keys:
            raise ConfigError(about_former_flag(name) or f"no setting is called {name}; {nearest(name, keys)}")
        plain = _plain(name, value)
        config = config.assigned({keys[name]: plain}, name)
    config.check()
    return config


def _plain(name: str, value: Any) -> Any:
    """Return `value` as a setting has it: a path as text, numpy's numbers as Python's, a class or function by its name.

    Raises ConfigError for an object of a class where the class is expected.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if inspect.isclass(value) or inspect.isfunction(value):
        return name_given(value)
    if not isinstance(value, str | int | float | list | tuple) and value is not None:
        kind = type(value).__name__
        if isinstance(value, Mapping):
            raise ConfigError(f"{name}: a {kind} is not a setting; give texts as after a flag, such as 'heads=8'")
        raise ConfigError(
            f"{name}: an object of type {kind} is not a setting; for code of your own give the class, {kind}"
        )
    return value


def config_from(arguments: argparse.Namespace, config: Config | None = None) -> Config:
    """Build the config of a command line: defaults (or `config`), the TOML file, --set, flags; later ones win.

    Raises ConfigError for a value that cannot be used, and for values that do not fit together.
    """
    config, known = config or Config(), dict(fields())
    # Each source in turn; errors name the source.
    if arguments.config is not None:
        config = config.assigned(read_toml(arguments.config), arguments.config)
    if arguments.set:
        config = config.assigned(dict(parse_assignment(text) for text in arguments.set), "--set")
    for key, value in given(arguments).items():
        config = config.assigned({key: value}, f"--{known[key].flag}")
    if getattr(arguments, "verbose", False):
        config = config.assigned({"run.log_level": "debug"}, "--verbose")
    if (seeds := getattr(arguments, "seeds", None)) is not None:
        # Models that differ in their seeds alone, or in other settings too.
        if (text := str(seeds).strip()).isdigit() and not config.strategy.vary:
            many = ",".join(map(str, range(int(text)))) if 2 <= int(text) <= 20 else "0,1,2"
            raise ConfigError(
                f"--seeds {text} names one seed; give several, as in --seeds {many}, or a run its seed: --seed {text}"
            )
        varied = (*config.strategy.vary, f"model.seed={seeds}")
        config = config.assigned({"strategy.vary": varied}, "--seeds")
    _check_code(arguments, config)

    # The dataset on the command line wins over the one in the file.
    if arguments.data is not None:
        config = config.assigned({"data": arguments.data}, "dataset folder")
    config.check()
    return config


def _check_code(arguments: argparse.Namespace, config: Config) -> None:
    """Raise ConfigError where a file of settings, and not the command line, names code to be run."""
    texts = [str(getattr(arguments, key, "")) for key in ("sampling.sampler", "model.name", "strategy.vary")]
    # Names of code may stand inside lists and quotes, as in --vary and --set.
    named = re.split(r"[\s,;='\"\[\]()]+", " ".join([*texts, *arguments.set]))
    code = [("sampling.sampler", "sampler", config.sampling.sampler)]
    code += [("model.name", "model", each.model.name) for each in models_of(config)]
    for key, flag, name in code:
        if names_code(name) and name not in named:
            raise ConfigError(
                f"{key}: {name} is code, which runs only when the command line names it; add --{flag} {name}"
            )


def parse_assignment(text: str) -> tuple[str, str]:
    """Split `--set key=value` into key and value. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: write it as key=value, such as train.lr=0.01")
    return key.strip(), value.strip()


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of given flags made by `add_flag`, by key."""
    return {key: value for key, value in vars(arguments).items() if "." in key and value is not None}


def parse_strategies(text: str, config: Config) -> dict[str, Config]:
    """Parse 'pull,leap,leap:time-steps=N:merge=random' as one config per strategy, by label. Raises ConfigError.

    A strategy may be given twice, to see how much its times differ; the second is labelled 'pull (2)'.
    """
    configs: dict[str, Config] = {}
    given: Counter[str] = Counter()
    for label in filter(None, (each.strip() for each in text.split(","))):
        # The same strategy twice measures the noise, so repeats get numbers.
        given[label] += 1
        name = label if given[label] == 1 else f"{label} ({given[label]})"
        configs[name] = config.replaced(_values_of(label), f"--strategies {label}")
    if not configs:
        raise ConfigError("--strategies names no strategy; give some, such as pull,leap")
    return configs


def _values_of(label: str) -> dict[str, str]:
    """Parse the settings in 'leap:time-steps=N:merge=random'. Raises ConfigError."""
    name, *settings = label.split(":")
    if name == "auto":
        raise ConfigError(
            f"--strategies {label}: auto chooses one of the others, which leapmpi plan shows; name those to be compared"
        )
    values = {"strategy.name": name}
    for setting in settings:
        flag, equals, value = setting.partition("=")
        # Only settings of the strategy: all else must be equal for a comparison.
        key = f"strategy.{flag.replace('-', '_')}"
        if not equals:
            raise ConfigError(f"--strategies {label}: write settings as NAME:KEY=VALUE, such as leap:time-steps=N")
        if key == "strategy.name":
            raise ConfigError(f"--strategies {label}: the name comes first, as in {value or 'leap'}:time-steps=N")
        if key in values:
            raise ConfigError(f"--strategies {label}: {flag} is given twice")
        values[key] = value
    return values
