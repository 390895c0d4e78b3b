"""Vertices that a user names in files: by names of the source, or by original ids."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from leapmpi.dataset.names_of_vertices import VertexNames
from leapmpi.errors import DataError, counted

_HEADERS = ("source", "src", "from", "vertex", "id", "name", "node")


def read_vertices(path: Path, width: int, names: VertexNames | None, flag: str) -> np.ndarray:
    """Read original ids int64[k, width] from the file `path`: .npy, or a text with a line for each row.

    In texts fields are separated by commas, tabs or blanks, and are names where the vertices have `names`. A first line
    of words such as source and target is skipped. Raises DataError, naming the line, for what is neither, and for a
    file without rows.
    """
    found = _of_array(path, width, flag) if path.suffix == ".npy" else _of_text(path, width, names, flag)
    if not len(found):
        raise DataError(f"{flag} {path}: the file names no vertex; give {_on_a_line(width)}")
    return found


def _on_a_line(width: int) -> str:
    return "a vertex on each line" if width == 1 else f"{width} vertices on each line"


def _of_text(path: Path, width: int, names: VertexNames | None, flag: str) -> np.ndarray:
    """Read as `read_vertices` does, from a text."""
    rows = read_fields(path, width, f"{flag} {path}", f"a file with {_on_a_line(width)}")
    if rows and rows[0][1][0].lower() in _HEADERS and (names is None or names.ids_of(rows[0][1][:1])[0] < 0):
        del rows[0]
    for number, fields in rows:
        if len(fields) < width:
            raise DataError(f"{flag} {path}, line {number}: expected {counted(width, 'vertex')}, found {len(fields)}")
    return original_ids([(number, fields[:width]) for number, fields in rows], names, f"{flag} {path}")


def read_fields(path: Path, width: int, where: str, wanted: str) -> list[tuple[int, list[str]]]:
    """Read the fields of each line of a text that is not blank, with the line's number, which messages name.

    Raises DataError, which says to give what is `wanted`, for a file that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{where}: cannot be read ({reason}); give {wanted}") from None
    return [(number, _fields(line, width)) for number, line in enumerate(lines, 1) if line.strip()]


def original_ids(rows: Sequence[tuple[int, Sequence[str]]], names: VertexNames | None, where: str) -> np.ndarray:
    """Return the original ids int64[k, width] of the vertices in `rows`, lists of equal width with the line of each.

    They are `names`, if there are any. Raises DataError with the line for what is neither.
    """
    texts = [text for _, fields in rows for text in fields]
    ids = _numbers(texts) if names is None else names.ids_of(texts)
    width = len(rows[0][1]) if rows else 1
    if (bad := np.flatnonzero(ids < 0)).size:
        place = int(bad[0])
        what = "is not a name of a vertex" if names else "is not an original id, a whole number from 0 on"
        raise DataError(f"{where}, line {rows[place // width][0]}: {texts[place][:60]!r} {what}")
    return ids.reshape(-1, width)


def _of_array(path: Path, width: int, flag: str) -> np.ndarray:
    """Read original ids from an .npy file. Raises DataError."""
    kind = "original ids" if width == 1 else "pairs of original ids [k, 2]"
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{flag} {path}: no ids can be read ({reason}); give a .npy file of {kind}") from None
    fits = ids.ndim == 1 if width == 1 else ids.ndim == 2 and ids.shape[1] == width
    if not fits or ids.dtype.kind not in "iu":
        shape = "a list of whole numbers" if width == 1 else f"whole numbers [k, {width}]"
        raise DataError(f"{path}: it holds {ids.dtype} of shape {list(ids.shape)}; expected {shape}")
    return ids.astype(np.int64).reshape(-1, width)


def _fields(line: str, width: int) -> list[str]:
    """Split a line; one vertex is the first field of a table, or the whole line where nothing separates fields."""
    mark = next((mark for mark in (",", "\t", ";") if mark in line), None)
    if mark:
        return [field.strip() for field in next(csv.reader([line], delimiter=mark))]
    return [line.strip()] if width == 1 else line.split()


def _numbers(texts: list[str]) -> np.ndarray:
    """Return int64[k]: the whole numbers in `texts`, -1 for another text."""
    return np.array(
        [int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1 for text in texts], np.int64
    )
