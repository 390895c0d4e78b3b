"""`leapmpi-prep partition GRAPH FOLDER`: cut a graph file into parts and write them as a dataset."""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

from data_prep.partitioners import METHODS

HELP = "cut a graph file into parts: a dataset for training on up to that many ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("graph", type=Path, help="graph file, from leapmpi-prep import or synth")
    parser.add_argument("folder", type=Path, help="folder for the dataset; made here")
    parser.add_argument(
        "--parts", type=int, required=True, help="number of parts: the most ranks that can share the work"
    )
    methods = f"how to cut: {', '.join(METHODS.names())}; see data_prep/README.md"
    parser.add_argument("--method", default="metis", help=methods)
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same parts")
    largest = "largest part / mean that is allowed, of vertices and of training vertices"
    parser.add_argument("--tolerance", type=float, default=1.05, metavar="X", help=largest)
    parser.add_argument("--overwrite", action="store_true", help="replace a dataset that stands in the folder")


def run(arguments: argparse.Namespace) -> int:
    """Verify the graph, cut it, write the dataset, print the table."""
    from data_prep.cut import cut
    from leapmpi.dataset.verify import verify_graph
    from leapmpi.dataset.writing import check_folder, write_dataset

    # Refuse what can be refused before the work.
    check_folder(arguments.folder, arguments.overwrite)
    METHODS.load(arguments.method)
    clock = [time.perf_counter()]
    graph = verify_graph(arguments.graph)
    clock.append(time.perf_counter())
    result = cut(graph, arguments.parts, arguments.method, arguments.seed, tolerance=arguments.tolerance)
    clock.append(time.perf_counter())
    write_dataset(
        arguments.folder,
        graph,
        result.assignment,
        arguments.parts,
        method=arguments.method,
        figures=result.figures(),
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        command=getattr(arguments, "command_line", ""),
    )
    clock.append(time.perf_counter())
    print(_table(arguments, result, [b - a for a, b in pairwise(clock)]))
    return 0


def _table(arguments: argparse.Namespace, result, seconds: list[float]) -> str:
    columns = (result.vertices, result.training, result.edges, result.edges_cut)
    rows = [f"{'part':>6}{'vertices':>14}{'training':>14}{'edges':>16}{'edges cut':>16}"]
    rows += ["{:>6}{:>14,}{:>14,}{:>16,}{:>16,}".format(p, *row) for p, row in enumerate(zip(*columns, strict=True))]
    rows += ["{:>6}{:>14,}{:>14,}{:>16,}{:>16,}".format("all", *(column.sum() for column in columns))]
    figures = result.figures()
    size = sum(file.stat().st_size for file in arguments.folder.iterdir())
    said = [
        ("method", f"{arguments.method}, seed {arguments.seed}"),
        ("edge cut", f"{figures['edge_cut']:,} edges lead to another part, {figures['edge_cut_share']:.2%} of all"),
        (
            "largest / mean",
            "vertices {vertex_balance:.3f}, training {training_balance:.3f}, edges {edge_balance:.3f}".format(
                **figures
            ),
        ),
        ("seconds", "verify {:.1f}, cut {:.1f}, write {:.1f}".format(*seconds)),
        ("size", f"{size:,} bytes in {arguments.folder}"),
    ]
    return "\n".join(rows + [f"  {name:<16}{text}" for name, text in said])
