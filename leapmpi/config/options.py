"""Options of a sampler: declared by a dataclass in the sampler's module, given as texts such as `layer-size=512`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, get_type_hints

from leapmpi.config.setting import Setting, names_code, parse_value
from leapmpi.errors import ConfigError, nearest
from leapmpi.registry import Registry

SAMPLERS = Registry("sampler", "leapmpi.sampling.samplers")


def check_options(sampler: str, texts: Sequence[str]) -> None:
    """Raise ConfigError for options `texts` that `sampler` does not take. A custom sampler is not loaded."""
    if not names_code(sampler):
        sampler_options(sampler, texts)


def sampler_options(sampler: str, texts: Sequence[str]) -> Any:
    """The options `texts` of the registered `sampler`, as its `Options`; None where it has none. Raises ConfigError."""
    return parse_options(getattr(SAMPLERS.load(sampler), "Options", None), texts, sampler)


def parse_options(kind: type | None, texts: Sequence[str], sampler: str) -> Any:
    """An instance of the dataclass `kind`, whose fields are made by `setting`; None where it is None.

    `texts` are `name=value`, names written with - or _. Raises ConfigError for a text that is none, for an unknown
    name and for a value that cannot be used, naming `sampler`.
    """
    # The options that the sampler declares, by name.
    types = get_type_hints(kind) if kind else {}
    known = {
        each.name.replace("_", "-"): Setting(each.name, types[each.name], each.default, each.metadata)
        for each in (dataclasses.fields(kind) if kind else ())
    }

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
