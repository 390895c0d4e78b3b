"""`leapmpi sweep`: the runs of a sweep file, one after another or one by its number."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TextIO

from leapmpi.config.flags import add_dataset, add_settings, config_from, given
from leapmpi.config.parser import CommandParser
from leapmpi.config.program_imports import program_imports
from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import Sweep, read_sweep
from leapmpi.errors import ConfigError, Interrupted, LeapmpiError, one_line
from leapmpi.runs.run import Run

HELP = "train all runs of a sweep file, or one of them"

_WITHOUT = ("run.folder", "run.overwrite")


def add_arguments(parser: CommandParser) -> None:
    """Add the file, the runs, and all settings the runs share."""
    parser.add_argument("file", metavar="SWEEP.toml", help="a config with lists of values under [sweep]")
    add_dataset(parser)
    parser.add_argument("--index", type=int, metavar="I", help="train run I alone; job arrays count this way")
    parser.add_argument("--list", action="store_true", help="print the runs and train none")
    parser.add_argument("--run", metavar="FOLDER", help="folder of the runs (default runs/NAME OF THE FILE)")
    add_settings(parser, without=_WITHOUT)


def run(arguments: argparse.Namespace) -> int:
    """Train the chosen runs; finished ones are resumed for more epochs, else skipped. Collective."""
    # The runs, each with its config.
    sweep = read_sweep(arguments.file)
    shared = _shared(arguments, sweep)
    folder = Path(arguments.run or shared.run.folder or Path("runs", sweep.path.stem))
    chosen = range(len(sweep.points)) if arguments.index is None else (arguments.index,)
    configs = {index: sweep.config(index, shared, folder) for index in chosen}
    if arguments.list:
        return _list(configs)
    if not all(config.data for config in configs.values()):
        raise ConfigError(f"no dataset given; name its folder, as in leapmpi sweep {sweep.path} data/")

    # One after another; the worst exit code is that of the sweep.
    code = max(_train(index, config) for index, config in configs.items())
    if len(configs) > 1:
        _compare(configs)
    return code


def _shared(arguments: argparse.Namespace, sweep: Sweep) -> Config:
    """Build the config that all runs share: the file, --config, --set, flags. Raises ConfigError for a swept key."""
    swept = {key for point in sweep.points for key in point}
    assigned = {text.partition("=")[0].strip() for text in arguments.set}
    named = {"data"} if arguments.data else set()
    for key in swept & {*given(arguments), *assigned, *named}:
        raise ConfigError(f"{key} is swept by {sweep.path}; give no other value for it")
    return config_from(arguments, Config().assigned(sweep.base, str(sweep.path)))


def _list(configs: dict[int, Config]) -> int:
    """Print number and folder of each run, on one rank."""
    from leapmpi.comm.launcher import launched_rank

    if launched_rank() == 0:
        for index, config in configs.items():
            sys.stdout.write(f"{index}\t{config.run.folder}\n")
    return 0


def _train(index: int, config: Config) -> int:
    """Train one run and return its exit code. Raises errors that end the sweep."""
    with program_imports():
        from leapmpi.job.run_training import train

    folder = Path(config.run.folder)
    if Run(folder).finished:
        from leapmpi.runs.checkpoint_folder import CheckpointFolder

        done = CheckpointFolder(folder).end()
        if not 0 < done < config.train.epochs:
            _print_once(f"run {index}: {folder} is finished")
            return 0
        _print_once(f"run {index}: {folder} resumes after epoch {done}")
    else:
        _print_once(f"run {index}: {folder}")
    try:
        train(config)
    except LeapmpiError as error:
        # A stop request ends the sweep; a run that cannot be trained does not.
        if not error.agreed or isinstance(error, Interrupted):
            raise
        _print_once(f"leapmpi: error: run {index}: {one_line(error)}", sys.stderr)
        return error.exit_code
    return 0


def _compare(configs: dict[int, Config]) -> None:
    """Print the finished runs side by side, on rank 0."""
    from leapmpi.comm.world import job_rank
    from leapmpi.runs.compare import compare

    finished = [config.run.folder for config in configs.values() if Run(Path(config.run.folder)).finished]
    if job_rank() == 0 and finished:
        compare(finished, as_json=False)
        sys.stdout.flush()


def _print_once(text: str, file: TextIO | None = None) -> None:
    """Print a line to `file`, standard output if None, on rank 0."""
    from leapmpi.comm.world import job_rank

    if job_rank() == 0:
        print(text, file=file, flush=True)
