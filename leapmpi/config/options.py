"""Options of a sampler: declared by a dataclass in the sampler's module, given as texts such as `layer-size=512`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.config.setting import parse_value, settings_of
from leapmpi.errors import ConfigError, nearest
from leapmpi.registry import Registry

SAMPLERS = Registry("sampler", "leapmpi.sampling.samplers")


def sampler_options(sampler: str, texts: Sequence[str]) -> Any:
    """The options `texts` of the registered `sampler`, as its `Options`; None where it has none. Raises ConfigError."""
    return parse_options(getattr(SAMPLERS.load(sampler), "Options", None), texts, sampler)


def parse_options(kind: type | None, texts: Sequence[str], sampler: str) -> Any:
    """An instance of the dataclass `kind`, whose fields are made by `setting`; None where it is None.

    `texts` are `name=value`, names written with - or _. Raises ConfigError for a text that is none, for an unknown
    name and for a value that cannot be used, naming `sampler`.
    """
    # The options that the sampler declares, by name.
    known = {name.replace("_", "-"): each for name, each in (settings_of(kind) if kind else {}).items()}

    # The options that are given.
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("_", "-")
        if not equals:
            raise ConfigError(f"sampling.options: {text!r} is no option; write it as name=value")
        if name not in known:
            help = nearest(name, known) if known else "it has none"
            raise ConfigError(f"sampling.options: sampler {sampler} has no option {name!r}; {help}")
        if known[name].key in found:
            raise ConfigError(f"sampling.options: {name} is given twice")
        found[known[name].key] = parse_value(known[name], value, f"sampling.options: {name}")
    return kind(**found) if kind else None
