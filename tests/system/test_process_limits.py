"""Limits of a process that are too low for libraries: one sentence that names the limit, before anything dies of it."""

import resource
import subprocess
import sys

import pytest

from leapmpi.errors import ResourceError
from leapmpi.system import process_limits
from leapmpi.system.process_limits import TRAINING, check_limits, memory_limits, too_little
from tests.support.launch import PROJECT, child_environment

LEAPMPI = f"{sys.executable} -m leapmpi"
PREPARE = f"{sys.executable} -m data_prep.cli"


def under(limit, command):
    """`command` in a shell that has set `limit`."""
    words = ["bash", "-c", f"ulimit {limit}; exec {command}"]
    return subprocess.run(words, env=child_environment(), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("limit", "command", "said"),
    [
        ("-v 100000", f"{LEAPMPI} train DATA", "the address space is limited to 98 MiB (ulimit -v)"),
        ("-v 900000", f"{LEAPMPI} bench DATA", "leapmpi bench needs 1,280 MiB at the very least"),
        ("-d 50000", f"{LEAPMPI} plan DATA", "memory for data is limited to 49 MiB (ulimit -d)"),
        ("-s 128", f"{LEAPMPI} doctor", "the stack is limited to 128 KiB (ulimit -s)"),
        ("-v 100000", f"{PREPARE} info DATA", "the address space is limited to 98 MiB (ulimit -v)"),
        ("-s 64", f"{PROJECT}/jobs/mpirun/local 2 {LEAPMPI} train DATA", "the stack is limited to 64 KiB (ulimit -s)"),
    ],
)
def test_the_start_names_a_limit_that_is_too_low(limit, command, said, small_data):
    job = under(limit, command.replace("DATA", str(small_data)))
    assert job.returncode in (2, 6)
    assert job.stdout == ""
    (line,) = job.stderr.splitlines()
    assert ": error: " in line
    assert said in line
    assert f"raise it: ulimit {limit[:2]} " in line


def test_what_needs_no_library_is_not_refused(finished_run):
    job = under("-v 100000", f"{LEAPMPI} compare {finished_run.path}")
    assert (job.returncode, job.stderr) == (0, "")


def test_without_limits_nothing_is_refused_and_no_error_explained(monkeypatch):
    limits = {}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits.get(which, resource.RLIM_INFINITY), 0))
    check_limits(TRAINING, "a job")
    assert memory_limits() == ""
    assert too_little(ImportError("no such module")) is None

    # What passes the check and runs out later names the limit all the same.
    limits[resource.RLIMIT_AS] = 2 << 30
    check_limits(TRAINING, "a job")
    sentence = "too little memory (the address space is limited to 2,048 MiB: ulimit -v): x.so: failed to map segment"
    assert str(too_little(ImportError("x.so: failed to map segment"))).startswith(sentence)
    limits[resource.RLIMIT_STACK] = process_limits.LEAST_STACK - 1
    with pytest.raises(ResourceError, match="the stack is limited to 256 KiB"):
        check_limits(TRAINING, "a job")
