"""The schedulers that `leapmpi submit` writes for: their scripts, their submission, and how each names a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leapmpi.tools.batch import flux, kubernetes, pbs, slurm
from leapmpi.tools.batch.site import Job, Site


@dataclass(frozen=True)
class Scheduler:
    """A scheduler.

    training_script, preparation_script: texts of a job of ranks, and of one process; the latter None where no job can
    wait for another. submit: the command that takes a script on its standard input. after: its words with which a job
    waits for the success of job {}. job, task: what names a job, and a task of an array, within its script.
    """

    training_script: Callable[[Site, Job], str]
    preparation_script: Callable[[Site, Job], str] | None
    submit: tuple[str, ...]
    after: tuple[str, ...]
    job: str
    task: str | None


SCHEDULERS = {
    "slurm": Scheduler(
        slurm.training_script,
        slurm.preparation_script,
        ("sbatch", "--parsable"),
        ("--dependency=afterok:{}", "--kill-on-invalid-dep=yes"),
        "$SLURM_JOB_NAME-$SLURM_JOB_ID",
        "$SLURM_ARRAY_TASK_ID",
    ),
    "pbs": Scheduler(
        pbs.training_script,
        pbs.preparation_script,
        ("qsub",),
        ("-W", "depend=afterok:{}"),
        "$PBS_JOBNAME-$PBS_JOBID",
        "$PBS_ARRAY_INDEX",
    ),
    "flux": Scheduler(
        flux.training_script,
        flux.preparation_script,
        ("flux", "batch"),
        ("--dependency=afterok:{}",),
        "{name}-$FLUX_BATCH_ID",
        None,
    ),
    "kubernetes": Scheduler(kubernetes.manifest, None, ("kubectl", "create", "-f", "-"), (), "{name}", None),
}
