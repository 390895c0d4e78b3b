"""Files that describe a graph, in JSON or YAML: recognised by what they begin with, and read whole."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.formats.numeric_text import open_text
from leapmpi.errors import ConfigError, DataError

_LOOKED_AT = 1 << 16


def begins_with(path: Path, *words: str) -> bool:
    """Return whether `path` is a .json file with one of `words`, in quotes, in its first 64 KiB."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            beginning = file.read(_LOOKED_AT)
    except OSError:
        return False
    return any(f'"{word}"'.encode() in beginning for word in words)


def read_json(
    path: Path, what: str = "an object in braces", pairs: Callable[[list[tuple[str, Any]]], object] | None = None
) -> dict[str, Any]:
    """Read the object in the file `path`, which may end with .gz; `pairs` makes each object of its names and values.

    Raises DataError, in which the object is called `what`, where there is none.
    """
    try:
        with open_text(path) as file:
            found = json.load(file, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}, character {error.colno}: not JSON ({error.msg})") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold {what}")
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in the file `path`. Raises DataError where there is none, ConfigError without PyYAML."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise ConfigError(f"{path} is read by PyYAML, which is not installed; pip install 'leapmpi[yaml]'") from None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold names with values")
    return found


def entry(found: object, key: str, kind: type, where: str) -> Any:
    """Return the entry `key` of `found`, an object in `where`. Raises DataError where it is missing or no `kind`."""
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{where}: {key!r} is missing or of an unexpected kind; is the file whole?")
    return value
