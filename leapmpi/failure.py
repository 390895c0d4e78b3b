"""How a failing rank ends the job: one message that names rank, host and phase, then all ranks stop."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leapmpi.errors import LeapmpiError
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
        kind = type(error).__name__
        sentence = f"{world.name} failed in {phases.where()}: {kind}: {error}{_keep_traceback(world, folder)}"
        if world.size == 1:
            raise Failure(sentence) from error
        _report(sentence)
        abort(world, DEFECT_CODE)


def _report(sentence: str) -> None:
    """One whole line on standard error."""
    sys.stderr.write(f"leapmpi: error: {' '.join(sentence.split())}\n")
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
