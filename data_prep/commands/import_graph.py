"""`leapmpi-prep import SOURCE GRAPH`: any supported source becomes one checked graph file."""

from __future__ import annotations

import argparse
import glob
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from leapmpi.config.parser import number_between
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES, LABEL_KINDS
from leapmpi.errors import ConfigError

if TYPE_CHECKING:
    from data_prep.assembly.assemble import AssemblyOptions
    from data_prep.assembly.edge_splits.split_edges import SplitRequest
    from data_prep.assembly.output import Summary
    from data_prep.edges.raw_graph import GivenEdges, RawGraph
    from data_prep.edges.typed_graph import TypedRawGraph
    from data_prep.progress import Steps
    from data_prep.workspace import Workspace
    from leapmpi.dataset.graph import Graph

_MOST_WORKERS = 1024
EDGE_SHARES = "hold edges back for link prediction: shares of training, validation and test edges, as 0.8,0.1,0.1"
LABEL_SHARES = "hold labels of edges back, and leave the edges in the graph, for edge classification: shares as above"
SHARE = (
    "do share I (from 0 on) of N of the next stage, and end: for tasks of a job array on a shared file system; see "
    "data_prep/MEMORY.md"
)
SPLIT_BY = "split by time, oldest edges train and newest test (default where edges have times), or by hash of --seed"

FEATURE_DTYPE = "type of the stored features; int8 has a step and a middle per column"

HELP = "read a graph from any supported source into one checked graph file"


class _Formats(argparse.Action):
    """--formats: list the formats and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from data_prep.detection import SOURCES

        for name in SOURCES.names():
            print(f"{name:<16}{SOURCES.load(name).summary}")
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare source, graph file, and the options of formats; which of them a format takes, its `options` say."""
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE", help="file or folder that holds the graph")
    add("graph", type=Path, nargs="?", metavar="GRAPH", help="graph file to write, e.g. graph.h5")
    add("--format", metavar="NAME", help="format of SOURCE, detected unless given")
    add("--formats", action=_Formats, nargs=0, help="list the supported formats, and exit")
    _add_tables(parser)
    _add_splits(parser)
    add("--largest-component", action="store_true", help="keep the largest connected component only")
    add("--target", metavar="TYPE", help="typed graphs: type of vertices with labels and splits, of several")
    add("--add-reverse", action="store_true", help="typed graphs: a reverse relation for each that has none")
    add("--directed", action="store_true", help="keep edges one way; otherwise each is taken both ways")
    _add_vertex_data(parser)
    _add_edge_data(parser)
    add("--max-mem", metavar="SIZE", help="most memory to use, such as 4G; by default half of what is available")
    add_workers(parser)
    add("--max-disk", metavar="SIZE", help="most bytes of temporary files beside GRAPH; by default what is free there")
    add_share(parser)
    add_keep_work(parser)
    add("--overwrite", action="store_true", help="replace GRAPH if it exists")


def _add_tables(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--schema",
        type=Path,
        metavar="FILE",
        help="tables: keys, times, columns and tasks, in TOML (data_prep/TABLES.md)",
    )
    guess = "tables: write a first schema of SOURCE, by names, types and keys, for you to edit; GRAPH is left out"
    add("--guess-schema", type=Path, metavar="FILE", help=guess)
    encoders = "tables: encode columns as those of this graph file or dataset, so that its runs can predict them"
    add("--encoders", type=Path, metavar="DATA", help=encoders)
    refuse = "tables: faults of rows that are errors, of dangling, duplicate, no-time; without, they are counted"
    add("--refuse", metavar="FAULTS", help=refuse)
    add_code(parser)


def add_code(parser: argparse.ArgumentParser) -> None:
    """Add --code to the flags of a command."""
    code = "tables: run this function of yours, which encodes texts, such as words.py:vectors; may be repeated"
    parser.add_argument("--code", action="append", metavar="FUNCTION", help=code)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers to the flags of a command."""
    workers = "threads that share the work, by default the cores that the process may use; the result is the same"
    parser.add_argument("--workers", type=number_between(1, _MOST_WORKERS), metavar="N", help=workers)


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add --share to the flags of a command."""
    parser.add_argument("--share", metavar="I/N", help=SHARE)


def add_keep_work(parser: argparse.ArgumentParser) -> None:
    """Add --keep-work to the flags of a command."""
    kept = "leave temporary files where the command fails, so that the same command goes on from its finished steps"
    parser.add_argument("--keep-work", action="store_true", help=kept)


def _add_splits(parser: argparse.ArgumentParser) -> None:
    add, count = parser.add_argument, number_between(0)
    rules = "source, a folder with train-idx.npy, val-idx.npy, test-idx.npy, random:0.6,0.2,0.2 or per-class:20,30"
    add("--splits", metavar="RULE", default="source", help=rules)
    add("--split-edges", metavar="A,B,C", help=f"{EDGE_SHARES}; source (default): as the source says; none: no edge")
    add("--split-edge-labels", metavar="A,B,C", help=LABEL_SHARES)
    add("--split-edges-by", choices=("time", "hash"), help=SPLIT_BY)
    add("--split-index", type=count, metavar="K", help="number of the source's own split, from 0 on")
    add("--seed", type=count, default=0, metavar="S", help="seed of random and per-class splits and of random features")


def _add_vertex_data(parser: argparse.ArgumentParser) -> None:
    add, positive = parser.add_argument, number_between(1)

    # Features.
    add("--normalize-features", choices=("none", "row"), default="none", help="row: absolute values of a row sum to 1")
    by_type = f"{', '.join(FEATURE_DTYPES)}; by type of vertices: paper=float16,field=int8"
    add("--feature-dtype", metavar="DTYPE", help=f"{FEATURE_DTYPE}: {by_type}")
    storage = "dense rows, or sparse: entries that are not zero; auto: sparse below 5 %% of them"
    add("--feature-storage", choices=("auto", "dense", "sparse"), default="auto", help=storage)
    missing = "Planetoid's vertices without features: zeros, or one-hot: a column of its own for each, as NELL has them"
    add("--missing-features", choices=("zeros", "one-hot"), help=missing)
    features = "features: .npy, .npz (scipy), .csv, an array of the source; or made: random:F, degree, identity-hash:F"
    add("--features", metavar="FILE|NAME|RULE", help=features)
    dim = "number of MUSAE's features, where the largest does not show it"
    add("--feature-dim", type=positive, metavar="N", help=dim)
    add("--duplicate-rows", choices=("first", "last"), help="row to keep of two differing rows of a vertex, in MUSAE")

    # Labels, times, and numbers of vertices and classes.
    labels = "labels for a source without: .npy, .csv (-1 is unlabelled), an array of the source"
    add("--labels", type=Path, metavar="FILE|NAME", help=labels)
    column = "column of the classes, for tables, MUSAE and MATLAB, if it is not found"
    add("--label-column", metavar="NAME", help=column)
    add("--classes", type=positive, metavar="C", help="number of classes, where the labels do not show all")
    add("--task", choices=LABEL_KINDS, help="kind of labels; detected by default (see data_prep/IMPORT.md)")
    add("--vertex-times", metavar="FILE|NAME", help="times of vertices: .npy, or a column or an array of the source")
    add("--vertex-table", type=Path, metavar="FILE", help="table of vertices, where SOURCE is a table of edges")
    add("--vertices", type=positive, metavar="N", help="number of vertices, where the source does not state it")


def _add_edge_data(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    columns = "columns of edges after their two ends: weight, time, feature or -, in order, or as NAME=ROLE"
    add("--edge-columns", metavar="ROLES", help=columns)
    kept = "edge data (weights, features, times): keep them, or read edges alone"
    add("--edge-data", choices=("keep", "drop"), default="keep", help=kept)
    add("--edge-labels", metavar="NAME", help="column or array of the labels of edges, for --task edge-class")
    values = "numbers that label edges: classes from 0 on (-1: unlabelled), distinct: any numbers, one class each"
    add("--edge-label-values", choices=("classes", "distinct"), default="classes", help=values)


def run(arguments: argparse.Namespace) -> int:
    """Read, clean, check and write the graph; print what was done. Raises LeapmpiError for the first fault."""
    from data_prep.assembly.assemble import make_graph
    from data_prep.assembly.edge_splits.split_edges import requested_split
    from data_prep.assembly.output import check_output, write
    from data_prep.assembly.typed_assembly import make_typed_graph
    from data_prep.edges.typed_graph import TypedRawGraph
    from data_prep.formats.zip_archive import unpacked_source
    from data_prep.progress import Steps
    from data_prep.workspace import disk_budget, memory_budget, stage_key, use_workers, workspace_beside
    from leapmpi.system.task_shares import ending_with_a_share, parse_task

    if arguments.guess_schema is not None:
        return _guess_schema(arguments)
    if arguments.graph is None:
        raise ConfigError("name the graph file to write: leapmpi-prep import SOURCE GRAPH")

    # Refuse what can be refused before the work.
    memory, disk = memory_budget(arguments.max_mem), disk_budget(arguments.max_disk)
    use_workers(arguments.workers, memory)
    check_output(arguments.graph, arguments.overwrite)
    shares = None if arguments.split_edges in ("source", "none") else arguments.split_edges
    edge_split = requested_split(shares, arguments.split_edge_labels, arguments.split_edges_by)
    options = _options(arguments)
    features = Path(arguments.features) if arguments.features and not options.features else None

    # Read, assemble, write.
    steps = Steps()
    key, task = stage_key(arguments, _sources(arguments), ["max_mem"]), parse_task(arguments.share)
    with (
        ending_with_a_share(),
        workspace_beside(arguments.graph, memory, disk, key, arguments.keep_work, task) as workspace,
        unpacked_source(arguments.source, workspace) as (source, shown),
    ):
        with steps.step("read"):
            name, path, raw = _read(source, arguments, features, workspace)
            options = _with_split_folder(options, source, raw)
            raw.notes += _files_note(
                source, path, raw, [features, arguments.labels, arguments.vertex_table, options.splits.folder]
            )
        # Only now it is known whether the graph is typed, and which flags fit it.
        if isinstance(raw, TypedRawGraph):
            _check_typed(raw, arguments, features, bool(edge_split))
            graph, summary = make_typed_graph(raw, options, str(path), workspace, steps)
            given = None
        else:
            _check_plain(arguments, options, path)
            graph, summary = make_graph(raw, options, str(path), workspace, steps)
            given = raw.edge_splits
        beside = {"names": raw.names, "parts": raw.parts}
        beside |= {"encoders": raw.encoders, "keys": raw.keys} if isinstance(raw, TypedRawGraph) else {}
        del raw  # of small formats, the largest thing in memory besides the graph itself
        if features:
            graph.attributes["feature_origin"] = str(features)
        graph.attributes |= {"source": str(arguments.source), "source_format": name, "command": arguments.command_line}
        graph = _held_back(graph, edge_split, given, arguments, summary, steps)
        summary.notes.extend(workspace.notes())
        title = f"{shown(path)} ({name})"
        write(arguments.graph, graph, summary, title, overwrite=arguments.overwrite, steps=steps, **beside)
    return 0


def _sources(arguments: argparse.Namespace) -> list[Path]:
    """List the files and folders that the command reads, as far as its flags name them."""
    source = arguments.source
    found = next((each for each in (source, *source.parents) if each.exists()), source)
    # A name without its suffix stands for files beside it, a path into an archive for the archive.
    sources = sorted(found.glob(f"{glob.escape(source.name)}*")) if found != source and found.is_dir() else [found]
    given = [value for name, value in vars(arguments).items() if isinstance(value, Path) and name != "graph"]
    given += [Path(text) for text in (arguments.features, arguments.vertex_times, arguments.splits) if text]
    return [*sources, *(path for path in given if path != arguments.source and path.exists())]


def _guess_schema(arguments: argparse.Namespace) -> int:
    """Write a first schema of the tables in SOURCE, and print what to look at. Raises LeapmpiError for a fault."""
    from data_prep.database.guessed_schema import write_guess
    from data_prep.workspace import disk_budget, memory_budget, workspace_beside

    if arguments.graph is not None:
        raise ConfigError("--guess-schema writes a schema and no graph; leave GRAPH out, and import by --schema then")
    memory, disk = memory_budget(arguments.max_mem), disk_budget(arguments.max_disk)
    with workspace_beside(arguments.guess_schema, memory, disk) as workspace:
        print(
            "\n".join(write_guess(arguments.source, arguments.guess_schema, workspace, overwrite=arguments.overwrite))
        )
    return 0


def _options(arguments: argparse.Namespace) -> AssemblyOptions:
    """Build the options of the cleaning from the flags. Raises ConfigError."""
    from data_prep.assembly.assemble import AssemblyOptions
    from data_prep.assembly.made_features import parse_features
    from data_prep.assembly.splits import parse_rule

    names = ("seed", "directed", "largest_component", "feature_dtype", "feature_storage", "classes", "task")
    names += ("edge_data", "edge_label_values", "target", "add_reverse")
    return AssemblyOptions(
        parse_rule(arguments.splits),
        normalise=arguments.normalize_features,
        features=parse_features(arguments.features) if arguments.features else None,
        **{name: getattr(arguments, name) for name in names},
    )


def _held_back(
    graph: Graph,
    edge_split: SplitRequest | None,
    given: GivenEdges | None,
    arguments: argparse.Namespace,
    summary: Summary,
    steps: Steps,
) -> Graph:
    """Move edges to the splits that the flags or the source (`given`) name, and add notes to `summary`."""
    from data_prep.assembly.edge_splits.given_splits import hold_back_given
    from data_prep.assembly.edge_splits.split_edges import split_edges

    if not edge_split and (not given or arguments.split_edges == "none"):
        return graph
    with steps.step("split edges") as progress:
        progress.start(graph.vertices, "vertices")
        if edge_split:
            # A flag wins over the source, and the summary says so.
            summary.notes.extend(["the source's own split of edges is not used"] * (given is not None))
            by, held = edge_split.by, edge_split.held
            return split_edges(graph, edge_split.shares, arguments.seed, progress.reach, by, held)
        graph, notes = hold_back_given(graph, given, summary.source_vertices, progress.reach)
        summary.notes.extend(notes)
    return graph


def _with_split_folder(options: AssemblyOptions, source: Path, raw: RawGraph | TypedRawGraph) -> AssemblyOptions:
    """Return `options` with the splits in a folder of `source`, where neither they nor the source have any."""
    from data_prep.assembly.splits import SplitRule, folder_within
    from data_prep.edges.raw_graph import RawGraph

    if not isinstance(raw, RawGraph) or raw.splits or options.splits.kind != "source" or not source.is_dir():
        return options
    if (found := folder_within(source)) is None:
        return options
    raw.notes.append(f"splits are those of the folder {found.name} of the source; --splits chooses others")
    return replace(options, splits=SplitRule("folder", found.name, found))


def _check_plain(arguments: argparse.Namespace, options: AssemblyOptions, path: Path) -> None:
    """Raise ConfigError for flags of typed graphs."""
    options.check_plain()
    for flag, given in (("--target", arguments.target), ("--add-reverse", arguments.add_reverse)):
        if given:
            raise ConfigError(f"{flag}: {path} is a plain graph, of one type of vertices and edges; leave the flag out")


def _check_typed(raw: TypedRawGraph, arguments: argparse.Namespace, features: Path | None, edge_split: bool) -> None:
    """Raise ConfigError for flags without a meaning for typed graphs; take away the edges held back if not wanted."""
    flags = {
        "--features": features,
        "--labels": arguments.labels,
        "--vertex-times": arguments.vertex_times,
        "--vertex-table": arguments.vertex_table,
        "--vertices": arguments.vertices,
        "--edge-labels": arguments.edge_labels,
        "--split-edges and --split-edge-labels": edge_split,
    }
    for flag, given in flags.items():
        if given:
            raise ConfigError(f"{flag}: {arguments.source} is a typed graph, which is read without; leave the flag out")
    if arguments.split_edges == "none":
        raw.edge_splits = None


def _read(
    given: Path, arguments: argparse.Namespace, features: Path | None, workspace: Workspace
) -> tuple[str, Path, RawGraph | TypedRawGraph]:
    """Return the format's name, the path it was found at, and the raw graph, with features from a file if given."""
    from data_prep.detection import SOURCES, locate
    from data_prep.edges.raw_graph import ReadOptions
    from data_prep.formats.array_files import read_array

    if arguments.schema and not arguments.format and given.exists():
        name, path = "database", given
    else:
        name, path = locate(given, arguments.format or ("table" if arguments.vertex_table else None))
    source = SOURCES.load(name)

    # A flag that the source does not take is a mistake of the user.
    options = ("split_index", "labels", "vertices", "label_column", "missing_features", "feature_dim", "duplicate_rows")
    options += ("edge_columns", "edge_labels", "vertex_times", "vertex_table", "schema", "encoders", "refuse", "code")
    values = {option: getattr(arguments, option) for option in options} | {"features": features}
    times = Path(arguments.vertex_times) if arguments.vertex_times else None
    if times and times.is_file():
        values["vertex_times"] = None
    for option, value in values.items():
        if value is not None and option not in source.options:
            raise ConfigError(f"--{option.replace('_', '-')} does not apply to the format {name} of {path}")
    raw = source.read(path, ReadOptions(**values, task=arguments.task, workspace=workspace))
    if times and times.is_file():
        raw.times = read_array(times)
    return name, path, raw


def _files_note(given: Path, path: Path, raw: RawGraph | TypedRawGraph, named: list[Path | None]) -> list[str]:
    """Describe which data came from which file of the folder `given`, and which files were left.

    path: what was read. named: further files and folders that flags name.
    """
    from data_prep.detection import left_in, listed

    if not given.is_dir() or (path.is_dir() and not raw.files):
        return []
    taken = raw.files or {path.name: "graph"}
    note = "taken: " + listed([f"{name} ({what})" for name, what in taken.items()])
    near = [each.resolve() for each in named if each is not None and each.resolve().parent == given.resolve()]
    left = listed(left_in(given, [*taken, *(each.name for each in near)]))
    return [f"{note}; not used: {left}" if left else note]
