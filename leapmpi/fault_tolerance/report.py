"""How a failure is told: one line on standard error, and the same in the run folder's summary; by one rank only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leapmpi.errors import Interrupted, LeapmpiError, one_line
from leapmpi.runs.run import FAILED, INTERRUPTED, Run
from leapmpi.runs.run_folder import record_failure


def report(sentence: str, label: str = LeapmpiError.label) -> None:
    """One whole line on standard error."""
    sys.stderr.write(f"leapmpi: {label}{one_line(sentence)}\n")
    sys.stderr.flush()


def report_failure(why: str, folder: list[Path], facts: dict[str, Any], status: str = FAILED) -> bool:
    """Report `why` and record it with `facts`, unless another rank has done so; returns whether this rank did.

    `folder` holds the run folder once there is one; `status` is FAILED or INTERRUPTED.
    """
    if record_failure_once(why, folder, facts, status) or not folder or Run(folder[0]).failure is None:
        report(why, Interrupted.label if status == INTERRUPTED else LeapmpiError.label)
        return True
    return False


def record_failure_once(why: str, folder: list[Path], facts: dict[str, Any], status: str = FAILED) -> bool:
    """Record in the run folder that the run failed; False where there is none or something is recorded already."""
    return bool(folder) and record_failure(folder[0], why, status, **facts)
