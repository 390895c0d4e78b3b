"""Lists of strategies on a command line: `--strategies pull,leap:time-steps=N`."""

from __future__ import annotations

from collections import Counter

from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError


def parse_strategies(text: str, config: Config) -> dict[str, Config]:
    """One config per strategy in 'pull,leap,leap:time-steps=N:merge=random', by label. Raises ConfigError.

    A strategy may be given twice, to see how much its times differ; the second is labelled 'pull (2)'.
    """
    configs: dict[str, Config] = {}
    given: Counter[str] = Counter()
    for label in filter(None, (each.strip() for each in text.split(","))):
        given[label] += 1
        name = label if given[label] == 1 else f"{label} ({given[label]})"
        configs[name] = config.replaced(_values_of(label), f"--strategies {label}")
    if not configs:
        raise ConfigError("--strategies names no strategy; give some, such as pull,leap")
    return configs


def _values_of(label: str) -> dict[str, str]:
    """The settings in 'leap:time-steps=N:merge=random'. Raises ConfigError."""
    name, *settings = label.split(":")
    if name == "auto":
        raise ConfigError(
            f"--strategies {label}: auto chooses one of the others, which leapmpi plan shows; name those to be compared"
        )
    values = {"strategy.name": name}
    for setting in settings:
        flag, equals, value = setting.partition("=")
        key = f"strategy.{flag.replace('-', '_')}"
        if not equals:
            raise ConfigError(f"--strategies {label}: write settings as NAME:KEY=VALUE, such as leap:time-steps=N")
        if key == "strategy.name":
            raise ConfigError(f"--strategies {label}: the name comes first, as in {value or 'leap'}:time-steps=N")
        if key in values:
            raise ConfigError(f"--strategies {label}: {flag} is given twice")
        values[key] = value
    return values
