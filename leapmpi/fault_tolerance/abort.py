"""Abort of the job by a failing rank: one message that names rank, host and phase, then all ranks stop."""

from __future__ import annotations

import os
import sysconfig
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leapmpi.comm.world import abort
from leapmpi.errors import DataError, Interrupted, LeapmpiError, ResourceError
from leapmpi.fault_tolerance.heartbeats import Facts
from leapmpi.fault_tolerance.report import record_failure_once, report_failure
from leapmpi.fault_tolerance.watchdog import Watchdog
from leapmpi.runs.file_names import failure_file
from leapmpi.runs.run import FAILED, INTERRUPTED
from leapmpi.system.process_limits import is_lack_of_memory, memory_limits

DEFECT_CODE = 70
"""Exit code of a defect of leapmpi."""

INTERRUPTED_CODE = 130
"""Exit code after Ctrl-C."""

_AFTER_RANK_0 = 1.0
"""Seconds that other ranks wait before they report a signal that most likely all were sent."""

_FOR_WATCHDOG = 0.5
"""Seconds in which the watchdog notices a rank that died: an error that follows from the death is not reported."""

_FOR_ANOTHER = 10.0
"""Seconds that a rank has to report and to abort the job, of several that failed at the same time."""


class Failure(LeapmpiError):
    """A defect of leapmpi or its libraries, reported in one sentence; the traceback is in a file."""

    exit_code = DEFECT_CODE


@contextmanager
def ends_the_job(watchdog: Watchdog) -> Iterator[None]:
    """Run the body on all ranks; a failure of one ends all of them.

    An error that all ranks raise in step (`World.on_all`) is passed on for an orderly end. Any other one is reported
    here with rank, host, phase, epoch and iteration; with several ranks MPI is then aborted. summary.json in the run
    folder, once there is one, then says that the run failed and why, and a traceback goes to failure-rank-R.txt beside
    it.
    """
    world, phases = watchdog.world, watchdog.phases
    try:
        yield
    except (LeapmpiError, KeyboardInterrupt) as error:
        # What users can do something about. If all ranks raise it, `leapmpi.cli` reports it once. A loss that is no
        # number, say, may come of a file that changed.
        if type(error) is LeapmpiError and (changed := watchdog.changed_input()):
            error, original = DataError(f"{error}; {changed}"), error
            error.agreed = original.agreed
        why = str(error) if isinstance(error, LeapmpiError) else "interrupted"
        status = INTERRUPTED if isinstance(error, Interrupted) else FAILED
        if getattr(error, "agreed", False) or world.size == 1:
            if world.rank == 0:
                record_failure_once(why, watchdog.folder, _facts(watchdog), status)
            raise error
        code = error.exit_code if isinstance(error, LeapmpiError) else INTERRUPTED_CODE
        _end_all(f"{why} ({world.name}, {phases.where()})", code, watchdog, status)
    except BaseException as error:
        # Memory that was refused, or a defect; code of users may also exit.
        found = _explain(error, watchdog)
        if world.size == 1:
            record_failure_once(str(found), watchdog.folder, _facts(watchdog))
            raise found from error
        _end_all(str(found), found.exit_code, watchdog)


def _end_all(why: str, code: int, watchdog: Watchdog, status: str = FAILED) -> None:
    """Report this rank's failure and abort the job.

    Of several ranks that fail at the same time one reports; the loss of another rank is reported by the watchdog.
    """
    watchdog.fail()
    time.sleep(_AFTER_RANK_0 if status == INTERRUPTED and watchdog.world.rank else _FOR_WATCHDOG)
    if watchdog.has_reported:
        watchdog.wait_for_the_end()
    # Ranks that refuse the same thing, in sampling say, agree on who reports it: its abort ends the others here.
    if watchdog.another_reports():
        time.sleep(_FOR_ANOTHER)
    watchdog.announce_failure()
    watchdog.clean_up_launcher(status == INTERRUPTED)
    report_failure(why, watchdog.folder, _facts(watchdog), status)
    abort(watchdog.world, code)


def _facts(watchdog: Watchdog) -> Facts:
    world, phases = watchdog.world, watchdog.phases
    place = {"phase": phases.current, "epoch": phases.epoch, "iteration": phases.iteration}
    return {"rank": world.rank, "host": world.host, **place}


def _explain(error: BaseException, watchdog: Watchdog) -> LeapmpiError:
    """Describe an error that is not a LeapmpiError."""
    world, where = watchdog.world, watchdog.phases.where()
    if is_lack_of_memory(error):
        return ResourceError(
            f"{world.name} ran out of memory in {where}{memory_limits()}; use a smaller batch, fan-out or hidden "
            "width, fewer ranks per node, or more nodes"
        )

    # Numbers that were checked at the start are wrong where a file changed since then.
    if changed := watchdog.changed_input():
        return DataError(f"{world.name} failed in {where}: {changed}")

    # The traceback goes to the run folder, where it can be written.
    kept = ""
    if watchdog.folder:
        path = watchdog.folder / failure_file(world.rank)
        with suppress(OSError):
            path.write_text(traceback.format_exc(), encoding="utf-8")
            kept = f" (traceback in {path})"
    # The first line: torch appends the calls inside its library.
    text = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return Failure(f"{world.name} failed in {where}: {text}{_place_of(error)}{kept}")


def _place_of(error: BaseException) -> str:
    """Describe the innermost line where `error` arose in code of neither leapmpi, Python nor an installed package.

    Such as a metric of the user's. Empty where there is none.
    """
    installed = [
        str(Path(__file__).parents[1]),
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    ]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *(f"{folder}{os.sep}" for folder in installed)))
    ]
    return f", at {Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name}" if own else ""
