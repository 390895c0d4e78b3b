"""Jobs for leapmpi commands, checked before they wait in a queue, and their submission."""

from __future__ import annotations

import argparse
import importlib
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from leapmpi.config.flags import config_from
from leapmpi.config.parser import parser_of
from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from leapmpi.errors import ConfigError, LaunchError, nearest, one_line
from leapmpi.runs.settings_of_run import settings_of_run
from leapmpi.tools.batch.schedulers import SCHEDULERS, Scheduler
from leapmpi.tools.batch.site import Job, Site

COMMANDS = ("train", "sweep", "bench", "evaluate")
"""Commands that a job may run: those of several ranks."""

_PLACEHOLDER = "\0dataset"

_PATIENCE = 120.0
"""Seconds to wait for the scheduler."""


def job_of(command: Sequence[str], site: Site, name: str = "leapmpi", *, data_exists: bool = True) -> Job:
    """Return the job that runs `leapmpi COMMAND` at `site`, with a run folder that a restart finds again.

    `data_exists`: the dataset must exist already; otherwise an earlier job may create it. Raises LeapmpiError for a
    command that could not start.
    """
    if not command or command[0] not in COMMANDS:
        given = command[0] if command else ""
        raise ConfigError(f"a job cannot run {given!r}; {nearest(given, COMMANDS)}")

    # Errors must show up now, not after hours in a queue: parse the command as the job will.
    arguments = _parsed(command)
    words = list(command)
    config = None
    if command[0] in ("train", "bench"):
        config = config_from(arguments, settings_of_run(arguments) if command[0] == "train" else None)
    if command[0] == "sweep":
        return _sweep_job(words, arguments, site, name, data_exists)
    data = arguments.data or (config.data if config else "")
    _check_data(data, site, data_exists)

    # A restarted job must find its run folder again.
    if command[0] == "train" and config is not None and not config.run.folder:
        words += ["--run", f"runs/{SCHEDULERS[site.scheduler].job.format(name=name)}"]
    words += _device(site, arguments, config)
    return Job(name, tuple(words), data=data, data_at=_position_of_data(command, arguments))


_STAGES_OF_TASKS = {"import": 2, "partition": 2}
"""Stages of the commands of leapmpi-prep that have shares, `data_prep/MEMORY.md`."""


def preparation_jobs(commands: Sequence[str], tasks: int, scheduler: Scheduler, name: str, about: str) -> list[Job]:
    """Return the jobs that run each of `commands` of leapmpi-prep, in the order in which they wait for each other.

    With several `tasks`, a job array of so many shares each of its stages, before the job that ends it. Raises
    ConfigError for a text that is no command, where a command has no shares, or the scheduler no job arrays.
    """
    found = []
    for text in commands:
        words = _words(text)
        plain = Job(f"{name}-prepare", words, program="leapmpi-prep", about=about)
        if tasks > 1:
            if words[0] not in _STAGES_OF_TASKS or any(each.partition("=")[0] == "--share" for each in words):
                known = " and ".join(_STAGES_OF_TASKS)
                raise ConfigError(f"--prepare-tasks: {text!r} has no shares to give; {known} have, without --share")
            if scheduler.task is None:
                raise ConfigError("--prepare-tasks: jobs of this scheduler have no arrays here; leave the flag out")
            shared = replace(plain, command=(*words, "--share", f"{scheduler.task}/{tasks}"), runs=tasks)
            found += [shared] * _STAGES_OF_TASKS[words[0]]
        found.append(plain)
    return found


def _words(text: str) -> tuple[str, ...]:
    """Split a command of leapmpi-prep as a shell does. Raises ConfigError where it has no command, or an open quote."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--prepare {text!r}: {str(error).lower()}; close the quotation marks") from None
    if not words or words[0] == "leapmpi-prep":
        raise ConfigError(f"--prepare {text!r}: give what follows leapmpi-prep, such as 'partition graph.h5 data'")
    return words


def _parsed(command: Sequence[str]) -> argparse.Namespace:
    module = importlib.import_module(f"leapmpi.cli.commands.{command[0]}")
    return parser_of("leapmpi", command[0], module).parse_strictly(command[1:])


def _sweep_job(words: list[str], arguments: argparse.Namespace, site: Site, name: str, data_exists: bool) -> Job:
    if arguments.index is not None or arguments.list:
        raise ConfigError("a job array numbers the runs of a sweep; omit --index and --list")
    sweep = read_sweep(arguments.file)
    shared = config_from(arguments, Config().assigned(sweep.base, str(sweep.path)))
    swept = any("data" in point for point in sweep.points)
    if not swept:
        _check_data(shared.data, site, data_exists)
    if (task := SCHEDULERS[site.scheduler].task) is None:
        raise ConfigError(f"a job of {site.scheduler} runs no sweep here; submit a train job for each of its runs")
    words += ["--index", task, *_device(site, arguments, shared)]
    return Job(name, tuple(words), data="" if swept else shared.data, runs=len(sweep.points))


def _device(site: Site, arguments: argparse.Namespace, config: Config | None) -> list[str]:
    """Return `--device cuda` for a site with GPUs: without one, a job fails at once instead of training on CPUs."""
    chosen = getattr(arguments, "run.device", None) or (config is not None and config.run.device != "auto")
    return [] if chosen or not site.gpus_per_node else ["--device", "cuda"]


def _check_data(data: str, site: Site, exists: bool) -> None:
    if not data:
        raise ConfigError("no dataset given; name its folder, as in leapmpi submit train data/")
    if not exists and not Path(data).exists():
        return
    from leapmpi.dataset.partitioned import open_dataset
    from leapmpi.plan.homes import rank_offsets

    rank_offsets(open_dataset(data, typed=True).offsets, max(site.ranks, site.prepare_ranks))


def _position_of_data(command: Sequence[str], arguments: argparse.Namespace) -> int | None:
    """Return the position of the dataset's folder in `command`; None if a TOML file names it."""
    for position, word in enumerate(command):
        if position and word == arguments.data:
            # An equal word may be the value of a flag: replace it and see whether the dataset changes.
            tried = [*command[:position], _PLACEHOLDER, *command[position + 1 :]]
            if _parsed(tried).data == _PLACEHOLDER:
                return position
    return None


def submit(script: str, scheduler: str = "slurm", after: str | None = None) -> str:
    """Submit `script` and return the job's number; with `after` it waits for the success of that job.

    Raises LaunchError if the scheduler's command is missing or refuses.
    """
    words = SCHEDULERS[scheduler]
    command = [*words.submit, *(each.format(after) for each in words.after if after is not None)]
    program = command[0]
    try:
        answer = subprocess.run(command, input=script, capture_output=True, text=True, timeout=_PATIENCE)
    except FileNotFoundError:
        raise LaunchError(f"no {program} on PATH; submit on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{program} did not answer within {_PATIENCE:.0f} s; see whether the job is queued before trying again"
        ) from None
    if answer.returncode:
        raise LaunchError(f"{program} refused the job: {one_line(answer.stderr) or f'exit code {answer.returncode}'}")
    # sbatch answers NUMBER, or NUMBER;CLUSTER if there are several clusters.
    return answer.stdout.strip().partition(";")[0]
