"""One start trains in a run folder at a time: a second is refused, a dead one is succeeded."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from leapmpi.errors import RunFolderError
from leapmpi.runs import run_lock
from leapmpi.runs.file_names import LOCK
from leapmpi.runs.run_lock import RunLock

REFUSED = r"{folder}: another start trains in this run folder: rank 0 of 4 on {host}, process {process}, since 2"


@pytest.fixture
def held(tmp_path):
    """The lock of the folder, held by a start of four ranks."""
    lock = RunLock(4)
    lock.take(tmp_path)
    yield lock
    lock.release()


@pytest.fixture
def without_locks(monkeypatch):
    """A file system without the system's locks."""

    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture
def elsewhere(monkeypatch):
    """A function after which this process counts as one of another machine."""
    return lambda name="other": monkeypatch.setattr(run_lock, "_machine", lambda: name)


def refusal(folder, **values):
    named = {"folder": folder, "host": os.uname().nodename, "process": os.getpid(), **values}
    return pytest.raises(RunFolderError, match=REFUSED.format(**named))


def found(folder):
    return json.loads((folder / LOCK).read_text())


def change(folder, **values):
    """Change the lock in place, as its holder might have written it."""
    (folder / LOCK).write_text(json.dumps({**found(folder), **values}))


def silent_for(folder, seconds):
    then = time.time() - seconds
    os.utime(folder / LOCK, (then, then))


def test_the_second_start_is_refused_until_the_first_has_ended(tmp_path, held):
    second = RunLock(1)
    before = (tmp_path / LOCK).read_bytes()
    with refusal(tmp_path):
        second.take(tmp_path)
    second.release()
    assert (tmp_path / LOCK).read_bytes() == before
    assert os.listdir(tmp_path) == [LOCK]
    held.release()
    assert os.listdir(tmp_path) == []
    second.take(tmp_path)
    second.take(tmp_path)  # held already
    second.release()


def test_of_starts_at_the_same_moment_one_has_the_lock(tmp_path):
    locks, refused = [RunLock(number) for number in range(1, 9)], []
    barrier = threading.Barrier(len(locks))

    def start(lock):
        barrier.wait()
        try:
            lock.take(tmp_path)
        except RunFolderError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start, args=(lock,)) for lock in locks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (holder,) = (lock for lock in locks if lock.folder)
    assert len(refused) == 7
    assert all(f"rank 0 of {found(tmp_path)['ranks']} on" in text for text in refused)
    holder.release()
    assert os.listdir(tmp_path) == []


def test_a_killed_start_is_succeeded_at_once(tmp_path):
    code = "from pathlib import Path; from leapmpi.runs.run_lock import RunLock; import time; lock = RunLock(4)\n"
    code += f"lock.take(Path({str(tmp_path)!r})); print('here', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        with refusal(tmp_path, process=process.pid):
            RunLock().take(tmp_path)
        process.kill()
    lock = RunLock()
    lock.take(tmp_path)
    assert found(tmp_path)["process"] == os.getpid()
    lock.release()


@pytest.mark.parametrize("ways", ["another machine", "no locks"])
def test_where_the_system_cannot_say_the_heartbeat_decides(tmp_path, monkeypatch, request, elsewhere, ways):
    if ways == "no locks":
        request.getfixturevalue("without_locks")
    monkeypatch.setattr(run_lock, "DEAD_AFTER", 600)
    first, second = RunLock(4), RunLock(2)
    first.take(tmp_path)
    elsewhere()

    # A heartbeat while the second looks.
    monkeypatch.setattr(run_lock, "BEAT", 0.0)
    naps = []
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: (naps.append(seconds), first.beat()))
    with refusal(tmp_path):
        second.take(tmp_path)
    assert naps
    assert not first.lost

    # None for long: the first is dead, or stands still.
    silent_for(tmp_path, 601)
    second.take(tmp_path)
    assert found(tmp_path)["ranks"] == 2
    first.beat()
    assert first.lost
    first.release()
    second.beat()
    assert not second.lost
    second.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"token": 1}', b"\xff\x00"])
def test_a_damaged_lock_is_cleared_away_when_nobody_keeps_it(tmp_path, monkeypatch, damage):
    (tmp_path / LOCK).write_bytes(damage)
    silent_for(tmp_path, 1 + run_lock.DEAD_AFTER)
    lock = RunLock()
    lock.take(tmp_path)
    lock.release()
    (tmp_path / LOCK).write_bytes(damage)
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: os.utime(tmp_path / LOCK))
    with pytest.raises(RunFolderError, match="another start trains in this run folder: one that has left no name"):
        lock.take(tmp_path)


def test_one_that_is_stopping_is_waited_for(tmp_path, monkeypatch):
    stops = []
    first, second = RunLock(4, lambda: bool(stops)), RunLock(2)
    first.take(tmp_path)
    stops.append(True)
    first.beat()
    assert found(tmp_path)["stopping"] == 1
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: first.release())
    second.take(tmp_path)
    assert found(tmp_path)["ranks"] == 2

    # Not for ever.
    monkeypatch.setattr(run_lock, "PATIENCE", 0.0)
    change(tmp_path, stopping=1)
    with pytest.raises(RunFolderError, match=r"the start before is still stopping after 0 s: rank 0 of 2 on .*; start"):
        RunLock().take(tmp_path)
    second.release()


def test_a_requeued_job_waits_for_its_former_start(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    first, second = RunLock(4), RunLock(2)
    first.take(tmp_path)
    with pytest.raises(RunFolderError, match=r"process \d+ of Slurm job 17, since"):
        second.take(tmp_path)  # twice in one job: nobody is about to end
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: first.release())
    second.take(tmp_path)
    assert (found(tmp_path)["job"], found(tmp_path)["restarts"]) == ("17", 1)
    second.release()


def test_two_that_find_the_same_dead_start_do_not_both_succeed_it(tmp_path, monkeypatch, elsewhere):
    """The one that is late moves the lock of the other away: it must give it back."""
    dead, early, late = RunLock(4), RunLock(2), RunLock(3)
    dead.take(tmp_path)
    silent_for(tmp_path, 1 + run_lock.DEAD_AFTER)
    real, taken = os.rename, []
    elsewhere()

    def rename(source, target):
        if not taken:
            taken.append(True)
            elsewhere("a third")
            early.take(tmp_path)
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: os.utime(tmp_path / LOCK))
    with pytest.raises(RunFolderError, match="rank 0 of 2 on"):
        late.take(tmp_path)
    early.beat()
    assert not early.lost
    assert found(tmp_path)["ranks"] == 2
    early.release()
    dead.release()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_made_again_is_locked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "BEAT", 0.0)
    folder = tmp_path / "run"
    folder.mkdir()
    lock = RunLock(4)
    lock.take(folder)
    (folder / LOCK).unlink()
    folder.rmdir()
    lock.beat()  # nothing can be done, and nobody has it
    assert not lock.lost
    folder.mkdir()
    lock.beat()
    with refusal(folder):
        RunLock().take(folder)
    lock.release()
    assert os.listdir(folder) == []


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    def mkdir(*_arguments, **_settings):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(run_lock.Path, "mkdir", mkdir)
    with pytest.raises(RunFolderError, match="not allowed to write here"):
        RunLock().take(tmp_path)
