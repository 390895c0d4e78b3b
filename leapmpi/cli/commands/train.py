"""`leapmpi train`."""

from __future__ import annotations

import argparse

from leapmpi.config.flags import add_dataset, add_settings, config_from
from leapmpi.config.parser import CommandParser
from leapmpi.config.program_imports import program_imports
from leapmpi.runs.settings_of_run import settings_of_run

HELP = "train a model on a partitioned dataset"


def add_arguments(parser: CommandParser) -> None:
    """Add the dataset and all settings."""
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
    config = config_from(arguments, settings_of_run(arguments))
    with program_imports():
        from leapmpi.job.run_training import train

    train(config)
    return 0
