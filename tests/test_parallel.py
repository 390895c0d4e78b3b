"""The cases of tests/parallel on 1, 2, 3 and 4 ranks, one job each, and what the harness does with failures."""

import sys
import textwrap
import time

import pytest

from tests.support.launch import mpirun

JOB_TIMEOUT = 1200


def parallel_tests(ranks, folder, *arguments):
    """Run tests.parallel on `ranks` ranks; returns the finished job and the printed text of each rank."""
    env = {"LEAPMPI_RANK_LOGS": str(folder), "LEAPMPI_TEST_RANKS": str(ranks)}
    job = mpirun(ranks, [sys.executable, "-m", "tests.parallel", *arguments], JOB_TIMEOUT, env)
    return job, [path.read_text(errors="replace") for path in sorted(folder.glob("rank-*.txt"))]


def failure_report(job, logs):
    """What to show of a failed job: the ranks whose own case failed, or all of them."""
    failing = {rank: log for rank, log in enumerate(logs) if "FAILED" in log or "Timeout" in log or "Error" in log}
    parts = [f"----- rank {rank}\n{log}" for rank, log in (failing or dict(enumerate(logs))).items()]
    return "\n".join([f"exit code {job.returncode}", *parts, "----- mpirun", job.stdout, job.stderr])


def on_ranks(ranks, seconds, *marks):
    """A job of all cases, which takes about so many seconds."""
    return pytest.param(ranks, marks=[pytest.mark.ranks(ranks), pytest.mark.long(seconds), *marks])


@pytest.mark.timeout(JOB_TIMEOUT + 30)
# One rank alone goes before all other tests: it compiles what several ranks would all compile.
# Jobs of 4 and of 3 ranks use all processors: other long tests stand between them.
@pytest.mark.parametrize(
    "ranks", [on_ranks(4, 200), on_ranks(3, 130), on_ranks(2, 80), on_ranks(1, 70, pytest.mark.compiles)]
)
def test_parallel_cases(ranks, tmp_path):
    job, logs = parallel_tests(ranks, tmp_path)
    if job.returncode:
        pytest.fail(failure_report(job, logs), pytrace=False)
    assert len(logs) == ranks
    for log in logs:
        assert " passed" in log.splitlines()[-1]


def write_case(folder, body):
    path = folder / "test_case.py"
    path.write_text("from mpi4py import MPI\nimport time\n\ndef test_case():\n" + textwrap.indent(body, "    "))
    return path


def test_a_failing_rank_ends_the_job_and_its_report_is_shown(tmp_path):
    case = write_case(tmp_path, "assert MPI.COMM_WORLD.rank != 1, 'one is odd'\nMPI.COMM_WORLD.barrier()\n")
    start = time.monotonic()
    job, logs = parallel_tests(3, tmp_path, case)
    assert job.returncode != 0
    assert time.monotonic() - start < 30
    report = failure_report(job, logs)
    assert "one is odd" in report
    assert "----- rank 1" in report
    assert "----- rank 0" not in report


def test_a_hanging_case_ends_the_job_and_shows_where_it_hung(tmp_path):
    case = write_case(tmp_path, "if MPI.COMM_WORLD.rank:\n    time.sleep(50)\nMPI.COMM_WORLD.barrier()\n")
    job, logs = parallel_tests(2, tmp_path, case, "--timeout=3")
    assert job.returncode != 0
    report = failure_report(job, logs)
    assert "Timeout" in report
    # Both ranks hang, one asleep and one waiting for it; the one whose time is up first reports.
    assert "time.sleep(50)" in report or "COMM_WORLD.barrier()" in report
