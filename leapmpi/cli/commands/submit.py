"""`leapmpi submit`: a command of leapmpi as a job of Slurm, PBS, Flux or Kubernetes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from leapmpi.config.flags import add_flag, given
from leapmpi.config.parser import number_between
from leapmpi.errors import ConfigError

HELP = "show a command as a batch script or manifest; --yes submits it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the site, flags in place of values of its profile, and the command."""
    from leapmpi.tools.batch.site import scalars

    # Flags of submit, then values of the profile, then the words of the command.
    parser.add_argument("--site", metavar="SITE.toml", help="the site's profile; see jobs/slurm/sites")
    parser.add_argument("--yes", action="store_true", help="submit the script")
    parser.add_argument("--name", default="leapmpi", help="name of the job")
    parser.add_argument(
        "--prepare", metavar="COMMAND", action="append", default=[], help=(
            "run 'leapmpi-prep COMMAND' in a separate job first, such as 'partition graph.h5 data --parts 8'; "
            "the main job starts when it has succeeded; may be repeated, and runs in this order"
        ),
    )  # fmt: skip
    tasks = "share each --prepare command among a job array of N tasks, for every stage that has shares"
    parser.add_argument("--prepare-tasks", type=number_between(1), default=1, metavar="N", help=tasks)
    group = parser.add_argument_group("values that replace those of the profile")
    for setting in scalars():
        add_flag(group, setting)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="train, sweep, bench or evaluate, and its flags"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the scripts; with --yes hand them to the scheduler."""
    from leapmpi.tools.batch.job import job_of, preparation_jobs, submit
    from leapmpi.tools.batch.schedulers import SCHEDULERS
    from leapmpi.tools.batch.site import read_site

    # The job, and before it the preparation of its dataset.
    if not arguments.name.isprintable() or any(letter in arguments.name for letter in " /%$'\"\\"):
        raise ConfigError(f"--name {arguments.name!r}: give a name without blanks, slashes, quotes, % and $")
    site = read_site(arguments.site, given(arguments))
    # What a container sees is in a volume.
    there = not arguments.prepare and site.scheduler != "kubernetes"
    job = job_of(arguments.command, site, arguments.name, data_exists=there)
    about = f"Made by: {arguments.command_line}"
    scheduler = SCHEDULERS[site.scheduler]
    scripts = [scheduler.training_script(site, replace(job, about=about))]
    if arguments.prepare:
        if (script_of := scheduler.preparation_script) is None:
            raise ConfigError(f"--prepare: jobs of {site.scheduler} do not wait for others; prepare the dataset first")
        before = preparation_jobs(arguments.prepare, arguments.prepare_tasks, scheduler, arguments.name, about)
        scripts[:0] = [script_of(site, each) for each in before]
    elif arguments.prepare_tasks > 1:
        raise ConfigError("--prepare-tasks shares the commands of --prepare; name one")

    # Show the scripts, and submit them only if that was confirmed.
    sys.stdout.write("\n".join(scripts))
    sys.stdout.flush()
    if not arguments.yes:
        sys.stderr.write("leapmpi: not submitted; --yes submits it\n")
        return 0
    number = None
    for script in scripts:
        number = submit(script, site.scheduler, number)
        sys.stderr.write(f"leapmpi: submitted as job {number}\n")
    return 0
