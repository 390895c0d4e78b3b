"""`leapmpi report`: one HTML page about runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.config.program_imports import program_imports
from leapmpi.errors import DataError, LeapmpiError, one_line

if TYPE_CHECKING:
    from leapmpi.report.run_data import RunData

HELP = "write a page about runs: results, time, bytes, advice"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Run folders, their dataset, and what is written."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs or folders of runs; speed-ups are to the first")
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="dataset folder of the runs: examine it whatever its size, and predict rows, bytes and memory",
    )
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE.html", help="the page")
    add_figures(parser)


def add_figures(parser: argparse.ArgumentParser) -> None:
    """Add the flags for figures of the page in separate files."""
    for kind in ("png", "pdf", "svg"):
        parser.add_argument(
            f"--{kind}",
            action="append",
            default=[],
            metavar="FIGURE",
            help=f"write this figure of the page (or all) as {kind.upper()} beside it, too; needs matplotlib",
        )


def run(arguments: argparse.Namespace) -> int:
    """Write the page, on one rank where there are several."""
    from leapmpi.comm.launcher import launched_rank

    # Under mpirun every rank runs the command, but one page is wanted.
    if launched_rank():
        return 0
    from leapmpi.report.page import figures_of, write_page
    from leapmpi.report.paper_figures import write_figures
    from leapmpi.report.run_data import read_runs
    from leapmpi.report.sections.run_report import run_page, run_sections
    from leapmpi.runs.run import run_folders

    (runs, left_out), out = read_runs(run_folders(arguments.runs)), Path(arguments.out)
    sys.stderr.writelines(f"leapmpi: left out: {one_line(each)}\n" for each in left_out)
    health, forecasts, names = _of_dataset(arguments.data, runs) if arguments.data else _found(runs)
    sections = run_sections(runs, health, forecasts, names)
    figures = figures_of(sections)
    written = [
        path
        for kind in ("png", "pdf", "svg")
        if (names := getattr(arguments, kind))
        for path in write_figures(figures, names, kind, out)
    ]
    write_page(out, run_page(runs, sections))
    sys.stdout.writelines(f"{path}\n" for path in (*written, out))
    return 0


def _found(runs: Sequence[RunData]) -> tuple[Mapping[str, Any] | None, dict[str, dict[str, Any]], Sequence[str]]:
    """Return what is found about the dataset of the runs without forecasts."""
    from leapmpi.report.sections.run_report import dataset_of

    found, names = dataset_of(runs)
    return found, {}, names


def _of_dataset(
    data: str, runs: Sequence[RunData]
) -> tuple[Mapping[str, Any], dict[str, dict[str, Any]], Sequence[str]]:
    """Collect the health of the dataset, forecasts by run, and names of its classes. Raises DataError."""
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import open_dataset
    from leapmpi.report.dataset_health import class_names, health

    dataset = open_dataset(data, typed=True)
    for each in runs:
        if each.ended.get("graph_uuid", dataset.graph_uuid) != dataset.graph_uuid:
            raise DataError(f"{data} holds another graph than {each.run.path} was trained on; give its own with --data")
    found, forecasts = health(dataset), {}
    with program_imports():
        from leapmpi.tools import forecast
    for each in runs:
        try:
            # A run that cannot be forecast still has its place on the page.
            forecasts[each.label] = forecast.compare(Config().replaced({"data": data}), str(each.run.path))
        except LeapmpiError as error:
            forecasts[each.label] = {"why": f"nothing is predicted: {error}"}
    return found, forecasts, class_names(dataset)
