"""The lock of a run folder, held by rank 0 of the one start that trains there: RUN/run.lock, which names its holder.

On the machine of the holder the system decides whether it lives: it keeps a lock on the file (flock) while the process
does. From other machines, and where a file system has no such locks, the heartbeat decides: the holder sets the time of
the file every `BEAT` seconds, and is dead once it has not done so for three of these.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from leapmpi.errors import RunFolderError
from leapmpi.runs.file_names import LOCK
from leapmpi.system.atomic_files import explain, remove_abandoned, take_free_name, temporary_folder
from leapmpi.system.kernel_cache import lock_waits

BEAT = 10.0
"""Seconds between heartbeats."""

DEAD_AFTER = 3 * BEAT
"""Seconds without a heartbeat after which a holder on another machine counts as dead."""

PATIENCE = 60.0
"""Seconds to wait for a holder that is stopping; Slurm kills a job it ends after 30."""

_NAP = 0.1
_MOST_BYTES = 4096

log = logging.getLogger("leapmpi")


@dataclass(frozen=True)
class Holder:
    """The start that holds a lock. `stopping` is 1 once it has been asked to stop.

    `machine` is the same for all containers of one kernel; `locked`: whether its file system has locks of the system;
    `job` is Slurm's, and `restarts` how often that was requeued.
    """

    token: str
    host: str
    process: int
    ranks: int
    machine: str
    locked: bool
    job: str
    restarts: int
    since: str
    stopping: int = 0
    """The last field, of one digit: it is overwritten in the file (`_report_stopping`)."""

    def name(self) -> str:
        """'rank 0 of 4 on n7, process 123, since 2031-02-03 04:05:06 UTC'."""
        job = f" of Slurm job {self.job}" if self.job else ""
        return f"rank 0 of {self.ranks} on {self.host}, process {self.process}{job}, since {self.since}"

    def is_leaving(self) -> bool:
        """Return whether it is stopping: after a stop request, or as this is the same Slurm job, requeued."""
        requeued = bool(self.job) and self.job == os.environ.get("SLURM_JOB_ID")
        return bool(self.stopping) or (requeued and self.restarts < _restarts())


@dataclass(frozen=True)
class _Sight:
    """A lock as it was seen: its holder (None: the file is damaged, or not filled yet), and its last heartbeat."""

    holder: Holder | None
    beat: int

    def is_of(self, other: _Sight) -> bool:
        """Return whether `other` is the lock of the same holder."""
        return (self.holder and self.holder.token) == (other.holder and other.holder.token)

    def name(self) -> str:
        return self.holder.name() if self.holder else "one that has left no name"


class RunLock:
    """The lock that one start holds; `lost` once another has taken it over. On rank 0.

    `beat` may run in another thread, and says to others that the start lives, and whether it is `stopping`.
    """

    def __init__(self, ranks: int = 1, stopping: Callable[[], bool] = lambda: False) -> None:
        """Start without a lock."""
        self.folder: Path | None = None
        self._place = Path()
        self.lost = False
        self._ranks, self._stopping = ranks, stopping
        self._token = ""
        self._descriptor = -1
        self._beaten = 0.0
        self._said_stopping = False
        self._mutex = threading.Lock()

    def take(self, folder: Path) -> None:
        """Take the lock of the run `folder`, unless it is held already; that of a dead start is cleared away.

        Waits for a start that is stopping, for `PATIENCE` seconds at most, and for a sign of life from one of another
        machine, for `DEAD_AFTER`. Raises RunFolderError where another start trains there.
        """
        if self.folder is not None:
            return
        try:
            remove_abandoned(folder / LOCK)
            self._take(folder, lambda aside: _outlast(folder / LOCK, aside))
        except OSError as error:
            raise RunFolderError(str(explain(error, folder / LOCK))) from None
        # A heartbeat may come while code of the user has changed the working directory.
        self.folder, self._place = folder, folder.absolute()

    def beat(self) -> None:
        """Give a sign of life where it is time for one. Notice that another start has taken over. May block."""
        with self._mutex:
            if self.folder is None or self.lost:
                return
            if self._stopping() and not self._said_stopping:
                self._report_stopping()
            if time.monotonic() - self._beaten > BEAT:
                with suppress(OSError):
                    self._beat(self._place)

    def release(self) -> None:
        """Let others take the lock, where it is held."""
        # A heartbeat that hangs in a file system must not keep the process.
        if not self._mutex.acquire(timeout=DEAD_AFTER):
            return
        try:
            if self.folder is not None:
                with suppress(OSError):
                    if self._is_own(self.folder / LOCK):
                        (self.folder / LOCK).unlink(missing_ok=True)
                os.close(self._descriptor)
                self.folder = None
        finally:
            self._mutex.release()

    def _take(self, folder: Path, outlast: Callable[[Path], None]) -> None:
        """Make the file, full and locked before it has its name; `outlast` is called as long as another has it."""
        with temporary_folder(folder / LOCK, "partial") as beside:
            aside, token = beside / LOCK, secrets.token_hex(8)
            descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                holder = _this_process(token, self._ranks, _locks(descriptor))
                os.write(descriptor, json.dumps(asdict(holder)).encode())
                while True:
                    # Another start takes a file of great age for that of a dead holder, and waiting makes it old.
                    os.utime(descriptor)
                    try:
                        take_free_name(aside, folder / LOCK)
                        break
                    except FileExistsError:
                        outlast(aside)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor, self._token, self._beaten = descriptor, token, time.monotonic()

    def _beat(self, folder: Path) -> None:
        try:
            self.lost = not self._is_own(folder / LOCK)
        except FileNotFoundError:
            # Somebody has removed the folder, which training makes again.
            before = self._descriptor
            try:
                self._take(folder, _no_wait)
            except FileExistsError:
                self.lost = True
                return
            os.close(before)
        os.utime(self._descriptor)
        self._beaten = time.monotonic()

    def _is_own(self, path: Path) -> bool:
        sight = _look(path)
        if sight is None:
            raise FileNotFoundError(path)
        return sight.holder is not None and sight.holder.token == self._token

    def _report_stopping(self) -> None:
        """Change the last number of the file, which is `stopping`."""
        with suppress(OSError):
            os.pwrite(self._descriptor, b"1", os.fstat(self._descriptor).st_size - 2)
            os.fsync(self._descriptor)
            self._said_stopping = True


def _no_wait(_aside: Path) -> None:
    raise FileExistsError


def _locks(descriptor: int) -> bool:
    """Take the system's lock on a file that only this process knows; False where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _this_process(token: str, ranks: int, locked: bool) -> Holder:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    job = os.environ.get("SLURM_JOB_ID", "")
    where = socket.gethostname(), os.getpid(), ranks, _machine()
    return Holder(token, *where, locked, job, _restarts(), since)


def _restarts() -> int:
    found = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(found) if found.isdigit() else 0


def _machine() -> str:
    """Return the identity of the running kernel, within which all processes see the system's locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _look(path: Path) -> _Sight | None:
    """Read the lock at `path`; None where there is none."""
    # Opened each time: a network file system looks for what others wrote when a file is opened.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        text, beat = os.read(descriptor, _MOST_BYTES), os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
    try:
        found = json.loads(text)
        kinds = {"process": int, "ranks": int, "locked": bool, "restarts": int, "stopping": int}
        holder = Holder(**found)
        if all(isinstance(value, kinds.get(name, str)) for name, value in found.items()):
            return _Sight(holder, beat)
    except (ValueError, TypeError):
        pass
    return _Sight(None, beat)


def _outlast(path: Path, aside: Path) -> None:
    """Return once the lock at `path` is gone, which is cleared away if its holder is dead. Raises RunFolderError.

    `aside` is a file on the same file system, whose clock it shows.
    """
    first, begun, said = _look(path), time.monotonic(), False
    while (sight := _look(path)) is not None and first is not None and sight.is_of(first):
        waited = time.monotonic() - begun
        lives = _lives(path, first, sight, aside, waited)
        if lives is False:
            _clear_away(path, sight, aside.with_name("dead"))
            return

        # One that is about to end is waited for; so is a sign of life.
        leaving = sight.holder is not None and sight.holder.is_leaving()
        if lives and not (leaving and waited < PATIENCE):
            raise RunFolderError(_refusal(path.parent, sight, leaving))
        if not said:
            said, seconds = True, PATIENCE if leaving else DEAD_AFTER
            why = "to stop" if leaving else "to give a sign of life"
            log.info("%s: waiting up to %g s for %s %s", path.parent, seconds, sight.name(), why)
        lock_waits.looked += 1
        time.sleep(_NAP)


def _refusal(folder: Path, sight: _Sight, leaving: bool) -> str:
    if leaving:
        return (
            f"{folder}: the start before is still stopping after {PATIENCE:g} s: {sight.name()}; start again once it "
            "has ended, or choose another --run folder"
        )
    return (
        f"{folder}: another start trains in this run folder: {sight.name()}; wait until it has ended, stop it, or "
        "choose another --run folder"
    )


def _lives(path: Path, first: _Sight, sight: _Sight, aside: Path, waited: float) -> bool | None:
    """Return whether the holder of a lock lives; None while that is not known yet."""
    holder = sight.holder
    if holder and holder.locked and holder.machine == _machine() and (locked := _is_locked(path)) is not None:
        return locked
    if sight.beat != first.beat:
        return True
    # Times of one clock: that of the file system.
    os.utime(aside)
    silent = (aside.stat().st_mtime_ns - sight.beat) / 1e9
    return False if max(silent, waited) > DEAD_AFTER else None


def _is_locked(path: Path) -> bool | None:
    """Return whether a process holds the system's lock on `path`; None where that is unknown."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # A shared lock: two processes that look at the same time do not take each other for the holder.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return None


def _clear_away(path: Path, dead: _Sight, away: Path) -> None:
    """Move the lock of a `dead` holder `away`, unless another process has done so and taken its place."""
    with suppress(FileNotFoundError):
        os.rename(path, away)
        moved = _look(away)
        if moved is not None and not moved.is_of(dead):
            # A living holder, to which its lock is given back.
            with suppress(FileExistsError):
                take_free_name(away, path)
