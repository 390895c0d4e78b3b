"""`leapmpi doctor`: which MPI, ranks, devices and versions a job would run with."""

from __future__ import annotations

import argparse

HELP = "show which MPI, devices and versions are in use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Look and report. Collective."""
    from leapmpi.doctor import doctor

    return doctor(arguments.json)
