"""Files and folders that appear whole or not at all: written aside, flushed, synced, renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leapmpi.errors import DataError, ResourceError


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    """A descriptor of the file or folder `path` while the body runs."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    with _descriptor(path) as descriptor:
        os.fsync(descriptor)


def remove(path: Path) -> None:
    """Remove the file or folder `path`, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Mark the temporary file or folder `path` as in use while the body runs, or this process lives."""
    with _descriptor(path) as descriptor:
        # Where a file system has no locks, nothing there is ever taken for abandoned.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove_abandoned(path: Path) -> None:
    """Remove what killed processes left behind while they were making `path`: .NAME.partial-* and .NAME.work-*.

    A folder that was killed while it stepped aside for its successor (.NAME.partial-*-old) gets its name back.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(partial|work)-\d+(-old)?")
    with suppress(OSError):
        found = [entry for entry in path.absolute().parent.iterdir() if pattern.fullmatch(entry.name)]
        for entry in sorted(found, key=lambda entry: not entry.name.endswith("-old")):
            # What its owner still holds is in use.
            successor = entry.with_name(entry.name.removesuffix("-old"))
            if successor.exists() and not _is_abandoned(successor):
                continue
            # The last whole state of `path` goes back; the rest goes.
            if entry != successor and not path.exists():
                os.replace(entry, path)
            else:
                remove(entry)


def _is_abandoned(entry: Path) -> bool:
    """Whether nobody holds `entry`; where that cannot be found out, it counts as held."""
    with suppress(OSError), _descriptor(entry) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def put_in_place(aside: Path, path: Path) -> None:
    """Sync the file or folder `aside` and rename it to `path` beside it; a file or folder that is there is removed."""
    # The content must be on disk before the name is.
    for folder, _, names in os.walk(aside):
        for name in names:
            _sync(Path(folder, name))
    _sync(aside)

    # A folder cannot be replaced in one go: the old one gets another name first, so that one is whole at any moment.
    old = aside.with_name(f"{aside.name}-old")
    if path.is_dir() and not path.is_symlink():
        os.replace(path, old)
    os.replace(aside, path)
    _sync(path.absolute().parent)
    remove(old)


def is_full(error: OSError) -> bool:
    """Whether `error` says that a disk is full, or a quota or limit is reached."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error)


def explain(error: OSError, path: Path) -> Exception:
    """The LeapmpiError that explains `error`, met while writing `path`, to the user."""
    text = str(error)
    if is_full(error):
        return ResourceError(f"{path}: the disk is full or a quota is reached; free some space or write elsewhere")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DataError(f"{path}: not allowed to write here; choose another place or change its permissions")
    return DataError(f"{path}: cannot be written ({error.strerror or text})")


def check_place(path: Path, overwrite: bool) -> None:
    """Raise DataError where `written_aside` would refuse `path`."""
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists already; choose another name, or pass --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: its folder {path.absolute().parent} does not exist; make it first")


@contextmanager
def written_aside(path: Path | str, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is synced and renamed to `path`, on failure removed.

    The body may make a file or a folder there. What is at `path` already is replaced only with `overwrite`.

    Raises DataError when `path` exists and `overwrite` is false, or its parent does not exist or is not writable;
    ResourceError when the disk is full.
    """
    # Refuse before any work is done.
    path = Path(path)
    check_place(path, overwrite)

    # Write beside `path`: a rename is atomic within one file system only.
    aside = path.absolute().parent / f".{path.name}.partial-{os.getpid()}"
    try:
        remove(aside)
        yield aside
        put_in_place(aside, path)
    except OSError as error:
        raise explain(error, path) from error
    finally:
        remove(aside)
