"""One setting: how it is declared, and how a value for it is parsed from text or TOML and checked."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from leapmpi.errors import ConfigError, nearest
from leapmpi.registry import Member, Registry

ALL_NEIGHBOURS = -1
"""The fan-out that takes every neighbour."""

AUTO_SIZE = "auto"
"""The size that a job chooses."""

FULL_BATCH = -1
"""The batch size that stands for all training vertices, until the dataset is open."""

_LARGEST = 2**63
"""All whole numbers are below it, as in TOML and in 64-bit arrays."""

_LONGEST_METAVAR = 32
_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT", tuple[int, ...]: "A,B", tuple[str, ...]: "TEXT"}


def setting(default: Any, help: str, **limits: Any) -> Any:
    """Declare a config field; all but `default` and `help` is optional.

    Values: `choices`, or `registry` (a package whose members are the choices) with `also` (further choices); `code`
    (a class in a file may take the place of a choice); `with_file` (the choice that a colon and a file follow); `least`
    (>=), `above` (>) and `below` (<) for numbers, and `words` (numbers by the words that stand for them); `check` (a
    function of the value and the place it comes from, which raises ConfigError).
    Command line: `flag` (its name), `metavar` (what stands for the value in --help), `group` (the heading it stands
    under) and `common` (whether --help shows it; --help-all shows every flag).
    """
    return dataclasses.field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class Setting:
    """One field of the config: its dotted key, type, default and declared limits."""

    key: str
    type: type
    default: Any
    limits: Mapping[str, Any]

    @property
    def flag(self) -> str:
        """The command-line flag, without dashes."""
        return self.limits.get("flag", self.key.rpartition(".")[2].replace("_", "-"))

    @property
    def metavar(self) -> str:
        """Placeholder of the value in --help: as declared, the choices where short, or a word for the type."""
        choices = "|".join(self.choices())
        kind = choices if len(choices) <= _LONGEST_METAVAR else "NAME"
        return self.limits.get("metavar") or kind or _METAVARS[self.type]

    @property
    def default_text(self) -> str:
        """The default as --help shows it; empty where there is none, and for a switch that is off."""
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return "" if self.default is None or self.default is False else str(self.default)

    def choices(self) -> tuple[str, ...]:
        """List the accepted values of a choice, empty for free values."""
        if package := self.limits.get("registry"):
            return (*Registry(self.key, package, Member).names(), *self.limits.get("also", ()))
        return self.limits.get("choices", ())


def settings_of(kind: type, prefix: str = "", **limits: Any) -> dict[str, Setting]:
    """List the fields of the dataclass `kind`, by `prefix` and name; `limits` hold where a field declares none."""
    types = get_type_hints(kind)
    return {
        (key := f"{prefix}{each.name}"): Setting(key, types[each.name], each.default, {**limits, **each.metadata})
        for each in dataclasses.fields(kind)
    }


def parse_value(setting: Setting, value: Any, where: str) -> Any:
    """Parse `value`, given as text or a TOML value, as the type of `setting`. Raises ConfigError."""
    checked: Any
    if setting.type is bool:
        checked = _as_bool(value, where)
    elif setting.type in (int, float):
        words = setting.limits.get("words", {})
        if isinstance(value, str | int) and value in (*words, *words.values()):
            return words.get(value, value)
        checked = _as_number(setting.type, value, where)
    elif setting.type is str:
        checked = _as_text(value, where)
    elif setting.type == tuple[str, ...]:
        checked = _as_texts(value, where)
    else:
        checked = parse_fanout(value, where)
        if not checked and setting.default:
            raise ConfigError(f"{where}: no fan-out given; give one per layer, such as 10,10")

    # Limits of the declaration.
    free = bool(setting.limits.get("code")) and names_code(checked)
    if (with_file := setting.limits.get("with_file")) and checked.partition(":")[0] == with_file:
        free = bool(checked.partition(":")[2])
        if not free:
            raise ConfigError(f"{where}: {with_file} needs a file; give {with_file}:FILE")
    if not free and (choices := setting.choices()) and checked not in choices:
        section, _, name = setting.key.partition(".")
        kind = section if name == "name" else "value"
        raise ConfigError(f"{where}: unknown {kind} {checked!r}; {nearest(checked, choices)}")
    if setting.type in (int, float):
        _check_limits(setting.limits, checked, where)
    if check := setting.limits.get("check"):
        check(checked, where)
    return checked


def names_code(text: str) -> bool:
    """Return whether `text` names a class in a file or a module, as my_file.py:MySampler or package.module:Class."""
    path, colon, name = text.rpartition(":")
    is_module = all(word.isidentifier() for word in path.split("."))
    return bool(colon) and (path.endswith(".py") or is_module) and name.isidentifier()


def parse_interval(text: str, where: str) -> tuple[int, float]:
    """Parse (iterations, seconds) between checkpoints: '100' is (100, 0), '10m' is (0, 600). Raises ConfigError."""
    # Another word for 0.
    if text == "off":
        return 0, 0.0
    minutes = text.endswith("m")
    try:
        value = float(text[:-1]) if minutes else int(text)
    except ValueError:
        value = -1
    if not 0 <= value < _LARGEST:
        raise ConfigError(f"{where}: {text!r} is not an interval; give iterations (100), minutes (10m), or 0")
    return (0, 60.0 * value) if minutes else (int(value), 0.0)


def parse_fanout(value: Any, where: str) -> tuple[int, ...]:
    """Parse '10,10', 'all', [10, "all"] or 10 as a tuple with -1 for 'all'. Raises ConfigError."""
    items = value.split(",") if isinstance(value, str) else value
    items = list(items) if isinstance(items, (list, tuple)) else [items]
    return tuple(_one_fanout(item, where) for item in items if item != "" or len(items) > 1)


def parse_relation_fanout(text: str, where: str) -> tuple[str, tuple[int, ...]]:
    """Parse 'paper:cites:paper=10,5' as a pattern of relations and their fan-outs, 0 for none. Raises ConfigError."""
    pattern, equals, numbers = text.rpartition("=")
    items = [item.strip() for item in numbers.split(",")]
    if not equals or not pattern.strip() or not numbers.strip():
        raise ConfigError(
            f"{where}: {text!r} gives no relation its fan-outs; write it as paper:cites:paper=10,5, where 0 leaves the "
            "relation out"
        )
    return pattern.strip(), tuple(0 if item == "0" else _one_fanout(item, where) for item in items)


def check_relation_fanout(texts: tuple[str, ...], where: str) -> None:
    """Raise ConfigError unless each of `texts` gives some relations their fan-outs."""
    for text in texts:
        parse_relation_fanout(text, where)


def _one_fanout(item: Any, where: str) -> int:
    if isinstance(item, str):
        item = item.strip()
    # Recorded runs hold the number for 'all'; True equals 1, and is not a fan-out.
    if item in ("all", ALL_NEIGHBOURS) and not isinstance(item, bool):
        return ALL_NEIGHBOURS
    text = str(item)
    if isinstance(item, bool) or not text.isascii() or not text.isdigit() or int(text) < 1 or int(text) >= 2**31:
        raise ConfigError(
            f"{where}: {text!r} is not a fan-out; give whole numbers from 1 to 2**31 - 1 or 'all', such as 10,10"
        )
    return int(text)


def _as_bool(value: Any, where: str) -> bool:
    # As text, True and False are among the words too.
    text = str(value).lower()
    if text not in ("true", "yes", "1", "false", "no", "0"):
        raise ConfigError(f"{where}: {value!r} is neither true nor false")
    return text in ("true", "yes", "1")


def _as_number(kind: type, value: Any, where: str) -> int | float:
    noun = "a whole number" if kind is int else "a number"
    try:
        # A bool is an int to Python, and int() would cut 1.5 to 1.
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError
        number = kind(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: {value!r} is not {noun}") from None
    except OverflowError:
        # A whole number too large for a float.
        number = math.inf
    if isinstance(number, float) and not math.isfinite(number):
        raise ConfigError(f"{where}: {value!r} is not a finite number")
    return number


def _as_text(value: Any, where: str) -> str:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ConfigError(f"{where}: {value!r} is not text")
    text = str(value)
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        raise ConfigError(f"{where}: {text!r} holds characters that are not text; use UTF-8 without zero bytes")
    return text


def _as_texts(value: Any, where: str) -> tuple[str, ...]:
    """Convert to a list of texts; one text may hold several, separated by semicolons."""
    items = value if isinstance(value, (list, tuple)) else [value]
    texts = (text.strip() for item in items for text in _as_text(item, where).split(";"))
    return tuple(text for text in texts if text)


def _check_limits(limits: Mapping[str, Any], value: float, where: str) -> None:
    if "least" in limits and value < limits["least"]:
        raise ConfigError(f"{where}: {value} is too small; the least is {limits['least']}")
    if "above" in limits and value <= limits["above"]:
        raise ConfigError(f"{where}: {value} is too small; it must be greater than {limits['above']}")
    below = limits.get("below", _LARGEST if isinstance(value, int) else math.inf)
    if value >= below:
        raise ConfigError(f"{where}: {value} is too large; it must be less than {below}")


def parse_size(text: str, where: str) -> int:
    """Parse '2G', '500MiB' or '4096' bytes as a number, in powers of 1024. Raises ConfigError."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)i?b?", text.strip().lower())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if size < 1:
        raise ConfigError(f"{where}: {text!r} is not a size; give bytes such as 2G or 500M")
    return size


def check_size(text: str, where: str) -> None:
    """Raise ConfigError unless `text` is a size for `parse_size`, or empty."""
    if text:
        parse_size(text, where)


def check_size_or_auto(text: str, where: str) -> None:
    """Raise ConfigError unless `text` is a size for `parse_size`, `auto`, or empty."""
    check_size("" if text == AUTO_SIZE else text, where)


def learned_width(text: str, where: str = "model.missing_features") -> int:
    """Return the columns of learned rows: 64 of 'learned:64', 0 of ''. Raises ConfigError for anything else."""
    kind, _, width = text.partition(":")
    number = int(width) if width.isascii() and width.isdigit() and len(width) < 7 else 0
    if text and (kind != "learned" or number < 1):
        raise ConfigError(f"{where}: {text!r} cannot replace missing features; give learned:COLUMNS, as learned:64")
    return number if text else 0


def check_time_steps(value: str, where: str) -> None:
    """Raise ConfigError unless `value` is auto, measured, N or a positive number."""
    number = value.isascii() and value.isdigit() and len(value) < 10 and int(value) >= 1
    if value not in ("auto", "measured", "N") and not number:
        raise ConfigError(
            f"{where}: {value!r} is not a number of time steps; give auto, measured, N (the number of ranks) or fewer"
        )
