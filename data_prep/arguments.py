"""Command-line arguments of `leapmpi-prep`: errors as one sentence with the nearest known name, numbers with bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from leapmpi.errors import ConfigError, nearest


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but not those that only say that a flag was left out."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises ConfigError where argparse would print usage and exit."""

    def __init__(self, **settings) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_HelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with argparse's message."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse `argv`. Raises ConfigError, suggesting the nearest flag for one that does not exist."""
        flags = [flag for action in self._actions for flag in action.option_strings]
        for word in argv:
            flag = word.partition("=")[0]
            if flag.startswith("--") and len(flag) > 2 and flag not in flags:
                raise ConfigError(f"unknown flag {flag}; {nearest(flag, flags)}")
        arguments, rest = self.parse_known_args(argv)
        if rest:
            raise ConfigError(f"unexpected argument {rest[0]!r}; see {self.prog} --help")
        return arguments


def number_between(low: float, high: float | None = None, kind: type = int) -> Callable[[str], int | float]:
    """An argparse type: a number of `kind` from `low` to `high` (no upper bound if None)."""

    def convert(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= low or (high is not None and not value <= high):
            bounds = f"from {low} on" if high is None else f"from {low} to {high}"
            wanted = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted} {bounds}")
        return value

    return convert
