"""Which format a file or folder is in, found by asking every source."""

from __future__ import annotations

from pathlib import Path

from leapmpi.errors import DataError
from leapmpi.registry import Registry

SOURCES = Registry("format", "data_prep.sources")


def formats_of(path: Path) -> list[str]:
    """Names of the formats whose source can read `path`."""
    return [name for name in SOURCES.names() if SOURCES.load(name).can_read(path)]


def locate(path: Path) -> tuple[str, Path]:
    """The format of `path`, and what to read: a folder with a single graph file in it stands for that file.

    Raises DataError, listing the formats, when no format or more than one fits.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; give the file or folder that holds the graph")
    if path.suffix == ".npz" and path.is_file():
        return _npz_format(path), path

    # `path` itself, or, of a folder, what lies in it.
    found = [(name, path) for name in formats_of(path)]
    inside = sorted(path.iterdir()) if path.is_dir() and not found else []
    nested = [(name, entry) for entry in inside for name in formats_of(entry)]
    files = [(name, entry) for name, entry in nested if entry.is_file()]
    if not found and len(files) == 1:
        return files[0]
    if len(found) == 1:
        return found[0]

    # Say what there is instead.
    if found:
        raise DataError(f"{path} fits several formats ({', '.join(name for name, _ in found)}); say which by --format")
    hint = f"; inside it, {nested[0][1]} looks like {nested[0][0]}: name that instead" if nested else ""
    raise DataError(f"{path} is in no format that is known{hint}; the formats are: {_known()}")


def _npz_format(path: Path) -> str:
    """The format of an .npz file. Raises DataError, naming its arrays, when it is in none."""
    found = formats_of(path)
    if len(found) == 1:
        return found[0]
    from data_prep.formats.npz_reader import NpzFile

    arrays = ", ".join(sorted(NpzFile(path).names)) or "nothing"  # a damaged archive gets its own message here
    if found:
        raise DataError(f"{path} fits several formats ({', '.join(found)}); say which by --format")
    raise DataError(f"{path} holds {arrays}, which is in no format that is known; the formats are: {_known()}")


def _known() -> str:
    return "; ".join(f"{name} ({SOURCES.load(name).SUMMARY})" for name in SOURCES.names())
