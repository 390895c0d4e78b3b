"""`leapmpi doctor`: the hardware and software a job would run with, and problems with them."""

from __future__ import annotations

import argparse
import sys

from leapmpi.config.program_imports import program_imports

HELP = "check the environment that a job would have, and report problems"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders to examine, and the form of the output."""
    parser.add_argument("--data", metavar="DATA", help="also examine this dataset's folder")
    parser.add_argument("--run", metavar="FOLDER", help="also examine this run folder")
    parser.add_argument(
        "--clean", action="store_true", help="only remove files that killed jobs of leapmpi left on this machine"
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure rates for the automatic choices of jobs with as many ranks, and store them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Examine and report; returns 1 where there is a problem. Collective."""
    if arguments.clean:
        from leapmpi.system.stale_files import clean

        sys.stdout.writelines([f"removed {each}\n" for each in clean()] or ["nothing to remove\n"])
        return 0

    with program_imports():
        from leapmpi.tools.doctor.examination import doctor

    return doctor(arguments.json, arguments.data, arguments.run, arguments.measure)
