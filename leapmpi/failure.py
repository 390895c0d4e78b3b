"""How a failing rank ends the job: one message that names rank, host and phase, then all ranks stop."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leapmpi.errors import LeapmpiError, ResourceError, one_line
from leapmpi.phases import Phases
from leapmpi.world import World, abort

DEFECT_CODE = 70
INTERRUPTED_CODE = 130


class Failure(LeapmpiError):
    """A failure that is no user's error, told in one sentence; its traceback stands in a file."""

    exit_code = DEFECT_CODE


@contextmanager
def ends_the_job(world: World, phases: Phases, folder: list[Path]) -> Iterator[None]:
    """Run the body on all ranks; a failure of one ends all of them.

    An error that all ranks agreed on (`world.together`) is passed on for an orderly end. Any other one is reported
    here with rank, host, phase, epoch and iteration; with several ranks MPI is then aborted. A traceback goes to
    failure-rank-R.txt in the run folder (`folder`, empty while there is none).
    """
    try:
        yield
    except LeapmpiError as error:
        if error.agreed or world.size == 1:
            raise
        _report(f"{error} ({world.name}, {phases.where()})")
        abort(world, error.exit_code)
    except KeyboardInterrupt:
        if world.size == 1:
            raise
        _report(f"interrupted ({world.name}, {phases.where()})")
        abort(world, INTERRUPTED_CODE)
    except Exception as error:
        found = _explain(error, world, phases, folder)
        if world.size == 1:
            raise found from error
        _report(str(found))
        abort(world, found.exit_code)


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


def _report(sentence: str) -> None:
    """One whole line on standard error."""
    sys.stderr.write(f"leapmpi: error: {one_line(sentence)}\n")
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
