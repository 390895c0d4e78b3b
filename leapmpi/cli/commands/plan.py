"""`leapmpi plan`: predictions of the traffic and time of strategies on any number of ranks, without running them."""

from __future__ import annotations

import argparse
import json
import sys

from leapmpi.config.flags import OF_RUN_FOLDERS, add_dataset, add_settings, config_from
from leapmpi.config.parser import CommandParser
from leapmpi.config.program_imports import program_imports

HELP = "predict rows, bytes, memory and time on any number of ranks"


def add_arguments(parser: CommandParser) -> None:
    """Add the dataset, the ranks and strategies to predict, and all settings they share."""
    # The dataset, flags of plan, then all settings.
    add_dataset(parser)
    parser.add_argument(
        "--ranks",
        metavar="LIST",
        help="numbers of ranks, such as 2,4,8,16 (default: 2 and 4, if the dataset has as many parts, else 1)",
    )
    parser.add_argument(
        "--strategies",
        metavar="LIST",
        help="names with settings of the strategy section, such as pull,leap:remote=partial,leap:time-steps=N "
        "(default: those that --strategy auto compares, else leap,pull)",
    )
    parser.add_argument(
        "--link",
        metavar="RATE",
        help="predict seconds for links of a speed such as 10gbit, or of the speed that a run with --time-steps "
        "measured found (its folder); default: as leapmpi doctor --measure found them here, else 8gbit",
    )
    parser.add_argument("--iterations", type=int, default=4, metavar="N", help="iterations of an epoch to predict")
    parser.add_argument(
        "--compare", metavar="RUN", help="compare predictions with the counted rows and bytes of a finished run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_settings(parser, without=("strategy.name", *OF_RUN_FOLDERS))


def run(arguments: argparse.Namespace) -> int:
    """Predict and print, on one rank where there are several."""
    config = config_from(arguments)
    from leapmpi.comm.launcher import launched_rank

    if launched_rank():
        return 0

    # Beside a finished run, or for numbers of ranks.
    from leapmpi.runs.text_tables import forecast_comparison, forecast_table

    with program_imports():
        from leapmpi.tools import forecast

    if arguments.compare:
        outcome = forecast.compare(config, arguments.compare, arguments.iterations)
        text = forecast_comparison(outcome)
    else:
        outcome = forecast.plan(config, arguments.ranks, arguments.strategies, arguments.link, arguments.iterations)
        text = forecast_table(outcome)
    sys.stdout.write((json.dumps(outcome, indent=1) if arguments.json else text) + "\n")
    return 0
