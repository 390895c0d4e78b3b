"""`leapmpi bench`: several strategies timed in one job."""

from __future__ import annotations

import argparse
import json
import sys

from leapmpi.config.flags import OF_RUN_FOLDERS, add_dataset, add_settings, config_from
from leapmpi.config.parser import CommandParser
from leapmpi.config.program_imports import program_imports
from leapmpi.errors import ConfigError

HELP = "time several strategies in one job, on the same batches"


def add_arguments(parser: CommandParser) -> None:
    """Add the dataset, the strategies, and all settings they share."""
    add_dataset(parser)
    parser.add_argument(
        "--strategies",
        default="pull,leap",
        metavar="LIST",
        help="names with settings of the strategy section, such as pull,leap,leap:time-steps=N:remote=raw; "
        "ratios are to the first",
    )
    parser.add_argument(
        "--prices",
        metavar="A[,B]",
        help="hourly price of a computing rank, and of one that only prepares (--prepare-ranks); prints the cost "
        "of an epoch",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_settings(parser, without=("strategy.name", *OF_RUN_FOLDERS))


def prices(text: str) -> tuple[float, float]:
    """Parse '3' or '3,0.4' as hourly prices of a computing rank, and of a preparing one. Raises ConfigError."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in (1, 2) or not all(0 <= each < float("inf") for each in found):
        raise ConfigError(f"--prices {text}: give one price of an hour of a rank, or two, as in 3 or 3,0.4")
    return found[0], found[-1]


def run(arguments: argparse.Namespace) -> int:
    """Train with each strategy in turn, epoch by epoch, and print the medians of warm epochs. Collective."""
    config = config_from(arguments)
    if arguments.json:
        # Only the list may reach standard output.
        config = config.replaced({"run.log_level": "warning"})
    from leapmpi.comm.world import job_rank
    from leapmpi.runs.text_tables import bench_table

    with program_imports():
        from leapmpi.tools.bench_job import bench

    rows = bench(config, arguments.strategies, prices=prices(arguments.prices) if arguments.prices else None)
    if job_rank() == 0:
        sys.stdout.write((json.dumps(rows, indent=1) if arguments.json else bench_table(rows)) + "\n")
        sys.stdout.flush()
    return 0
