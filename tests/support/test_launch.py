"""The launcher of end-to-end tests: output and exit codes come back, and nothing outlives a time-out."""

import sys
import time
from pathlib import Path

import pytest

from tests.support.launch import mpirun


def test_output_and_exit_code_come_back():
    job = mpirun(2, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert job.returncode == 3
    assert "out" in job.stdout
    assert "err" in job.stderr


def test_a_job_that_takes_too_long_fails_and_is_gone(tmp_path):
    code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(60)"
    start = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="no end after 2 s"):
        mpirun(2, [sys.executable, "-c", code, tmp_path], timeout=2)
    assert time.monotonic() - start < 15
    ranks = list(tmp_path.iterdir())
    assert len(ranks) == 2
    for rank in ranks:
        stat = Path("/proc", rank.name, "stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
