"""`leapmpi-prep report PATH`: one HTML page about a graph file or a dataset, before anything is trained."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "write a page about a graph file or a dataset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph or dataset, the page, and figures to save beside it."""
    parser.add_argument("path", type=Path, help="graph file or dataset folder")
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE.html", help="the page")
    for kind in ("png", "pdf"):
        what = f"write this figure of the page (or all) as {kind.upper()} beside it, too; needs matplotlib"
        parser.add_argument(f"--{kind}", action="append", default=[], metavar="FIGURE", help=what)
    most = "most memory to use, such as 4G; by default half of what is available"
    parser.add_argument("--max-mem", metavar="SIZE", help=most)


def run(arguments: argparse.Namespace) -> int:
    """Examine, and write the page."""
    from data_prep.commands.check import open_any
    from data_prep.progress import Steps
    from data_prep.workspace import memory_budget, require
    from leapmpi.report.dataset_health import BYTES_PER_VERTEX, class_names, health
    from leapmpi.report.page import figures_of, write_page
    from leapmpi.report.paper_figures import write_figures
    from leapmpi.report.sections.run_report import dataset_page

    found, out = open_any(arguments.path), Path(arguments.out)
    vertices = int(found.vertices)
    advice = "allow more, or use a machine with more"
    # Before the work, as a page of a large graph takes minutes.
    require(memory_budget(arguments.max_mem), BYTES_PER_VERTEX * vertices, f"{arguments.path}: a report", advice)
    with Steps().step("report") as progress:
        progress.start(found.edges, "edges")
        text, sections = dataset_page(
            str(arguments.path), health(found, progress.advance, arguments.path), class_names(found)
        )
    figures = figures_of(sections)
    for kind in ("png", "pdf"):
        for path in write_figures(figures, getattr(arguments, kind), kind, out) if getattr(arguments, kind) else ():
            print(path)
    write_page(out, text)
    print(out)
    return 0
