"""Batch scripts for PBS (OpenPBS, PBS Professional); not tried on a cluster."""

from __future__ import annotations

from leapmpi.tools.batch.shell import clock, environment, launched, opening, quoted
from leapmpi.tools.batch.site import Job, Site, memory_of, seconds_of

_VARIABLES = "$PBS_"

_START = """\
cd "$PBS_O_WORKDIR" || exit
echo "$(date -Is) $PBS_JOBNAME $PBS_JOBID\""""


def training_script(site: Site, job: Job) -> str:
    """Return the script of a job of ranks connected by MPI. Their nodes are those of PBS's list."""
    cores = site.ranks_per_node * site.cores_per_rank
    chunk = [f"ncpus={cores}", f"mpiprocs={site.ranks_per_node}", f"ompthreads={site.cores_per_rank}"]
    chunk += [f"ngpus={site.gpus_per_node}"] if site.gpus_per_node else []
    options = [
        *_array(site, job),
        f"-l select={site.nodes}:{':'.join([*chunk, *_memory(site)])}",
        "-l place=scatter:excl",
    ]
    index = ["PBS_ARRAY_INDEX=${PBS_ARRAY_INDEX:-0}"] if job.runs else []
    command = " ".join([job.program, *(quoted(word, _VARIABLES) for word in job.command)])
    mpirun = ['mpirun --hostfile "$PBS_NODEFILE"', f"-n {site.ranks}", "--bind-to none", *site.launcher_options]
    launch = launched(site, " ".join(mpirun), command)
    return "\n\n".join([_head(site, job, options), *index, environment(site), launch]) + "\n"


def preparation_script(site: Site, job: Job) -> str:
    """Return the script of a job of one process without MPI: data preparation."""
    cores = site.cores_per_rank * site.ranks_per_node
    options = [*_array(site, job), f"-l select=1:{':'.join([f'ncpus={cores}', *_memory(site)])}"]
    command = " ".join([job.program, *(quoted(word, _VARIABLES) for word in job.command)])
    return "\n\n".join([_head(site, job, options), environment(site), command]) + "\n"


def _array(site: Site, job: Job) -> list[str]:
    return [f"-J 0-{job.runs - 1}%{site.array_limit}"] if job.runs > 1 else []


def _head(site: Site, job: Job, options: list[str]) -> str:
    named = {"-A": site.account, "-q": site.partition}
    every = [f"-N {job.name}", "-j oe", "-r y", f"-l walltime={clock(seconds_of(site.time))}", *options]
    every += [f"{flag} {value}" for flag, value in named.items() if value]
    return "\n".join([*opening(site, job), *(f"#PBS {option}" for option in every), "", _START])


def _memory(site: Site) -> list[str]:
    """Return the memory of a chunk: PBS writes 200gb for 200G."""
    number, unit = memory_of(site)
    return [f"mem={number}{unit.lower()}b"] if number else []
