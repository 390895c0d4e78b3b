"""Batch scripts for Flux; not tried on a cluster."""

from __future__ import annotations

from leapmpi.tools.batch.shell import environment, launched, opening, quoted, words
from leapmpi.tools.batch.site import Job, Site, seconds_of

_START = """\
FLUX_BATCH_ID=$(flux getattr jobid)
echo "$(date -Is) job $FLUX_BATCH_ID\""""

_PASS_ON = """\
pass_on() {
    flux job killall --force --signal=SIGUSR2
}"""


def training_script(site: Site, job: Job) -> str:
    """Return the script of a job of ranks connected by MPI; `flux run` starts them through PMIx."""
    size = f"-N {site.nodes} -n {site.ranks} -c {site.cores_per_rank}"
    size += f" -g {site.gpus_per_node // site.ranks_per_node}" if site.gpus_per_node else ""
    command = " ".join([job.program, *(quoted(word, "$FLUX_") for word in job.command)])
    run = " ".join(["flux run -o pmi=pmix", size, *site.launcher_options])
    launch = launched(site, run, command, pass_on=_PASS_ON)
    return "\n\n".join([_head(site, job, [f"{size} --exclusive"]), environment(site), launch]) + "\n"


def preparation_script(site: Site, job: Job) -> str:
    """Return the script of a job of one process without MPI: data preparation."""
    options = [f"-N 1 -n 1 -c {site.cores_per_rank * site.ranks_per_node}"]
    return "\n\n".join([_head(site, job, options), environment(site), words(job.program, *job.command)]) + "\n"


def _head(site: Site, job: Job, options: list[str]) -> str:
    named = {"--bank": site.account, "--queue": site.partition}
    every = [f"--job-name={job.name}", "--output={{name}}-{{id}}.out", f"-t {seconds_of(site.time)}s", *options]
    every += [f"{flag}={value}" for flag, value in named.items() if value]
    return "\n".join([*opening(site, job), *(f"# flux: {option}" for option in every), "", _START])
