"""`leapmpi COMMAND`: finds the command's module, runs it, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import os
import pkgutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from leapmpi.cli import commands
from leapmpi.comm.launcher import launched_rank
from leapmpi.config.parser import as_program, dispatch
from leapmpi.errors import RESUMABLE, Interrupted, LeapmpiError, ResourceError, one_line
from leapmpi.fault_tolerance.launcher_cleanup import report_line
from leapmpi.system.atomic_files import explain, is_full
from leapmpi.system.process_limits import TRAINING, check_limits, too_little

PROGRAM = "leapmpi"
ABOUT = """Trains graph neural networks where the features are, over MPI.
Start it on N ranks with: mpirun -n N leapmpi train DATA"""

_FIRST = ("train", "sweep", "evaluate", "predict", "export", "compare", "report", "bench", "plan", "submit", "doctor")
_LIGHT = ("compare", "completion", "export", "report", "submit")
"""Commands that load neither torch nor MPI, but for `report --data`, whose forecasts load torch."""
_FOUND = {module.name: f"{commands.__name__}.{module.name}" for module in pkgutil.iter_modules(commands.__path__)}
_FOUND["completion"] = "leapmpi.config.completion"  # that of leapmpi-prep too
COMMANDS = {name: _FOUND[name] for name in (*_FIRST, *sorted(_FOUND.keys() - {*_FIRST}))}
"""The modules in the folder of commands by name, in the order of --help."""

_REPEAT_DELAY = 2.0
"""Seconds that ranks other than 0 wait before they report an error that not all ranks raised."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `leapmpi` and return the exit code. An error of the user is one line on standard error.

    Without `argv` it is the program: the process ends with it.
    """
    if argv is None:
        signal.signal(signal.SIGUSR2, _end_at_once)
    return as_program(_run, argv)


def _end_at_once(number: int, _frame: object) -> None:
    """End the process, with a sentence, at a signal that comes before a session answers signals, or after it.

    No exception: libraries that are being imported might take it for a fault of their own.
    """
    # A signal that all ranks were sent is reported by rank 0, whose end ends the others.
    if launched_rank():
        time.sleep(_REPEAT_DELAY)
    name = signal.Signals(number).name
    report_line(
        f"leapmpi: {name} ended the job while nothing was computed; the same command starts it again", os.getppid()
    )
    os._exit(RESUMABLE)


def _run(argv: Sequence[str]) -> int:
    # Code of the user may put another stream in its place.
    output = sys.stdout
    try:
        code = dispatch(PROGRAM, ABOUT, COMMANDS, argv, _check_limits)
        output.flush()
        return code
    except LeapmpiError as error:
        _report(error)
        return error.exit_code
    except (ImportError, MemoryError) as error:
        if not (refused := too_little(error)):
            raise
        _report(refused)
        return refused.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("leapmpi: interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader of our output is gone; nothing may be written any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        return 141
    except OSError as error:
        # Standard output has no name, and nothing of what it still holds can be written at exit.
        if error.filename is not None or not is_full(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        full = ResourceError(str(explain(error, Path("standard output"))))
        _report(full)
        return full.exit_code


def _check_limits(command: str) -> None:
    """Raise ResourceError for limits of this process under which the libraries of `command` would die."""
    if command not in _LIGHT:
        check_limits(TRAINING, f"leapmpi {command}")


def _report(error: LeapmpiError) -> None:
    """Print one line on standard error from one rank, also when MPI has not started."""
    from leapmpi.comm.launcher import launcher_size, local_rank
    from leapmpi.comm.world import job_rank, meet_before_the_end
    from leapmpi.fault_tolerance.launcher_cleanup import end_launcher_after_failure

    # Where rank 0 failed too, its exit ends the other ranks before they repeat the same sentence.
    first = job_rank() == 0
    if not first and not error.agreed:
        time.sleep(_REPEAT_DELAY)
    if first or not error.agreed:
        line = f"leapmpi: {error.label}{one_line(error)}"
        if isinstance(error, Interrupted):
            report_line(line, os.getppid())
        else:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    # A launcher that hangs after a failure is ended; ranks that all raised the error wait for each other.
    if launcher_size() and local_rank() == 0:
        end_launcher_after_failure(os.getppid(), isinstance(error, Interrupted))
    if error.agreed:
        meet_before_the_end()
