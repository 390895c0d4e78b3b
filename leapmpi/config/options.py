"""Options of one sampler or model: declared by a dataclass in its module, given as texts such as `layer-size=512`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leapmpi.config.setting import parse_value, settings_of
from leapmpi.errors import ConfigError, nearest
from leapmpi.registry import Member, Registry


@dataclass(frozen=True)
class Optioned(Member):
    """A kind of members that have options of their own."""

    build: Callable[..., Any]
    options: type | None = None
    """A dataclass of fields made by `setting`; None where it has no options."""


@dataclass(frozen=True)
class SamplerMember(Optioned):
    """A sampler: build(setup: Setup, options: an instance of `options` or None) -> Sampler."""

    sharded: str = ""
    """LISTS or NAMED_LISTS (leapmpi/sampling/sampler.py) where it can draw from a sharded topology."""
    reads_times: bool = False
    """Whether it reads times of edges."""
    typed: bool = False
    """Whether it draws from typed graphs: a draw reads the given list, its name and its fan-out alone."""


@dataclass(frozen=True)
class ModelMember(Optioned):
    """A model: build(config, layers, in_dim, out_dim) -> Model; with edge_dim too where it reads edge features."""

    reads_edge_features: bool = False
    typed: bool | None = False
    """Whether it models typed graphs, None for those and plain ones: `build` takes their `schema` too
    (leapmpi/nn/typed_schema.py)."""
    reads: tuple[str, ...] | None = None
    """Settings of hidden rows (hidden, dropout, norm) that a model of one layer reads; None if it may read any."""
    has: tuple[str, ...] = ()
    """Defaults of its layers: "norm", layer normalisation; "residual", residuals of their own."""
    idle_options: Callable[[Any], dict[str, str]] = lambda config: {}
    """From a ModelConfig to the options that its other options make idle, and why."""


SAMPLERS = Registry("sampler", "leapmpi.sampling.samplers", SamplerMember)
MODELS = Registry("model", "leapmpi.nn.models", ModelMember)

_KEYS = {"sampler": "sampling.options", "model": "model.options"}
"""The setting that holds the options of each kind."""


def options_of(members: Registry[Any], name: str, texts: Sequence[str]) -> Any:
    """Return the options `texts` of the registered sampler or model `name` as its `Options`; None without any.

    Raises ConfigError.
    """
    return parse_options(members.load(name).options, texts, name, members.kind)


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
            raise ConfigError(f"{_KEYS[kind]}: {text!r} is not an option; write it as name=value")
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
    kinds: tuple[Registry[Any], ...] = MODELS, SAMPLERS
    for members in kinds:
        yield f"options of {members.kind}s (--{members.kind}-option NAME=VALUE):"
        for name in members.names():
            declared = members.load(name).options
            for option, each in (settings_of(declared) if declared else {}).items():
                choices = f": {', '.join(each.choices())}" if each.choices() else ""
                yield f"  {name} {_spelled(option)}: {each.limits['help']}{choices} (default {_text(each.default)})"


def _spelled(option: str) -> str:
    return option.replace("_", "-")


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
