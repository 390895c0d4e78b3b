"""`leapmpi-prep partition GRAPH FOLDER`: cut a graph file into parts and write them as a dataset."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.commands.import_graph import (
    EDGE_SHARES,
    FEATURE_DTYPE,
    LABEL_SHARES,
    SPLIT_BY,
    add_keep_work,
    add_share,
    add_workers,
)
from data_prep.partitioning.method_registry import BALANCES, METHODS
from leapmpi.config.completion import offer
from leapmpi.config.flags import add_flag, given
from leapmpi.config.parser import number_between
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields
from leapmpi.dataset.hdf5.names import COMMUNITIES, FEATURE_DTYPES, REPLICATED_TYPES, SOURCE_ORDER
from leapmpi.errors import ConfigError
from leapmpi.runs.text import wrapped

if TYPE_CHECKING:
    import numpy as np

    from data_prep.assembly.edge_splits.split_edges import SplitRequest
    from data_prep.partitioning.partition_graph import Partition
    from data_prep.partitioning.quality_report import CutReport
    from data_prep.partitioning.request import PartitionRequest
    from data_prep.progress import Progress
    from data_prep.workspace import Workspace
    from leapmpi.dataset.graph import Graph

BYTES_PER_VERTEX = 20  # part, place in the order, new number and ordered original id
_LARGEST_BLOCK = 64 * 2**20
_BLOCKS_IN_MEMORY = 32

_REPORT_SETTINGS = {key: setting for key, setting in fields() if key in ("sampling.fanout", "train.batch_size")}

_SHOWN = {"vertices": "vertex_balance", "training": "training_balance", "edges": "edge_balance", "work": "work_balance"}

GIVEN = "given"
"""The method that keeps a cut that exists."""

HELP = "cut a graph file into parts: a dataset for training on up to that many ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare graph, folder, and the settings of PartitionRequest, of the dataset's files and of the report."""
    parser.add_argument("graph", type=Path, help="graph file, from leapmpi-prep import or synth")
    parser.add_argument("folder", type=Path, help="folder for the dataset; made here")
    parser.add_argument("--parts", type=int, help="number of parts: the most ranks that can share the work")
    levels = "instead of --parts: parts within groups, such as 4x16 for 16 on each of 4 nodes"
    parser.add_argument("--hierarchy", metavar="AxB", help=levels)
    methods = f"partition method: {', '.join(METHODS.names())}; see data_prep/PARTITION.md"
    offer(parser.add_argument("--method", default="auto", help=methods), METHODS.names())
    given_parts = (
        "for method given: the part of each vertex of the source, from 0 on: .npy, or a text with one on each line, as "
        "METIS writes; by default those that came with a source that is cut"
    )
    parser.add_argument("--parts-from", type=Path, metavar="FILE", help=given_parts)
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same parts")
    largest = "largest part / mean that is allowed, of vertices and of what --balance names"
    parser.add_argument("--tolerance", type=float, default=1.05, metavar="X", help=largest)
    balances = (
        "second balance criterion besides vertices: training (vertices), (in-)edges, bytes (of features and edges); "
        "work: rows and edges that sampling for training vertices by --fanout is expected to draw; types: each type "
        "of vertices by itself, and training vertices; vertices: nothing else"
    )
    parser.add_argument("--balance", choices=BALANCES, default=BALANCES[0], metavar="WHAT", help=balances)
    share = "share of the edges that a streaming method holds at once"
    parser.add_argument("--chunk", type=number_between(0.0001, 1.0, float), default=0.1, metavar="SHARE", help=share)
    most = "most memory to use, such as 4G; by default half of what is available"
    parser.add_argument("--max-mem", metavar="SIZE", help=most)
    most = "most bytes of temporary files beside FOLDER; by default what is free there"
    parser.add_argument("--max-disk", metavar="SIZE", help=most)
    add_workers(parser)
    add_share(parser)
    add_keep_work(parser)
    small = (
        "typed graphs: types of vertices whose rows take less than SIZE are recorded as replicated on every rank; by "
        "default 1 %% of the rows of a part, 0 for none"
    )
    parser.add_argument("--replicate-below", metavar="SIZE", help=small)
    layout = "columns: features also by columns, which strategy p3 then loads without reading rows; twice the space"
    parser.add_argument("--layout", choices=("rows", "columns"), default="rows", help=layout)
    orders = (
        "order of the vertices within a part: that of the source, or community by community, so that rows "
        "read together are stored together"
    )
    parser.add_argument("--order", choices=(SOURCE_ORDER, COMMUNITIES), default=SOURCE_ORDER, help=orders)
    dtypes = f"{FEATURE_DTYPE}; by default that of the graph file"
    parser.add_argument("--feature-dtype", choices=tuple(FEATURE_DTYPES), help=dtypes)
    parser.add_argument("--split-edges", metavar="A,B,C", help=EDGE_SHARES)
    parser.add_argument("--split-edge-labels", metavar="A,B,C", help=LABEL_SHARES)
    parser.add_argument("--split-edges-by", choices=("time", "hash"), help=SPLIT_BY)
    add_report_flags(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing dataset in the folder")


def run(arguments: argparse.Namespace) -> int:
    """Verify the graph, partition it, write the dataset, print the table. Raises LeapmpiError for the first fault."""
    from data_prep.assembly.edge_splits.split_edges import requested_split
    from data_prep.workspace import disk_budget, memory_budget, require, stage_key, use_workers, workspace_beside
    from leapmpi.dataset.dataset_writer import check_folder
    from leapmpi.dataset.graph_file import open_graph
    from leapmpi.system.task_shares import ending_with_a_share, parse_task

    # Refuse what can be refused before the work.
    memory, disk = memory_budget(arguments.max_mem), disk_budget(arguments.max_disk)
    task = parse_task(arguments.share)
    use_workers(arguments.workers, memory)
    if arguments.parts_from and arguments.method == "auto":
        arguments.method = GIVEN
    request = _request(arguments, memory)
    check_folder(arguments.folder, arguments.overwrite)
    edge_split = requested_split(arguments.split_edges, arguments.split_edge_labels, arguments.split_edges_by)
    METHODS.load(arguments.method)
    training = reported_training(arguments)
    graph = open_graph(arguments.graph)
    check_typed_flags(graph, str(arguments.graph), training, edge_split)
    _check_flags(arguments, graph, edge_split, request.parts)
    vertices = graph.vertices
    require(memory, vertices * BYTES_PER_VERTEX, f"writing parts of {vertices:,} vertices", "allow more")

    key = stage_key(arguments, [arguments.graph, arguments.parts_from])
    with (
        ending_with_a_share(),
        workspace_beside(arguments.folder, memory, disk, key, arguments.keep_work, task) as workspace,
    ):
        print("\n".join(_made(arguments, graph, request, edge_split, training, workspace)))
    return 0


def _made(
    arguments: argparse.Namespace,
    graph: Graph,
    request: PartitionRequest,
    edge_split: SplitRequest | None,
    training: tuple[tuple[int, ...], int] | None,
    workspace: Workspace,
) -> list[str]:
    """Make the dataset; return the lines of the final table. Steps that an earlier run finished are left out."""
    from data_prep.assembly.edge_splits.split_edges import split_edges
    from data_prep.assembly.stored_dtype import changes_dtype, with_feature_dtype
    from data_prep.partitioning.partition_stages import cut, cut_by_tasks, part_files_by_tasks
    from data_prep.partitioning.quality_report import report_on
    from data_prep.progress import Steps

    # Each step reads the file again: memory stays bounded.
    steps, vertices = Steps(), graph.vertices
    found = cut_by_tasks(arguments.graph, graph, workspace, steps)
    if edge_split:
        with steps.step("split edges") as progress:
            progress.start(vertices, "vertices")
            by, held = edge_split.by, edge_split.held
            graph = split_edges(graph, edge_split.shares, arguments.seed, progress.reach, by, held)
    result, communities = found or cut(graph, request, workspace, steps, ordered=arguments.order == COMMUNITIES)
    small = None
    if changes_dtype(graph, arguments.feature_dtype):
        with steps.step("features") as progress:
            dtype, name = arguments.feature_dtype, str(arguments.graph)
            graph, small = with_feature_dtype(graph, dtype, name, workspace, progress)
    columns, block_bytes = arguments.layout == "columns", min(_LARGEST_BLOCK, workspace.memory // _BLOCKS_IN_MEMORY)
    layout = {"columns": columns, "communities": communities, "block_bytes": block_bytes}
    made = part_files_by_tasks(graph, result, layout, workspace, steps)
    layout["made"] = made.files if made else []
    with steps.step("report") as progress:
        report = report_on(graph, result.assignment, request.parts, training, progress, made and made.copies)
    with steps.step("write") as progress:
        progress.start(vertices, "vertices")
        _write(arguments, graph, result, report, layout, progress)
    notes = [*([small.note(arguments.feature_dtype)] if small else []), *workspace.notes()]
    return [_table(arguments, result, report), *(f"  {note}" for note in notes), *steps.table()]


def _check_flags(arguments: argparse.Namespace, graph: Graph, edge_split: SplitRequest | None, parts: int) -> None:
    """Raise LeapmpiError for flags that do not go with `graph`."""
    from data_prep.assembly.edge_splits.split_edges import check_unsplit, splits_by_time
    from data_prep.assembly.stored_dtype import check_dtype
    from data_prep.partitioning.replicated_types import replicated_types

    if edge_split:
        check_unsplit(graph, edge_split.held)
        splits_by_time(graph, edge_split.by)
    columns = f"--layout columns: {arguments.graph}"
    if arguments.layout == "columns" and graph.features is None:
        raise ConfigError(f"{columns} has no features; leave the flag out")
    if arguments.layout == "columns" and graph.sparse:
        raise ConfigError(f"{columns} stores features sparse, whose columns p3 reads from rows; leave the flag out")
    check_dtype(graph, arguments.feature_dtype, arguments.graph)
    replicated_types(graph, parts, _replicated_size(arguments))


def _replicated_size(arguments: argparse.Namespace) -> int | None:
    """Return the bytes of --replicate-below; None without. Raises ConfigError for no size."""
    from leapmpi.config.setting import parse_size

    text = arguments.replicate_below
    return None if text is None else 0 if text == "0" else parse_size(text, "--replicate-below")


def check_typed_flags(graph: Graph, name: str, training: object, edge_split: object = None) -> None:
    """Raise ConfigError for flags without a meaning for a typed graph: dry runs (`training`), edges held back."""
    if graph.types is None:
        return
    if training:
        raise ConfigError(f"--report, --fanout and --batch-size: {name} is a typed graph, which is not sampled yet")
    if edge_split:
        raise ConfigError(
            f"--split-edges and --split-edge-labels: {name} is a typed graph; the source holds edges back"
        )


def _request(arguments: argparse.Namespace, memory: int) -> PartitionRequest:
    """Build the request from the flags; `memory` counts only where --max-mem gives it. Raises ConfigError."""
    from data_prep.partitioning.request import PartitionRequest, parse_hierarchy
    from leapmpi.system.worker_threads import processor_count

    parts, cut = arguments.parts, _given_parts(arguments)
    if cut is not None and parts is None and arguments.hierarchy is None:
        # A given cut states the number of parts itself.
        parts = int(cut.max()) + 1
    if (parts is None) == (arguments.hierarchy is None):
        raise ConfigError("give either --parts N or --hierarchy AxB, such as --parts 4 or --hierarchy 4x16")
    return PartitionRequest(
        levels=(parts,) if arguments.hierarchy is None else parse_hierarchy(arguments.hierarchy),
        method=arguments.method,
        seed=arguments.seed,
        balance=arguments.balance,
        fanout=sampling_of(arguments)[0],
        tolerance=arguments.tolerance,
        memory=memory if arguments.max_mem else None,
        chunk=arguments.chunk,
        threads=processor_count(),
        given=cut,
    )


def _given_parts(arguments: argparse.Namespace) -> np.ndarray | None:
    """Read the parts that --parts-from names, or that came with the source; None for other methods.

    Raises LeapmpiError.
    """
    from data_prep.assembly.given_parts import parts_beside, read_parts
    from leapmpi.dataset.graph_file import open_graph

    if arguments.method != GIVEN:
        if arguments.parts_from:
            raise ConfigError(f"--parts-from goes with --method given, not with {arguments.method}; leave one out")
        return None
    if arguments.hierarchy:
        raise ConfigError("--method given keeps a cut as it is; leave --hierarchy out")
    if arguments.parts_from:
        return read_parts(arguments.parts_from)
    return parts_beside(arguments.graph, open_graph(arguments.graph))


def _write(
    arguments: argparse.Namespace,
    graph: Graph,
    result: Partition,
    report: CutReport,
    layout: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Write the dataset, with the figures of the partition as its attributes; layout: arguments for its parts."""
    from data_prep.partitioning.replicated_types import replicated_types
    from leapmpi.dataset.column_encoders import FILE as ENCODERS
    from leapmpi.dataset.column_encoders import KEYS, beside_path
    from leapmpi.dataset.dataset_writer import write_dataset
    from leapmpi.dataset.names_of_vertices import FILE, open_names

    # A graph file that was moved without its names is a graph all the same.
    beside = arguments.graph.with_name(str(graph.attributes.get(FILE, "")) or arguments.graph.name)
    named = open_names(arguments.graph, graph.attributes) if beside.is_file() else None
    # How the parts were made is kept with them, so that a report or another run can tell.
    levels = {"hierarchy": arguments.hierarchy} if arguments.hierarchy else {}
    levels |= {"parts_from": str(arguments.parts_from)} if arguments.parts_from else {}
    if replicated := replicated_types(graph, len(result.vertices), _replicated_size(arguments)):
        levels[REPLICATED_TYPES] = json.dumps(replicated, ensure_ascii=False)
    levels |= {} if arguments.balance == BALANCES[0] else {"balanced_by": arguments.balance}
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
        beside={
            FILE: named and named.path,
            **{kind: beside_path(arguments.graph, graph.attributes, kind) for kind in (ENCODERS, KEYS)},
        },
        progress=progress.reach,
        **layout,
    )


def _table(arguments: argparse.Namespace, result: Partition, report: CutReport) -> str:
    """Return the final table: a row per part, their sums, and the figures."""
    # A row per part, and one of the sums.
    columns = (result.vertices, result.training, result.edges, result.edges_cut)
    row_format = "{:>6}{:>14,}{:>14,}{:>16,}{:>16,}"
    rows = [f"{'part':>6}{'vertices':>14}{'training':>14}{'edges':>16}{'edges cut':>16}"]
    rows += [row_format.format(part, *counts) for part, counts in enumerate(zip(*columns, strict=True))]
    rows += [row_format.format("all", *(column.sum() for column in columns))]

    # The figures by name.
    figures = result.figures()
    size = sum(file.stat().st_size for file in arguments.folder.iterdir())
    reason = f"; auto chose it: {result.reason}" if result.reason else ""
    balance = ", ".join(f"{name} {figures[key]:.3f}" for name, key in _SHOWN.items())
    lines = [
        ("method", f"{result.method}, seed {arguments.seed}{reason}"),
        ("edge cut", f"{figures['edge_cut']:,} edges lead to another part, {figures['edge_cut_share']:.2%} of all"),
        ("largest / mean", balance),
        *([("of each type", str(figures["type_balance"]))] if result.types else []),
        *report.lines(),
        ("size", f"{size:,} bytes in {arguments.folder}"),
    ]
    return "\n".join(rows + [wrapped(f"  {name:<16}{text}", 18) for name, text in lines])


def add_report_flags(parser: argparse.ArgumentParser) -> None:
    """Add --report, --fanout and --batch-size: for what sampled training a partition is reported.

    The last two are those of `leapmpi train`.
    """
    report = "also a dry run of sampled training, as --fanout and --batch-size say: R_micro and remote rows"
    parser.add_argument("--report", action="store_true", help=report)
    for setting in _REPORT_SETTINGS.values():
        add_flag(parser, setting)


def reported_training(arguments: argparse.Namespace) -> tuple[tuple[int, ...], int] | None:
    """Return fan-outs and batch size to report for; None where no flag requests it. Raises ConfigError."""
    return sampling_of(arguments) if arguments.report or given(arguments) else None


def sampling_of(arguments: argparse.Namespace) -> tuple[tuple[int, ...], int]:
    """Return fan-outs and batch size that the flags name, or those of `leapmpi train`. Raises ConfigError."""
    config = Config()
    for key, value in given(arguments).items():
        config = config.assigned({key: value}, f"--{_REPORT_SETTINGS[key].flag}")
    return config.sampling.fanout, config.train.batch_size
