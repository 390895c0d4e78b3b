"""Options of one sampler or model: declared by a dataclass in its module, given as texts such as `layer-size=512`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from leapmpi.config.setting import parse_value, settings_of
from leapmpi.errors import ConfigError, nearest
from leapmpi.registry import Registry

SAMPLERS = Registry("sampler", "leapmpi.sampling.samplers")
MODELS = Registry("model", "leapmpi.nn.models")

_KEYS = {"sampler": "sampling.options", "model": "model.options"}
"""The setting that holds the options of each kind."""


def options_of(members: Registry, name: str, texts: Sequence[str]) -> Any:
    """Return the options `texts` of the registered sampler or model `name` as its `Options`; None without any.

    Raises ConfigError.
    """
    return parse_options(getattr(members.load(name), "Options", None), texts, name, members.kind)


def parse_options(declared: type | None, texts: Sequence[str], name: str, kind: str = "sampler") -> Any:
    """Build an instance of the dataclass `declared`, whose fields are made by `setting`; None for None.

    `texts` are `name=value`, names written with - or _. Raises ConfigError for a text that is none, for an unknown
    option and for a value that cannot be used, naming the sampler or model `name`.
    """
    # The options that it declares, by name.
    known = {_spelled(field): each for field, each in (settings_of(declared) if declared else {}).items()}

    # The options that are given.
    found: dict[str, Any] = {}
    for text in texts:
        option, equals, value = (part.strip() for part in text.partition("="))
        option = _spelled(option)
        if not equals:
            raise ConfigError(f"{_KEYS[kind]}: {text!r} is no option; write it as name=value")
        if option not in known:
            help = nearest(option, known) if known else "it has none"
            raise ConfigError(f"{_KEYS[kind]}: {kind} {name} has no option {option!r}; {help}")
        if known[option].key in found:
            raise ConfigError(f"{_KEYS[kind]}: {option} is given twice")
        found[known[option].key] = parse_value(known[option], value, f"{_KEYS[kind]}: {option}")
    return declared(**found) if declared else None


def texts_of(options: Any) -> tuple[str, ...]:
    """Format all values of `options`, an instance of an `Options` or None, as texts that `parse_options` reads."""
    return (
        tuple(f"{_spelled(name)}={_text(value)}" for name, value in dataclasses.asdict(options).items())
        if options
        else ()
    )


def with_option(texts: Sequence[str], option: str, value: Any) -> tuple[str, ...]:
    """Set `value` for `option` in `texts`, in place of another if there is one."""
    kept = (text for text in texts if _spelled(text.partition("=")[0].strip()) != _spelled(option))
    return (*kept, f"{_spelled(option)}={_text(value)}")


def given_option(texts: Sequence[str], option: str) -> str:
    """Return the text of the value that `texts` give to `option`; empty where they give none."""
    return next(
        (text.partition("=")[2].strip() for text in texts if _spelled(text.partition("=")[0].strip()) == option), ""
    )


def lines_of_help() -> Iterator[str]:
    """Return one line for each option of a sampler or model: '  gat heads: attention heads (default 4)'.

    Imports all of them.
    """
    for members in (MODELS, SAMPLERS):
        yield f"options of {members.kind}s (--{members.kind}-option NAME=VALUE):"
        for name in members.names():
            declared = getattr(members.load(name), "Options", None)
            for option, each in (settings_of(declared) if declared else {}).items():
                choices = f": {', '.join(each.choices())}" if each.choices() else ""
                yield f"  {name} {_spelled(option)}: {each.limits['help']}{choices} (default {_text(each.default)})"


def _spelled(option: str) -> str:
    return option.replace("_", "-")


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
