"""Checking plain values, as JSON holds them, against a schema made of the functions below.

A schema is a function of a value and its place, such as `epochs[2].seconds`; it raises Unfit where the value is none of
its kind. Keys that a schema does not name may hold anything: newer versions add some.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Schema = Callable[[Any, str], None]

_LARGEST = 2**63
"""All whole numbers are below it, as in 64-bit arrays."""


class Unfit(ValueError):
    """A value that is not what its schema says; the text names its place."""


def parsed(text: str | bytes, schema: Schema, at: str = "") -> Any:
    """Parse the JSON document `text`, which fits `schema`.

    Raises ValueError, with a clause that explains the misfit.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    except UnicodeDecodeError:
        raise ValueError("no UTF-8 text") from None
    except ValueError:
        # Python refuses to parse such numbers, with a plain ValueError.
        raise ValueError("a number in it has thousands of digits") from None
    schema(value, at)
    return value


def anything(value: Any, at: str) -> None:
    """Accept every value."""


def number(value: Any, at: str) -> None:
    """Accept a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unfit(value, at, "a number")
    if abs(value) >= _LARGEST if isinstance(value, int) else not math.isfinite(value):
        raise _unfit(value, at, "a finite number")


def whole(value: Any, at: str) -> None:
    """Accept a whole number from -1 on; -1 stands for none."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < _LARGEST:
        raise _unfit(value, at, "a whole number")


def count(value: Any, at: str) -> None:
    """Accept a whole number from 0 on."""
    whole(value, at)
    if value < 0:
        raise _unfit(value, at, "a whole number from 0 on")


def truth(value: Any, at: str) -> None:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise _unfit(value, at, "true or false")


def text(value: Any, at: str) -> None:
    """Accept text that can be printed as UTF-8."""
    if not isinstance(value, str) or value != value.encode("utf-8", "replace").decode():
        raise _unfit(value, at, "text")


def maybe(schema: Schema) -> Schema:
    """Accept None, or values that fit `schema`."""

    def check(value: Any, at: str) -> None:
        if value is not None:
            schema(value, at)

    return check


def items(schema: Schema, least: int = 0, most: int = _LARGEST) -> Schema:
    """Accept a list of `least` to `most` items that all fit `schema`."""

    def check(value: Any, at: str) -> None:
        if not isinstance(value, list):
            raise _unfit(value, at, "a list")
        if not least <= len(value) <= most:
            raise Unfit(f"{at or 'it'} has {len(value)} items, not {f'at least {least}' if most > least else least}")
        for place, each in enumerate(value):
            schema(each, f"{at}[{place}]")

    return check


def entries(schema: Schema) -> Schema:
    """Accept an object with any keys, whose values all fit `schema`."""

    def check(value: Any, at: str) -> None:
        for key, each in _object(value, at).items():
            text(key, f"a key of {at}")
            schema(each, _below(at, key))

    return check


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Accept an object that has all `required` keys and may have the `optional` ones, with values that fit."""

    def check(value: Any, at: str) -> None:
        found = _object(value, at)
        for key in required:
            if key not in found:
                raise Unfit(f"{at or 'it'} has no {key}")
        for key, schema in {**required, **(optional or {})}.items():
            if key in found:
                schema(found[key], _below(at, key))

    return check


an_object: Schema = record({})
"""An object that may hold anything."""


def _object(value: Any, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit(value, at, "an object")
    return value


def _below(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _unfit(value: Any, at: str, kind: str) -> Unfit:
    return Unfit(f"{at or 'it'} is {reprlib.repr(value)}, not {kind}")
