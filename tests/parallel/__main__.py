"""One rank of a parallel test run; all ranks run the same cases in the same order:

    jobs/mpirun/local 3 python -m tests.parallel [PYTEST ARGUMENT...]

The first failing case on any rank is reported by that rank and ends the job, since the others may wait for it. A case
that takes more than CASE_TIMEOUT seconds ends it too, with the stack of every thread; one rank alone, which may have
kernels to compile, has COMPILING_TIMEOUT. With LEAPMPI_RANK_LOGS, a folder, rank K prints to rank-K.txt there. Exit
codes are pytest's.
"""

import os
import sys
from pathlib import Path

import pytest
from mpi4py import MPI

from leapmpi.system.allocator import leave_garbage

CASE_TIMEOUT = 120
COMPILING_TIMEOUT = 240


def _print_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)


class EndAtFirstFailure:
    """Shows a failed case and ends all ranks at once: the others may wait for this one, and so would its fixtures."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and MPI.COMM_WORLD.size > 1:
            print(f"\nFAILED {report.nodeid}\n{report.longreprtext}\n{report.capstdout}{report.capstderr}", flush=True)
            MPI.COMM_WORLD.Abort(1)


def main(arguments: list[str]) -> int:
    """Run the cases on this rank; does not return on any rank when a case fails on one."""
    if folder := os.environ.get("LEAPMPI_RANK_LOGS"):
        _print_to(Path(folder, f"rank-{MPI.COMM_WORLD.rank}.txt"))
    if not any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        arguments = [*arguments, str(Path(__file__).parent)]
    # Ranks share a machine: no cache folder, whose files they would all write.
    timeout = CASE_TIMEOUT if MPI.COMM_WORLD.size > 1 else COMPILING_TIMEOUT
    options = ["-x", "-v", "-p", "no:cacheprovider", f"--timeout={timeout}", "--timeout-method=thread"]
    code = pytest.main([*options, *arguments], plugins=[EndAtFirstFailure()])
    if code:
        sys.stdout.flush()
        MPI.COMM_WORLD.Abort(int(code))
    leave_garbage()
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
