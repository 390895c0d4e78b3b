"""How a failing rank ends the job: one message that names rank, host and phase, then all ranks stop."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leapmpi.errors import Interrupted, LeapmpiError, ResourceError, one_line
from leapmpi.phases import Phases
from leapmpi.run import FAILED, INTERRUPTED, Run
from leapmpi.training.run_folder import record_failure
from leapmpi.world import World, abort

DEFECT_CODE = 70
INTERRUPTED_CODE = 130

_FIRST_RANK_FIRST = 1.0
"""Seconds that other ranks wait before they report a signal that most likely all were sent."""


class Failure(LeapmpiError):
    """A failure that is no user's error, told in one sentence; its traceback stands in a file."""

    exit_code = DEFECT_CODE


@contextmanager
def ends_the_job(world: World, phases: Phases, folder: list[Path]) -> Iterator[None]:
    """Run the body on all ranks; a failure of one ends all of them.

    An error that all ranks agreed on (`world.together`) is passed on for an orderly end. Any other one is reported
    here with rank, host, phase, epoch and iteration; with several ranks MPI is then aborted. summary.json in the run
    folder (`folder`, empty while there is none) then says that the run failed and why, and a traceback goes to
    failure-rank-R.txt beside it.
    """
    try:
        yield
    except Interrupted as error:
        if error.agreed or world.size == 1:
            if world.rank == 0:
                _record(str(error), world, phases, folder, INTERRUPTED)
            raise
        if world.rank:
            time.sleep(_FIRST_RANK_FIRST)
        _tell(f"{error} ({world.name}, {phases.where()})", world, phases, folder, INTERRUPTED)
        abort(world, error.exit_code)
    except LeapmpiError as error:
        if error.agreed or world.size == 1:
            if world.rank == 0:
                _record(str(error), world, phases, folder)
            raise
        _tell(f"{error} ({world.name}, {phases.where()})", world, phases, folder)
        abort(world, error.exit_code)
    except KeyboardInterrupt:
        if world.size == 1:
            _record("interrupted", world, phases, folder)
            raise
        _tell(f"interrupted ({world.name}, {phases.where()})", world, phases, folder)
        abort(world, INTERRUPTED_CODE)
    except Exception as error:
        found = _explain(error, world, phases, folder)
        if world.size == 1:
            _record(str(found), world, phases, folder)
            raise found from error
        _tell(str(found), world, phases, folder)
        abort(world, found.exit_code)


def _tell(why: str, world: World, phases: Phases, folder: list[Path], status: str = FAILED) -> None:
    """Report a failure, in the run folder too, unless another rank has done so: one line for one failure."""
    if _record(why, world, phases, folder, status) or not folder or Run(folder[0]).failure is None:
        _report(why, Interrupted.label if status == INTERRUPTED else LeapmpiError.label)


def _record(why: str, world: World, phases: Phases, folder: list[Path], status: str = FAILED) -> bool:
    place = {"phase": phases.current, "epoch": phases.epoch, "iteration": phases.iteration}
    return bool(folder) and record_failure(folder[0], why, status, rank=world.rank, host=world.host, **place)


def _explain(error: Exception, world: World, phases: Phases, folder: list[Path]) -> LeapmpiError:
    """What to tell the user about an error that nobody foresaw."""
    if _lacks_memory(error):
        return ResourceError(
            f"{world.name} ran out of memory in {phases.where()}; use a smaller batch, fan-out or hidden width, "
            "fewer ranks per node, or more nodes"
        )
    # torch appends the calls inside its library, line by line.
    said = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return Failure(f"{world.name} failed in {phases.where()}: {said}{_keep_traceback(world, folder)}")


def _lacks_memory(error: Exception) -> bool:
    """Whether Python, numpy or torch was refused memory; torch says so on a CPU in its text alone."""
    refused = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return refused or "can't allocate memory" in str(error)


def _report(sentence: str, label: str) -> None:
    """One whole line on standard error."""
    sys.stderr.write(f"leapmpi: {label}{one_line(sentence)}\n")
    sys.stderr.flush()


def _keep_traceback(world: World, folder: list[Path]) -> str:
    if not folder:
        return ""
    path = folder[0] / f"failure-rank-{world.rank}.txt"
    try:
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        return ""
    return f" (traceback in {path})"
