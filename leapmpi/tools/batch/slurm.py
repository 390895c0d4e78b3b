"""Batch scripts for Slurm: the text for sbatch from a site profile and a leapmpi command.

jobs/slurm/render writes the files in jobs/slurm with this module, so that each line has one source.
"""

from __future__ import annotations

import shlex

from leapmpi.tools.batch.shell import SIGNAL_RANKS, WAIT, opening, prepared, quoted
from leapmpi.tools.batch.site import Job, Site, memory_of

_VARIABLES = "$SLURM_"


def training_script(site: Site, job: Job) -> str:
    """Return the script of a job of ranks connected by MPI."""
    stage, unstage = _staging(site, job)
    sections = [_head(site, job), _environment(site), _signals(site), stage, _launch(site, job), unstage, _end(site)]
    return "\n\n".join(section for section in sections if section) + "\n"


def preparation_script(site: Site, job: Job) -> str:
    """Return the script of a job of one process without MPI: data preparation."""
    options = [f"--job-name={job.name}", _output(job), "--open-mode=append", *_array(site, job), f"--time={site.time}"]
    options += [f"--nodes=1 --ntasks=1 --cpus-per-task={site.cores_per_rank * site.ranks_per_node}"]
    options += _site_options(site)
    head = "\n".join([*opening(site, job), *(f"#SBATCH {option}" for option in options), "", _START])
    command = " ".join(quoted(word, _VARIABLES) for word in (job.program, *job.command))
    return "\n\n".join([head, _environment(site), command]) + "\n"


_START = """\
echo "$(date -Is) $SLURM_JOB_NAME $SLURM_JOB_ID on $SLURM_JOB_NODELIST, restart ${SLURM_RESTART_COUNT:-0}\""""

_LAST_STEPS = 30
"""Seconds before the time limit for the last lines of a script."""


def _signals(site: Site) -> str:
    patience = max(site.signal_before // 2, site.signal_before - _LAST_STEPS)
    pass_on, late = _PASS_ON_BY_SRUN if site.launcher == "srun" else _PASS_ON_TO_RANKS
    return f"""\
# Signals go on to the ranks: time is nearly up (USR2), or the job is cancelled or preempted (TERM).
launcher=
stopped=
killer=
{pass_on}
{late.format(patience=patience, hangs=_HANGS)}
trap 'if pass_on && [[ -z $stopped ]]; then kill_late & killer=$!; fi; stopped=yes' USR2
trap 'pass_on || exit 143' TERM"""


_HANGS = 30
"""Seconds for mpirun to end after its ranks: Open MPI's may hang when ranks end with an error."""

_PASS_ON_BY_SRUN = (
    """\
pass_on() {
    [[ -n $launcher ]] && kill -USR2 "$launcher" 2>/dev/null
}""",
    """\
# What has not ended {patience} s later is killed.
kill_late() {{ # `read` waits without a process of its own
    read -rt {patience} _ <> <(:) || kill -KILL "$launcher"
}}""",
)

_PASS_ON_TO_RANKS = (
    SIGNAL_RANKS,
    """\
# What has not ended {patience} s later is killed; so is an mpirun that hangs for {hangs} s after its ranks have ended.
kill_late() {{
    local left={patience} alone=0
    while ((left-- > 0 && alone < {hangs})); do
        read -rt 1 _ <> <(:) # waits without a process of its own
        if [[ -z $ranks || $(ranks_below "$launcher") ]]; then alone=0; else ((++alone)); fi
    done
    kill -KILL "$launcher"
}}""",
)


_DEAF = """\
# Slurm sends TERM to every process of a job that it cancels or preempts. Open MPI's mpirun and its daemons would kill
# the ranks a quarter of a second later. With TERM blocked they leave it to the ranks, which write a checkpoint and end.
deaf="env --block-signal=TERM"
$deaf true 2>/dev/null || deaf=
export PRTE_MCA_prte_launch_agent="${deaf:+$deaf }prted" OMPI_MCA_orte_launch_agent="${deaf:+$deaf }orted\""""


def _head(site: Site, job: Job) -> str:
    options = [
        f"--job-name={job.name}",
        _output(job),
        "--open-mode=append",
        f"--nodes={site.nodes} --ntasks={site.ranks} --ntasks-per-node={site.ranks_per_node} "
        f"--cpus-per-task={site.cores_per_rank}",
        *_array(site, job),
        f"--time={site.time}",
    ]

    lines = [*opening(site, job), *(f"#SBATCH {option}" for option in options)]

    if site.gpus_per_node:
        lines += [
            "# GPUs are given to the node, not to each task: bound to tasks (--gpus-per-task, --gpu-bind=single) they",
            "# are in separate cgroups, in which ranks of a node cannot open each other's device memory. Each rank",
            "# takes the GPU of its number on the node.",
            f"#SBATCH --gpus-per-node={site.gpus_per_node} --gpu-bind=none",
        ]
    lines += [f"#SBATCH {option}" for option in _site_options(site)]

    # A signal before the time limit leaves time for a checkpoint.
    lines += [
        f"# {site.signal_before} s before the time limit SIGUSR2 comes to this script (B:), which passes it on. Sent",
        "# to the job's steps instead, it would end the daemons by which mpirun reaches the other nodes.",
        f"#SBATCH --signal=B:USR2@{site.signal_before}",
        f"#SBATCH --{'requeue' if site.requeue else 'no-requeue'}",
        *_preparing_nodes(site),
    ]
    return "\n".join([*lines, "", _START])


def _output(job: Job) -> str:
    return f"--output={'%x-%A_%a.out' if job.runs else '%x-%j.out'}"


def _array(site: Site, job: Job) -> list[str]:
    return [f"--array=0-{job.runs - 1}%{site.array_limit}"] if job.runs else []


def _preparing_nodes(site: Site) -> list[str]:
    """Return the second part of a heterogeneous job; its ranks follow those of the first."""
    if not site.prepare_nodes:
        return []
    tasks = f"--ntasks={site.prepare_ranks} --ntasks-per-node={site.prepare_ranks_per_node}"
    options = [f"--nodes={site.prepare_nodes} {tasks} --cpus-per-task={site.prepare_cores_per_rank}"]
    options += [f"--time={site.time}", *_site_options(site), *site.prepare_sbatch]
    about = (
        "# A heterogeneous job: these nodes' ranks hold the dataset and prepare mini-batches for those of the others."
    )
    return [about, "#SBATCH hetjob", *(f"#SBATCH {option}" for option in options)]


def _site_options(site: Site) -> list[str]:
    number, unit = memory_of(site)
    memory = f"{number}{unit}" if number else site.memory_per_node and "0"
    named = {"account": site.account, "partition": site.partition, "qos": site.qos, "mem": memory}
    return [*(f"--{name}={value}" for name, value in named.items() if value), *site.sbatch]


def _environment(site: Site) -> str:
    # With preparing nodes the cores of a rank differ by role: the launch sets its threads.
    threads = [] if site.prepare_nodes else ["export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"]
    return "\n".join([*prepared(site), *threads])


def _staging(site: Site, job: Job) -> tuple[str, str]:
    """Return the lines that copy the dataset to local disks, and those that remove it; empty without staging."""
    if not site.stage or not job.data:
        return "", ""
    copy = f"""\
# Every node copies the dataset to its own disk. Copies left there by jobs that were cancelled go first.
copies={shlex.quote(site.stage)}/leapmpi-$USER
data=$copies.$SLURM_JOB_ID
on_every_node() {{
    srun --mpi=none --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -c "$@"
}}
on_every_node '
    running=$(squeue --noheader --user "$USER" --format %A) && for copy in "$0".*; do
        grep -qx "${{copy##*.}}" <<<"$running" || rm -rf "$copy"
    done
    rm -rf "$1" && cp -rL "$2" "$1"' "$copies" "$data" {shlex.quote(job.data)} || exit"""
    return copy, """on_every_node 'rm -rf "$0"' "$data\""""


def _launch(site: Site, job: Job) -> str:
    # Replace the dataset by its staged copy.
    words = [quoted(word, _VARIABLES) for word in job.command]
    if site.stage and job.data_at is not None:
        words[job.data_at] = '"$data"'
    elif site.stage and job.data:
        words += ["--set", 'data="$data"']
    command = " ".join([job.program, *words])

    # The launcher runs in the background, so that the script can react to signals.
    if site.launcher == "srun":
        note = "# One rank's failure ends the others too. srun does not take cores per task over from sbatch by itself."
        options = " ".join([f"--mpi={site.srun_mpi}", "--kill-on-bad-exit=1", *site.launcher_options])
        launch = f'srun {options} --cpus-per-task="$SLURM_CPUS_PER_TASK" \\\n    {command} &'
        if site.prepare_nodes:
            launch = _by_role(site, options, command)
    else:
        note = f"{_DEAF}\n\n# mpirun finds the job's nodes by itself. Unbound, the ranks of a node share its cores."
        options = " ".join(['-n "$SLURM_NTASKS"', "--bind-to none", *site.launcher_options])
        launch = f"$deaf mpirun {options} \\\n    {command} &"
    return f"""\
{note}
{launch}
launcher=$!

{WAIT}
[[ -n $killer ]] && kill "$killer" 2>/dev/null"""


def _by_role(site: Site, options: str, command: str) -> str:
    """Return one job step over both parts of a heterogeneous job; the ranks of the second prepare."""
    if "--prepare-ranks" not in command:
        command += f" --prepare-ranks {site.prepare_ranks}"
    parts = []
    for group, cores in enumerate((site.cores_per_rank, site.prepare_cores_per_rank)):
        parts.append(f"--het-group={group} --cpus-per-task={cores} env OMP_NUM_THREADS={cores} \\\n    {command}")
    return f"srun {options} {' : '.join(parts)} &"


def _end(site: Site) -> str:
    stopped_code = """\
# 75: unfinished, with a checkpoint. So is a job whose launcher crashed or was killed after the order to stop.
[[ $stopped && $code -gt 128 ]] && code=75"""
    if not site.requeue:
        return f"{stopped_code}\nexit $code  # after 75 the job goes on from there when it is submitted again"
    return f"""{stopped_code}

# Back into the queue, to go on from there, unless the job was cancelled or makes no progress.
job=$SLURM_JOB_ID
[[ -n ${{SLURM_ARRAY_JOB_ID:-}} ]] && job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
if [[ $code == 75 ]] &&
    [[ $(squeue --noheader --job "$job" --format %T) == RUNNING && ${{SLURM_RESTART_COUNT:-0}} -lt 1000 ]]; then
    scontrol requeue "$job"
fi
exit $code"""
