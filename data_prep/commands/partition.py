"""`leapmpi-prep partition GRAPH FOLDER`: cut a graph file into parts and write them as a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.commands.report_flags import add_report_flags, reported_training
from data_prep.partitioning.methods import METHODS
from leapmpi.config.parser import number_between
from leapmpi.errors import ConfigError

if TYPE_CHECKING:
    from data_prep.partitioning.partition_graph import Partition
    from data_prep.partitioning.quality_report import CutReport
    from data_prep.progress import Progress
    from leapmpi.dataset.graph import Graph

BYTES_PER_VERTEX = 16  # part, new number and ordered original id
_LARGEST_BLOCK = 64 * 2**20
_BLOCKS_IN_MEMORY = 32

HELP = "cut a graph file into parts: a dataset for training on up to that many ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("graph", type=Path, help="graph file, from leapmpi-prep import or synth")
    parser.add_argument("folder", type=Path, help="folder for the dataset; made here")
    parser.add_argument("--parts", type=int, help="number of parts: the most ranks that can share the work")
    levels = "instead of --parts: parts within groups, such as 4x16 for 16 on each of 4 nodes"
    parser.add_argument("--hierarchy", metavar="AxB", help=levels)
    methods = f"how to cut: {', '.join(METHODS.names())}; see data_prep/README.md"
    parser.add_argument("--method", default="auto", help=methods)
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same parts")
    largest = "largest part / mean that is allowed, of vertices and of training vertices"
    parser.add_argument("--tolerance", type=float, default=1.05, metavar="X", help=largest)
    share = "share of the edges that a streaming method holds at once"
    parser.add_argument("--chunk", type=number_between(0.0001, 1.0, float), default=0.1, metavar="SHARE", help=share)
    most = "most memory to use, such as 4G; by default half of what is available"
    parser.add_argument("--max-mem", metavar="SIZE", help=most)
    layout = "columns: features also by columns, which strategy p3 then loads without reading rows; twice the space"
    parser.add_argument("--layout", choices=("rows", "columns"), default="rows", help=layout)
    add_report_flags(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a dataset that stands in the folder")


def run(arguments: argparse.Namespace) -> int:
    """Verify the graph, cut it, write the dataset, print the table."""
    from data_prep.partitioning.hierarchy import cut_in_levels
    from data_prep.partitioning.quality_report import report_on
    from data_prep.progress import Steps
    from data_prep.workspace import memory_budget, require
    from leapmpi.dataset.dataset_writer import check_folder
    from leapmpi.dataset.graph_file import open_graph
    from leapmpi.dataset.verify import verify_graph
    from leapmpi.system.worker_threads import processor_count

    # Refuse what can be refused before the work.
    levels = _levels(arguments)
    memory = memory_budget(arguments.max_mem)
    check_folder(arguments.folder, arguments.overwrite)
    METHODS.load(arguments.method)
    training = reported_training(arguments)
    graph = open_graph(arguments.graph)
    vertices = graph.vertices
    if arguments.layout == "columns" and graph.features is None:
        raise ConfigError(f"--layout columns: {arguments.graph} has no features; leave the flag out")
    if arguments.layout == "columns" and graph.sparse:
        raise ConfigError(
            f"--layout columns: {arguments.graph} stores features sparse, whose columns p3 reads from rows; leave the "
            "flag out"
        )
    require(memory, vertices * BYTES_PER_VERTEX, f"writing parts of {vertices:,} vertices", "allow more")
    steps = Steps()
    with steps.step("verify") as progress:
        progress.start(vertices, "vertices")
        graph = verify_graph(arguments.graph, progress.reach)
    with steps.step("cut") as progress:
        wishes = {"tolerance": arguments.tolerance, "memory": memory if arguments.max_mem else None}
        wishes |= {"threads": processor_count(), "chunk": arguments.chunk, "progress": progress}
        result = cut_in_levels(graph, levels, arguments.method, arguments.seed, **wishes)
    with steps.step("report") as progress:
        report = report_on(graph, result.assignment, len(result.vertices), training, progress)
    with steps.step("write") as progress:
        progress.start(vertices, "vertices")
        _write(arguments, graph, result, report, memory, progress)
    print(_table(arguments, result, report))
    print("\n".join(steps.table()))
    return 0


def _levels(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The numbers of parts by level, one level without --hierarchy. Raises ConfigError."""
    from data_prep.partitioning.hierarchy import parse_hierarchy

    if (arguments.parts is None) == (arguments.hierarchy is None):
        raise ConfigError("give either --parts N or --hierarchy AxB, such as --parts 4 or --hierarchy 4x16")
    return (arguments.parts,) if arguments.hierarchy is None else parse_hierarchy(arguments.hierarchy)


def _write(
    arguments: argparse.Namespace, graph: Graph, result: Partition, report: CutReport, memory: int, progress: Progress
) -> None:
    from leapmpi.dataset.dataset_writer import write_dataset

    levels = {"hierarchy": arguments.hierarchy} if arguments.hierarchy else {}
    write_dataset(
        arguments.folder,
        graph,
        result.assignment,
        len(result.vertices),
        method=result.method,
        figures={**levels, **result.figures(), **report.figures()},
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        command=getattr(arguments, "command_line", ""),
        columns=arguments.layout == "columns",
        block_bytes=min(_LARGEST_BLOCK, memory // _BLOCKS_IN_MEMORY),
        progress=progress.reach,
    )


def _table(arguments: argparse.Namespace, result: Partition, report: CutReport) -> str:
    columns = (result.vertices, result.training, result.edges, result.edges_cut)
    rows = [f"{'part':>6}{'vertices':>14}{'training':>14}{'edges':>16}{'edges cut':>16}"]
    rows += ["{:>6}{:>14,}{:>14,}{:>16,}{:>16,}".format(p, *row) for p, row in enumerate(zip(*columns, strict=True))]
    rows += ["{:>6}{:>14,}{:>14,}{:>16,}{:>16,}".format("all", *(column.sum() for column in columns))]
    figures = result.figures()
    size = sum(file.stat().st_size for file in arguments.folder.iterdir())
    said = [
        (
            "method",
            f"{result.method}, seed {arguments.seed}" + (f"; auto chose it: {result.reason}" if result.reason else ""),
        ),
        ("edge cut", f"{figures['edge_cut']:,} edges lead to another part, {figures['edge_cut_share']:.2%} of all"),
        (
            "largest / mean",
            "vertices {vertex_balance:.3f}, training {training_balance:.3f}, edges {edge_balance:.3f}".format(
                **figures
            ),
        ),
        *report.lines(),
        ("size", f"{size:,} bytes in {arguments.folder}"),
    ]
    return "\n".join(rows + [f"  {name:<16}{text}" for name, text in said])
