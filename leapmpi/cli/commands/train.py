"""`leapmpi train`."""

from __future__ import annotations

import argparse

from leapmpi.config.flags import add_dataset, add_settings, config_from
from leapmpi.config.parser import CommandParser

HELP = "train a model on a partitioned dataset"


def add_arguments(parser: CommandParser) -> None:
    """The dataset and all settings."""
    add_dataset(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train. Collective."""
    config = config_from(arguments)
    from leapmpi.training.run_training import train

    train(config)
    return 0
