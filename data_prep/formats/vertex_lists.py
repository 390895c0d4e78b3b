"""JSON files with a list for each vertex, as {"0": [3, 17], "1": []}: features, or names of groups."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from data_prep.formats.description import read_json
from leapmpi.errors import DataError, counted

_MOST_GROUPS = 1000
_LARGEST = 2**40


def read_lists(path: Path, duplicates: str | None) -> tuple[np.ndarray, list[list], list[str]]:
    """Read the vertices int64[k] and the list of each, and notes. `duplicates`: as `settle`.

    Raises DataError naming the place of the first fault.
    """
    same: list[str] = []

    def settled(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if (
                key in found
                and settle(f"{path}: vertex {key[:40]!r}", found[key] == value, duplicates, same) == "first"
            ):
                continue
            found[key] = value
        return found

    content = read_json(path, "an object with a list for each vertex", settled)

    # Vertex numbers with lists.
    for key, value in content.items():
        if not (isinstance(value, list) and key.isascii() and key.isdigit() and len(key) <= 12):
            raise _odd(path, key, value, "a list")
    vertices = np.fromiter(map(int, content), np.int64, len(content))
    return vertices, list(content.values()), duplicate_notes(path, same)


def settle(what: str, equal: bool, duplicates: str | None, same: list[str]) -> str:
    """Choose one of two rows of a vertex, "first" or "last" as `duplicates` says; equal ones join the list `same`.

    Raises DataError for rows that differ, where `duplicates` is None.
    """
    if equal:
        same.append(what)
        return "first"
    if duplicates is None:
        raise DataError(f"{what} is listed twice with different content; choose by --duplicate-rows first or last")
    return duplicates


def duplicate_notes(path: Path, same: list[str]) -> list[str]:
    """Note the rows `same`, which were listed twice in `path`; none where there are none."""
    if not same:
        return []
    return [f"{path.name}: listed twice with equal content, and counted once: {counted(len(same), 'row')} ({same[0]})"]


def numbers_in(path: Path, vertices: np.ndarray, lists: list[list]) -> tuple[np.ndarray, np.ndarray]:
    """Return vertex and feature of every entry of lists of feature numbers: int64[k]. Raises DataError for others."""
    for vertex, features in zip(vertices, lists, strict=True):
        if not all(type(number) is int and 0 <= number < _LARGEST for number in features):
            raise _odd(path, str(vertex), features, "a list of feature numbers from 0 on")
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    owner = np.repeat(vertices, counts)
    return owner, np.fromiter(chain.from_iterable(lists), np.int64, len(owner))


def groups_in(path: Path, vertices: np.ndarray, lists: list[list]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return vertex and group int64[k] of every entry of lists of texts or numbers, and the names of groups, in order.

    Raises DataError for other entries, and where there are too many groups to be classes.
    """
    for vertex, groups in zip(vertices, lists, strict=True):
        if not all(type(name) in (str, int) for name in groups):
            raise _odd(path, str(vertex), groups, "a list of texts or whole numbers")
    names = sorted({name for groups in lists for name in groups}, key=lambda name: (isinstance(name, str), name))
    if not 0 < len(names) <= _MOST_GROUPS:
        raise DataError(f"{path} names {len(names):,} groups; expected 1 to {_MOST_GROUPS:,} to be used as labels")
    number = {name: group for group, name in enumerate(names)}
    owner = np.repeat(vertices, np.fromiter(map(len, lists), np.int64, len(lists)))
    groups = (number[name] for name in chain.from_iterable(lists))
    return owner, np.fromiter(groups, np.int64, len(owner)), list(map(str, names))


def _odd(path: Path, key: str, value: object, expected: str) -> DataError:
    return DataError(f"{path}: vertex {key[:40]!r} has {str(value)[:40]!r}; expected a vertex number with {expected}")
