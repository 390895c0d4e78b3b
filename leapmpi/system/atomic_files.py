"""Files and folders that appear whole or not at all: written aside, synced, renamed or linked to their name.

What is written aside is in a folder of its own beside the name, .NAME.partial-PROCESS-TOKEN. Its process holds a lock
on that folder until the name is taken, so that others can distinguish an abandoned folder from one in use.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leapmpi.errors import DataError, ResourceError

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
"""Errors of a system if a name belongs to something that is not replaced."""


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    """Open a descriptor of the file or folder `path` while the body runs."""
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
def temporary_folder(
    path: Path, kind: str, *, accepts: Callable[[Path], bool] | None = None, keep: bool = False
) -> Iterator[Path]:
    """Make the folder .NAME.KIND-PROCESS-TOKEN beside `path`, in use while the body runs or this process lives.

    It goes at the end; with `keep` it stays where the body fails. accepts: whether an abandoned folder is taken over
    instead of a new one. `remove_abandoned` knows the kinds "partial" and "work". Raises OSError.
    """
    folder, descriptor = (accepts and _taken_over(path, kind, accepts)) or _held_folder(path, kind)
    kept = False
    try:
        yield folder
    except BaseException:
        kept = keep
        raise
    finally:
        # The lock on the folder is given up last: until then no other process takes it for abandoned.
        if not kept:
            _clear_away(folder, path)
        os.close(descriptor)


def _taken_over(path: Path, kind: str, accepts: Callable[[Path], bool]) -> tuple[Path, int] | None:
    """Return an abandoned folder that `accepts` takes, and the descriptor that holds its lock; None without one."""
    for entry in _left_behind(path, kind):
        with suppress(OSError):
            descriptor = os.open(entry, os.O_RDONLY)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), entry.stat()) and accepts(entry):
                    return entry, descriptor
            os.close(descriptor)
    return None


def _left_behind(path: Path, kinds: str) -> list[Path]:
    """List the folders .NAME.KIND-* of `path`, in use or not; kinds: one, or several with | between them."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.({kinds})-\d+(-[0-9a-f]+)?")
    return [each for each in path.absolute().parent.iterdir() if pattern.fullmatch(each.name)]


def _held_folder(path: Path, kind: str) -> tuple[Path, int]:
    """Make a new folder beside `path`; also return the descriptor that holds its lock."""
    while True:
        # Processes of other hosts and containers may have the same number.
        name = f".{path.name}.{kind}-{os.getpid()}-{secrets.token_hex(4)}"
        folder = path.absolute().parent / name
        folder.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            if _is_held_by(descriptor, folder):
                return folder, descriptor
            os.close(descriptor)


def _is_held_by(descriptor: int, folder: Path) -> bool:
    """Return whether `descriptor` holds the lock of `folder`; not if another process has begun to remove it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Where a file system has no locks, nothing there is ever taken for abandoned.
        return True
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    return False


def remove_abandoned(path: Path) -> None:
    """Remove what killed processes left behind while they were making `path`: .NAME.partial-* and .NAME.work-*.

    A folder that had stepped aside for a successor that never came gets its name back.
    """
    with suppress(OSError):
        for entry in _left_behind(path, "partial|work"):
            # Whoever clears a folder away holds its lock meanwhile; what cannot be locked is in use.
            with suppress(OSError), _descriptor(entry) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear_away(entry, path)


def _clear_away(folder: Path, path: Path) -> None:
    """Remove the temporary `folder` of `path`. A folder that stepped aside there in vain gets its name back."""
    old = _old(folder / path.name)
    if old.exists():
        with suppress(OSError):
            take_free_name(old, path)
    shutil.rmtree(folder, ignore_errors=True)


def _old(aside: Path) -> Path:
    """Return the path to which a folder is moved aside for `aside`."""
    return aside.with_name(f"{aside.name}-old")


def put_in_place(aside: Path, path: Path, replace: bool = True) -> None:
    """Sync the file or folder `aside` and give it the name `path`, on the same file system.

    A file or folder that is there is removed; without `replace` it stays, and FileExistsError is raised, however late
    it came. An empty folder gives way to a folder in either case.
    """
    # The content must be on disk before the name is.
    for folder, _, names in os.walk(aside):
        for name in names:
            _sync(Path(folder, name))
    _sync(aside)

    if replace:
        _take_over(aside, path)
    else:
        take_free_name(aside, path)
    _sync(path.absolute().parent)


def _take_over(aside: Path, path: Path) -> None:
    """Give `aside` the name `path` and remove what had it."""
    # A folder cannot be replaced in one go: the old one gets another name first, so that one is whole at any moment.
    old = _old(aside)
    while True:
        remove(old)
        with suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                os.replace(path, old)
        try:
            os.replace(aside, path)
        except OSError as error:
            # Another process has just put its own folder there.
            if error.errno not in _TAKEN or not path.is_dir() or path.is_symlink():
                raise
        else:
            remove(old)
            return


def take_free_name(aside: Path, path: Path) -> None:
    """Give the file or folder `aside` the name `path` where nothing has it. Raises FileExistsError where something has.

    A file may keep its name `aside` too.
    """
    try:
        if aside.is_dir():
            # The system replaces an empty folder, and nothing else.
            os.rename(aside, path)
        else:
            _take_by_link(aside, path)
    except OSError as error:
        if error.errno in _TAKEN:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        raise


def _take_by_link(aside: Path, path: Path) -> None:
    try:
        # Unlike a rename, a link fails where the name is taken.
        os.link(aside, path)
    except FileExistsError:
        # NFS says so too where the link was made and the answer got lost.
        with suppress(FileNotFoundError):
            if os.path.samefile(aside, path):
                return
        raise
    except OSError:
        # A file system without hard links: an empty file reserves the name, as only one process can make it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            os.replace(aside, path)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def is_full(error: OSError) -> bool:
    """Return whether `error` reports a full disk, or a quota or limit that is reached."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error)


def explain(error: OSError, path: Path) -> Exception:
    """Explain `error`, met while writing `path`, to the user as a LeapmpiError."""
    text = str(error)
    if is_full(error):
        return ResourceError(f"{path}: the disk is full or a quota is reached; free some space or write elsewhere")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DataError(f"{path}: not allowed to write here; choose another place or change its permissions")
    return DataError(f"{path}: cannot be written ({error.strerror or text})")


def check_place(path: Path, overwrite: bool, into_empty: bool = False) -> None:
    """Raise DataError where `written_aside` would refuse `path`."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise explain(error, path) from None
    is_empty_folder = path.is_dir() and not any(path.iterdir())
    if os.path.lexists(path) and not overwrite and not (into_empty and is_empty_folder):
        raise DataError(f"{path} exists already; choose another name, or pass --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: its folder {path.absolute().parent} does not exist; make it first")


@contextmanager
def written_aside(path: Path | str, *, overwrite: bool = False, into_empty: bool = False) -> Iterator[Path]:
    """Yield a temporary path near `path`; on success it is synced and gets the name `path`, on failure it is removed.

    The body may make a file or a folder there. What has the name is replaced only with `overwrite`: of several writers
    without it, in any processes of any hosts, one succeeds. With `into_empty` a folder may replace an empty one.

    Raises DataError when something has the name and `overwrite` is false, before the body or after it, or when the
    parent does not exist or is not writable; ResourceError when the disk is full.
    """
    # Refuse before any work is done.
    path = Path(path)
    check_place(path, overwrite, into_empty)
    try:
        with temporary_folder(path, "partial") as folder:
            yield folder / path.name
            try:
                put_in_place(folder / path.name, path, replace=overwrite)
            except FileExistsError:
                raise DataError(
                    f"{path} exists already: another process made it in the meantime; choose another name, or pass "
                    "--overwrite to replace it"
                ) from None
    except OSError as error:
        raise explain(error, path) from error
