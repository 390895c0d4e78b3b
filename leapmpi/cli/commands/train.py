"""`leapmpi train`."""

from __future__ import annotations

import argparse
from pathlib import Path

from leapmpi.config.flags import add_dataset, add_settings, config_from, given, parse_assignment
from leapmpi.config.parser import CommandParser
from leapmpi.config.schema import Config
from leapmpi.runs.file_names import CONFIG
from leapmpi.runs.run import load_run

HELP = "train a model on a partitioned dataset"


def add_arguments(parser: CommandParser) -> None:
    """The dataset and all settings."""
    add_dataset(parser)
    add_settings(parser)
    parser.add_argument(
        "--seeds",
        metavar="N,N",
        help="train one model for each seed of weights and dropout, in one job, and print mean and deviation of their "
        "scores",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train. Collective."""
    config = config_from(arguments, _settings_of_run(arguments))
    from leapmpi.training.run_training import train

    train(config)
    return 0


def _settings_of_run(arguments: argparse.Namespace) -> Config | None:
    """Without DATA on the command line or in a file: the settings of the run in the folder that --run names, if any."""
    folder = given(arguments).get("run.folder")
    named = {parse_assignment(text)[0] for text in arguments.set}
    if arguments.data is not None or arguments.config is not None or "data" in named or not folder:
        return None
    if not (Path(folder) / CONFIG).exists():
        return None
    # What says how that start began says nothing about this one.
    return load_run(folder).config.replaced({"run.overwrite": False, "run.replay": ""})
