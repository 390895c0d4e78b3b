"""Descriptions of tables in TOML: sections, keys and names of columns, with messages that name them."""

from __future__ import annotations

import tomllib
from collections.abc import Set
from pathlib import Path
from typing import Any

from leapmpi.errors import DataError

_LOOKED_AT = 1 << 16


def begins_with_sections(path: Path, *sections: str) -> bool:
    """Return whether `path` is a TOML file whose beginning has all of these `sections`, such as tables of NAME."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(_LOOKED_AT)
    return all(f"[{name}.".encode() in beginning for name in sections)


def read_toml(path: Path) -> dict[str, Any]:
    """Read the TOML file `path`. Raises DataError where it is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise DataError(f"{path} is not TOML ({' '.join(str(error).split())})") from None


def sections_of(about: dict[str, Any], name: str, path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections [name.X] of a description by X. Raises DataError where there are none."""
    found = about.get(name)
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        raise DataError(f"{path} has no sections [{name}.NAME]")
    return found


def checked_section(path: Path, section: str, about: dict[str, Any], known: Set[str]) -> str:
    """Return the name of a section in messages. Raises DataError for a key that it does not have."""
    where = f"{path}: [{section}]"
    if unknown := sorted(set(about) - known):
        raise DataError(f"{where}: {unknown[0]!r} is none of {', '.join(sorted(known))}")
    return where


def column_of(about: dict[str, Any], key: str, where: str) -> str | None:
    """Return the column that `key` names; None without. Raises DataError for another value."""
    value = about.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{where}: {key} is {str(value)[:40]!r}, which is not a name of a column")
    return value


def columns_of(about: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    """Return the columns that `key` names, one or a list. Raises DataError for another value."""
    value = about.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise DataError(f"{where}: {key} is not a list of names of columns")
    return tuple(value)
