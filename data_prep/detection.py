"""Detection of a source's format, by names of files and arrays, and of texts by their first lines; never by a guess."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import Source
from data_prep.formats.conversion_lines import describe
from data_prep.formats.edge_text import edge_stream, first_line
from data_prep.formats.numeric_text import is_text_table
from data_prep.formats.tables import SUFFIXES
from leapmpi.errors import DataError, counted
from leapmpi.registry import Registry

SOURCES = Registry("format", "data_prep.sources", Source)

_PACKED = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".bz2", ".tar.xz", ".xz", ".zst", ".7z", ".rar")
_MOST_NAMED = 8
_HOW_ON = "'leapmpi-prep import --formats' lists the formats, --format NAME chooses one"


def locate(path: Path, name: str | None = None) -> tuple[str, Path]:
    """Find the format of `path`, the one called `name` if given, and what to read.

    A folder with a single graph file in it stands for that file. Raises DataError when no format or more than one fits.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; give the file or folder that holds the graph")
    if name:
        return name, _within(path, SOURCES.load(name))

    # `path` itself or, for a folder, its content.
    found = _formats_of(path)
    if len(found) == 1:
        return found[0], path
    if found:
        raise DataError(f"{path} fits several formats ({', '.join(found)}); say which by --format")
    inside = sorted(path.iterdir()) if path.is_dir() else []
    nested = [(name, entry) for entry in inside for name in _formats_of(entry)]
    files = [(name, entry) for name, entry in nested if entry.is_file()]
    if len(files) == 1:
        return files[0]
    if nested:
        graphs = listed([f"{entry.name} ({name})" for name, entry in nested])
        raise DataError(f"{path} is not a graph, but holds {graphs}: name what to read, as {nested[0][1]}")
    raise _unknown(path)


def listed(names: list[str]) -> str:
    """Join `names` in one line, at most eight of them."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def left_in(folder: Path, taken: list[str]) -> list[str]:
    """List the names in `folder` from which no path of `taken` was read; folders end with a slash."""
    first = {Path(name).parts[0] for name in taken}
    entries = (entry for entry in sorted(folder.iterdir()) if entry.name not in first and entry.name[0] != ".")
    return [entry.name + "/" * entry.is_dir() for entry in entries]


def _formats_of(path: Path) -> list[str]:
    return [name for name in SOURCES.names() if SOURCES.load(name).can_read(path)]


def _within(path: Path, source: Source) -> Path:
    """Return `path`, or the only file in the folder `path` that `source` can read."""
    if path.is_dir() and not source.can_read(path):
        files = [entry for entry in sorted(path.iterdir()) if entry.is_file() and source.can_read(entry)]
        if len(files) != 1:
            raise DataError(
                f"{path} is a folder with {counted(len(files), 'file')} of that format; name one file "
                f"({source.summary})"
            )
        return files[0]
    return path


def _unknown(path: Path) -> DataError:
    """Explain that `path` has an unknown format. Raises DataError itself for a text or an archive with a fault."""
    if path.is_dir():
        held = listed([entry.name + "/" * entry.is_dir() for entry in sorted(path.iterdir())]) or "nothing"
        return DataError(f"{path} holds no graph in a known format; it holds {held}; {_HOW_ON}")
    if path.name.lower().endswith(_PACKED):
        return DataError(f"{path} is an unsupported archive; unpack it, and name the file or folder that was in it")
    if help := describe(path):  # a damaged archive gets its own message here
        return DataError(f"{path} {help}; {_HOW_ON}")
    if is_text_table(path):
        edge_stream(path)
        how = "--format edge-list reads it all the same"
        if path.name.lower().endswith(SUFFIXES):
            how = "--format table reads ids that are texts, --vertex-table FILE a table of vertices with them"
        return DataError(
            f"{path} holds no edges by its first lines, which are not mostly whole numbers ({first_line(path)}); {how}"
        )
    return DataError(f"{path} has an unknown format; {_HOW_ON}")
