"""Pieces of batch scripts that schedulers share: the environment, and ranks that are stopped before the time is up."""

from __future__ import annotations

import shlex

from leapmpi.tools.batch.site import Job, Site, seconds_of

SIGNAL_RANKS = """\
# Open MPI's mpirun would pass them on too, but may crash or hang when it does. One rank that hears is enough.
ranks_below() {
    local each
    for each in $(pgrep -P "$1"); do
        if grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$each/environ"; then echo "$each"; else ranks_below "$each"; fi
    done
}
pass_on() {
    [[ -n $launcher ]] || return
    ranks=$(ranks_below "$launcher") # none where it is not Open MPI's
    kill -USR2 ${ranks:-"$launcher"} 2>/dev/null
}"""
"""Definition of `pass_on`, which sends SIGUSR2 to the ranks below `$launcher`, an mpirun, on this node."""

WAIT = """\
# A signal ends a wait early, not the ranks.
while kill -0 "$launcher" 2>/dev/null; do
    wait "$launcher"
done
wait "$launcher"
code=$?"""
"""Lines that wait for the launcher in the background, and keep its exit code."""


def clock(seconds: int) -> str:
    """Write seconds as hours:minutes:seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def quoted(word: str, variables: str) -> str:
    """Quote a word for bash, keeping the variables whose names begin with `variables`, such as $PBS_."""
    return f'"{word}"' if variables in word and '"' not in word else shlex.quote(word)


def words(*each: str) -> str:
    """Quote the words of a command for bash."""
    return " ".join(map(shlex.quote, each))


def opening(site: Site, job: Job) -> list[str]:
    """Return the first lines of a script: its interpreter and its comment."""
    # On some clusters only a login shell knows the command 'module'.
    shell = "#!/bin/bash -l" if site.modules else "#!/bin/bash"
    return [shell, *(f"# {line}".rstrip() for line in job.about.splitlines()), *["#"] * bool(job.about)]


def prepared(site: Site) -> list[str]:
    """Return the lines that load modules and the virtual environment."""
    lines = ["# Environment."]
    if site.modules:
        lines += ["module purge", *(f"module load {shlex.quote(module)}" for module in site.modules)]
    if site.venv:
        lines.append(f"source {shlex.quote(site.venv + '/bin/activate')}")
    return [*lines, *site.commands]


def environment(site: Site) -> str:
    """Return these lines, and the number of threads of a rank."""
    return "\n".join([*prepared(site), f"export OMP_NUM_THREADS={site.cores_per_rank}"])


def launched(site: Site, launcher: str, command: str, pass_on: str = SIGNAL_RANKS) -> str:
    """Return the lines that run `command` under `launcher`, and request a checkpoint before the time is up.

    pass_on: the definition of the shell function that sends SIGUSR2 to the ranks.
    """
    left = seconds_of(site.time) - site.signal_before
    return f"""\
{launcher} \\
    {command} &
launcher=$!

# {site.signal_before} s before the time limit, and when the job is cancelled, the ranks write a checkpoint and end.
{pass_on}
trap pass_on TERM USR2
{{ read -rt {left} _ <> <(:) || kill -USR2 $$; }} & # waits without a process of its own
timer=$!

{WAIT}
kill "$timer" 2>/dev/null
exit $code  # after 75 it goes on from its checkpoint, when it is submitted again with the same --run folder"""
