"""`leapmpi export`: weights and numbers of a run in the formats of other tools."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from leapmpi.config.completion import offer
from leapmpi.registry import Member, Registry

HELP = "write a run's weights or numbers for other tools"


class _Formats(argparse.Action):
    """--formats: list the formats and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from leapmpi.tools.export.export_run import KINDS

        for name in KINDS.names():
            print(f"{name:<16}{KINDS.load(name).summary}")
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folder, the place, the format."""
    add = parser.add_argument
    add("folder", metavar="RUN", help="run folder of a finished or running run")
    add("out", nargs="?", type=Path, metavar="OUT", help="file or folder to write (default in RUN/exports, replaced)")
    to = add("--to", metavar="FORMAT", help="format, if the name of OUT does not show it; --formats lists all")
    offer(to, Registry("export format", "leapmpi.tools.export.kinds", Member).names())
    add("--formats", action=_Formats, nargs=0, help="list the formats, and exit")
    add(
        "--weights",
        choices=("best", "final"),
        default="best",
        help="weights of the best or the final epoch, for safetensors",
    )
    add("--model", type=int, metavar="K", help="model K of several")
    add("--overwrite", action="store_true", help="replace OUT if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Write, on one rank where there are several. Raises LeapmpiError for the first fault."""
    from leapmpi.cli.commands.evaluate import chosen_runs
    from leapmpi.comm.launcher import launched_rank
    from leapmpi.runs.run import load_run
    from leapmpi.tools.export.export_run import ExportSource, export, kind_of

    # Under mpirun every rank runs the command, but one file is wanted.
    if launched_rank() != 0:
        return 0
    kind = kind_of(arguments.to, arguments.out)
    found = load_run(arguments.folder)
    if arguments.model is not None:
        found = chosen_runs(found, arguments.model)[arguments.model]
    out = export(ExportSource(found, arguments.weights), kind, arguments.out, arguments.overwrite)
    print(f"{kind}: {out}")
    return 0
