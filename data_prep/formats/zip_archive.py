"""Sources in .zip archives: unpacked into the workspace, and called in messages by their place in the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.formats.npz_reader import opened_zip
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, LeapmpiError, counted
from leapmpi.system.atomic_files import is_full

_MOST_ENTRIES = 100_000


@contextmanager
def unpacked_source(path: Path, workspace: Workspace) -> Iterator[tuple[Path, Callable[[object], str]]]:
    """Return where to read the source `path`, and its name in messages: both `path` itself, unless in an archive.

    `path` may be an archive or a path within one, such as twitch.zip/twitch/DE. Errors from the body name it so too.
    """
    archive = next((each for each in (path, *path.parents) if each.suffix.lower() == ".zip" and each.is_file()), None)
    if archive is None:
        yield path, str
        return

    target = workspace.folder / archive.name

    def shown(text: object) -> str:
        return str(text).replace(str(target), str(archive))

    _unpack(archive, path.relative_to(archive), target, workspace)
    try:
        yield _descended(target / path.relative_to(archive)), shown
    except LeapmpiError as error:
        # Messages name the archive that the user gave, not the temporary folder.
        error.args = tuple(map(shown, error.args))
        raise


def _unpack(path: Path, within: Path, target: Path, workspace: Workspace) -> None:
    """Unpack what is at `within` in the archive `path` into the folder `target`.

    Raises DataError when the archive is damaged or has nothing there, ResourceError when it takes more than the
    workspace may.
    """
    with opened_zip(path, f"{path} cannot be unpacked") as archive:
        if str(within) in archive.namelist():
            within = within.parent  # a file, perhaps with others of the graph beside it
        entries = [entry for entry in archive.infolist() if Path(entry.filename).is_relative_to(within)]
        entries = [entry for entry in entries if not entry.filename.startswith("__MACOSX/")]
        if not entries:
            folders = sorted({str(Path(entry.filename).parent) for entry in archive.infolist()} - {"."})
            raise DataError(f"{path} holds nothing at {within}; it holds {', '.join(folders[:8])}")

        # A damaged or hostile archive may claim any size.
        if len(entries) > _MOST_ENTRIES:
            raise DataError(
                f"{path} holds {counted(len(entries), 'file')}; unpack it, and name the folder of the graph"
            )
        workspace.take(sum(entry.file_size for entry in entries), f"{path}: unpacking it")
        for entry in entries:
            try:
                archive.extract(entry, target)  # keeps names below the folder
            except OSError as error:
                if is_full(error):
                    raise
                name = entry.filename[:60]
                raise DataError(f"{path}: {name!r} cannot be unpacked ({error.strerror or error})") from error


def _descended(path: Path) -> Path:
    """Return `path`, or the folder below it that alone holds anything."""
    while path.is_dir() and len(inside := list(path.iterdir())) == 1 and inside[0].is_dir():
        path = inside[0]
    return path
