"""leapmpi doctor --clean removes what ended jobs of leapmpi left, and nothing else."""

import os
import subprocess
import sys
import tempfile

import pytest

from leapmpi.cli.main import main
from leapmpi.system import stale_files
from tests.support.launch import child_environment


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A temporary folder and a shared memory of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(stale_files, "SHARED_MEMORY", tmp_path / "shm")
    for name in ("tmp", "shm"):
        (tmp_path / name).mkdir()
    return tmp_path


def ended_process():
    """The number of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_only_folders_of_ended_jobs_are_removed(place, capsys):
    namespace, dead = stale_files._namespace(), ended_process()
    left = [
        place / "tmp" / f"leapmpi-local.{namespace}.{dead}.abc",
        place / "shm" / f"leapmpi-single.{namespace}.{dead}.x",
    ]
    kept = [
        place / "tmp" / f"leapmpi-local.{namespace}.{os.getpid()}.abc",  # its job runs
        place / "tmp" / f"leapmpi-local.1.{dead}.abc",  # of another container
        place / "tmp" / f"leapmpi-other.{namespace}.{dead}.abc",
        place / "tmp" / "leapmpi-precious",
        place / "shm" / f"sm_segment.{dead}",
    ]
    for folder in (*left, *kept):
        folder.mkdir()
        (folder / "file").write_text("x")
    (place / "tmp" / f"leapmpi-local.{namespace}.{dead}.link").symlink_to(kept[3])
    assert stale_files.leftovers() == sorted(left)
    assert main(["doctor", "--clean"]) == 0
    printed = capsys.readouterr().out
    assert all(f"removed {folder}\n" in printed for folder in left)
    assert not any(folder.exists() for folder in left)
    assert all((folder / "file").exists() for folder in kept)
    assert main(["doctor", "--clean"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_a_process_killed_while_mpi_starts_leaves_what_cleaning_finds(tmp_path):
    code = """
import os, signal
from leapmpi.comm.world import no_files_left_behind
with no_files_left_behind():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = child_environment({"TMPDIR": str(tmp_path)})
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False)
    assert len(os.listdir(tmp_path)) == 1
    command = [sys.executable, "-m", "leapmpi.cli", "doctor", "--clean"]
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 0
    assert os.listdir(tmp_path) == []
