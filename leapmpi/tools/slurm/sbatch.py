"""Submits scripts to Slurm."""

from __future__ import annotations

import subprocess

from leapmpi.errors import LaunchError, one_line

_PATIENCE = 120.0
"""Seconds to wait for sbatch."""


def submit(script: str, after: str | None = None) -> str:
    """Submit `script` and return the job's number; with `after` it waits until that job has succeeded.

    Raises LaunchError when there is no sbatch, or it refuses.
    """
    command = ["sbatch", "--parsable"]
    if after is not None:
        command += [f"--dependency=afterok:{after}", "--kill-on-invalid-dep=yes"]
    try:
        answer = subprocess.run(command, input=script, capture_output=True, text=True, timeout=_PATIENCE)
    except FileNotFoundError:
        raise LaunchError("no sbatch on PATH; submit on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise LaunchError(f"sbatch did not answer within {_PATIENCE:.0f} s; see squeue before trying again") from None
    if answer.returncode:
        raise LaunchError(f"sbatch refused the job: {one_line(answer.stderr) or f'exit code {answer.returncode}'}")
    # NUMBER, or NUMBER;CLUSTER where there are several clusters.
    return answer.stdout.strip().partition(";")[0]
