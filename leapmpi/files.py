"""Files and folders that appear whole or not at all: written aside, flushed, synced, renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leapmpi.errors import DataError, ResourceError


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def put_in_place(aside: Path, path: Path) -> None:
    """Sync the file or folder `aside` and rename it to `path` beside it; a file or folder that stands there goes."""
    for folder, _, names in os.walk(aside):
        for name in names:
            _sync(Path(folder, name))
    _sync(aside)
    # A folder cannot be replaced in one go: it steps aside, so that it is whole at any moment.
    old = aside.with_name(f"{aside.name}-old")
    if path.is_dir() and not path.is_symlink():
        os.replace(path, old)
    os.replace(aside, path)
    _sync(path.absolute().parent)
    remove(old)


def explain(error: OSError, path: Path) -> Exception:
    """The LeapmpiError that tells a user about `error`, met while writing `path`."""
    text = str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in text:
        return ResourceError(f"{path}: the disk is full or a quota is reached; free some space or write elsewhere")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DataError(f"{path}: not allowed to write here; choose another place or change its permissions")
    return DataError(f"{path}: cannot be written ({error.strerror or text})")


@contextmanager
def written_aside(path: Path | str, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is synced and renamed to `path`, on failure removed.

    The body may make a file or a folder there. What stands at `path` is replaced only with `overwrite`.

    Raises DataError when `path` exists and `overwrite` is false, or its parent does not exist or is not writable;
    ResourceError when the disk is full.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists already; choose another name, or pass --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: its folder {path.absolute().parent} does not exist; make it first")
    aside = path.absolute().parent / f".{path.name}.partial-{os.getpid()}"
    try:
        remove(aside)
        yield aside
        put_in_place(aside, path)
    except OSError as error:
        raise explain(error, path) from error
    finally:
        remove(aside)
