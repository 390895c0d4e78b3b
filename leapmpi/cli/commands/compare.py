"""`leapmpi compare`: runs side by side."""

from __future__ import annotations

import argparse

HELP = "print runs side by side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folders."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders or folders of runs; ratios are to the first"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, on one rank where there are several."""
    from leapmpi.comm.launcher import launched_rank
    from leapmpi.runs.compare import compare

    return compare(arguments.runs, arguments.json) if launched_rank() == 0 else 0
