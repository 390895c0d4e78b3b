"""Real parallel jobs for end-to-end tests: started by jobs/mpirun/local, and never left behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
GRACE = 10.0  # seconds between asking a job to stop and killing it


def mpirun(
    ranks: int,
    command: Sequence[str | Path],
    timeout: float = 100.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` on `ranks` ranks of this machine and return its exit code, output and error output.

    The command sees this interpreter's environment first on PATH, and `env` on top of it. It starts in `cwd`, by
    default the project's folder. After `timeout` seconds the whole job is killed and the test fails, showing what was
    printed. Skips where there is no mpirun.
    """
    environment = child_environment(env)
    if shutil.which("mpirun", path=environment["PATH"]) is None:
        pytest.skip("no mpirun: jobs/environment installs one")
    launcher = [str(PROJECT / "jobs/mpirun/local"), str(ranks)]
    return run([*launcher, *map(str, command)], timeout, environment, cwd or PROJECT)


def child_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child that finds this interpreter's commands, this project's packages, and `env`."""
    result = {**os.environ, "LEAPMPI_ENV": sys.prefix}
    result["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), result.get("PATH", os.defpath)])
    result["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), result.get("PYTHONPATH")]))
    return {**result, **(env or {})}


def bare_environment(home: Path) -> dict[str, str]:
    """The environment of a new container: no settings of Open MPI, 80 columns, a home that is empty but for caches."""
    kept = {key: value for key, value in child_environment().items() if not key.startswith(("OMPI_", "PRTE_", "PMIX_"))}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return kept | {"COLUMNS": "80", "HOME": str(home), "TERM": "dumb", "XDG_CACHE_HOME": cache}


def run(
    command: Sequence[str], timeout: float, environment: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run one command in a session of its own, of which nothing is left when this returns or raises."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
        env=environment, cwd=cwd, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_session(child)
        output, errors = child.communicate()
        pytest.fail(f"no end after {timeout} s: {' '.join(command)}\n--- output\n{output}\n--- errors\n{errors}")
    finally:
        end_session(child)
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def end_session(leader: subprocess.Popen) -> None:
    """End every process of the session that `leader` started: SIGTERM first, SIGKILL after a grace."""
    if leader.poll() is None:
        leader.terminate()
    deadline = time.monotonic() + GRACE
    while members := session_members(leader.pid):
        if time.monotonic() > deadline:
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        time.sleep(0.05)
        leader.poll()


def session_members(session: int) -> list[int]:
    """The living processes (zombies aside) of a session; ranks are found even in process groups of their own."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Fields after the command's name, which may itself hold spaces: state, parent, group, session.
            state, _, _, found = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(found) == session and state not in "ZX":
            members.append(int(stat.parent.name))
    return members
