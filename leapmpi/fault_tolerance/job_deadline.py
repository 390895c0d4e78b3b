"""When Slurm will end the batch job that this process belongs to."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping

_PATIENCE = 10.0
"""Seconds to wait for squeue."""


def job_end(environment: Mapping[str, str] = os.environ) -> float | None:
    """The end of the Slurm job in seconds since 1970, None outside of Slurm or where there is no limit.

    From $SLURM_JOB_END_TIME where Slurm sets it, else from squeue. Starts a process, so call it before MPI runs.
    """
    # Newer versions of Slurm set the end.
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdigit() and int(end) > 0:
        return float(end)

    # With others, squeue says how much time is left.
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        return None
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, env=dict(environment))
    except (OSError, subprocess.SubprocessError):
        return None
    left = seconds_of(answer.stdout.strip())
    return None if left is None else time.time() + left


def seconds_of(text: str) -> float | None:
    """Seconds from Slurm's [days-][[hours:]minutes:]seconds; None for UNLIMITED and other words."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return float(86400 * int(days or 0) + seconds)
