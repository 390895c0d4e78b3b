"""`leapmpi-prep import SOURCE GRAPH`: any supported source becomes one checked graph file."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from leapmpi.config.parser import number_between
from leapmpi.errors import ConfigError, DataError
from leapmpi.registry import Registry

if TYPE_CHECKING:
    from data_prep.edges.raw_graph import RawGraph
    from data_prep.workspace import Workspace

SOURCES = Registry("format", "data_prep.sources")

HELP = "read a graph from any supported source into one checked graph file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    positive, count = number_between(1), number_between(0)
    formats = ", ".join(SOURCES.names())
    features = "features for a source without: .npy, .npz (scipy), .csv; or made: random:F, degree, identity-hash:F"
    rules = "source, a folder with train-idx.npy, val-idx.npy, test-idx.npy, random:0.6,0.2,0.2 or per-class:20,30"
    storage = "dense rows, or sparse: entries that are not zero; auto: sparse below 5 %% of them"
    missing = "Planetoid's vertices without features: zeros, or one-hot: a column of its own for each, as NELL has them"
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE", help="file or folder that holds the graph")
    add("graph", type=Path, metavar="GRAPH", help="graph file to write, e.g. graph.h5")
    add("--format", metavar="NAME", help=f"format of SOURCE, detected unless given: {formats}")
    add("--splits", metavar="RULE", default="source", help=rules)
    add("--split-index", type=count, metavar="K", help="which of the source's own splits to take, from 0 on")
    add("--seed", type=count, default=0, metavar="S", help="seed of random and per-class splits and of random features")
    add("--largest-component", action="store_true", help="keep the largest connected component only")
    add("--directed", action="store_true", help="keep edges one way; otherwise each is taken both ways")
    add("--normalize-features", choices=("none", "row"), default="none", help="row: absolute values of a row sum to 1")
    add("--feature-dtype", choices=("float32", "float16"), default="float32", help="type of the features written")
    add("--feature-storage", choices=("auto", "dense", "sparse"), default="auto", help=storage)
    add("--missing-features", choices=("zeros", "one-hot"), help=missing)
    add("--features", metavar="FILE|RULE", help=features)
    add("--labels", type=Path, metavar="FILE", help="labels for a source without: .npy, .csv; -1 is unlabelled")
    add("--label-column", metavar="NAME", help="column of the classes, for tables and MUSAE, where it is not found")
    add("--vertices", type=positive, metavar="N", help="number of vertices, where the source does not state it")
    add("--classes", type=positive, metavar="C", help="number of classes, where the labels do not show all")
    add("--max-mem", metavar="SIZE", help="most memory to use, such as 4G; by default half of what is available")
    add("--overwrite", action="store_true", help="replace GRAPH if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Read, clean, check and write the graph; print what was done. Raises LeapmpiError for the first fault."""
    from data_prep.assembly.assemble import AssemblyOptions, make_graph
    from data_prep.assembly.made_features import parse_features
    from data_prep.assembly.output import check_output, write
    from data_prep.assembly.splits import parse_rule
    from data_prep.progress import Steps
    from data_prep.workspace import memory_budget, workspace_beside

    # Refuse what can be refused before the work.
    memory = memory_budget(arguments.max_mem)
    check_output(arguments.graph, arguments.overwrite)
    made = parse_features(arguments.features) if arguments.features else None
    features = Path(arguments.features) if arguments.features and not made else None
    names = ("seed", "directed", "largest_component", "feature_dtype", "feature_storage", "classes")
    same = {name: getattr(arguments, name) for name in names}
    options = AssemblyOptions(
        parse_rule(arguments.splits), normalise=arguments.normalize_features, features=made, **same
    )

    # Read, assemble, write.
    steps = Steps()
    with workspace_beside(arguments.graph, memory) as workspace:
        with steps.step("read"):
            name, path, raw = _read(arguments, features, workspace)
        graph, summary = make_graph(raw, options, str(path), workspace, steps)
        names = raw.names
        del raw  # of small formats, the largest thing in memory besides the graph itself
        if features:
            graph.attributes["feature_origin"] = str(features)
        graph.attributes |= {"source": str(arguments.source), "source_format": name, "command": arguments.command_line}
        title = f"{path} ({name})"
        write(arguments.graph, graph, summary, title, overwrite=arguments.overwrite, names=names, steps=steps)
    return 0


def _read(arguments: argparse.Namespace, features: Path | None, workspace: Workspace) -> tuple[str, Path, RawGraph]:
    """The name of the format, the path it was found at, and the RawGraph, with features from a file if given."""
    from data_prep.edges.raw_graph import ReadOptions

    if arguments.format:
        source = SOURCES.load(arguments.format)
        name, path = arguments.format, _within(arguments.source, source)
    else:
        name, path = locate(arguments.source)
        source = SOURCES.load(name)

    # A flag that the source does not take is a mistake of the user.
    options = ("split_index", "labels", "vertices", "label_column", "missing_features")
    given = {option: getattr(arguments, option) for option in options} | {"features": features}
    for option, value in given.items():
        if value is not None and option not in source.OPTIONS:
            raise ConfigError(f"--{option.replace('_', '-')} has no meaning for the format {name} of {path}")
    return name, path, source.read(path, ReadOptions(**given, workspace=workspace))


def _within(path: Path, source: ModuleType) -> Path:
    """`path`, or the only file in the folder `path` that `source` can read."""
    if not path.exists():
        raise DataError(f"{path} does not exist; give the file or folder that holds the graph")
    if path.is_dir() and not source.can_read(path):
        files = [entry for entry in sorted(path.iterdir()) if entry.is_file() and source.can_read(entry)]
        if len(files) != 1:
            raise DataError(
                f"{path} is a folder with {len(files)} files of that format; name one file ({source.SUMMARY})"
            )
        return files[0]
    return path


def locate(path: Path) -> tuple[str, Path]:
    """The format of `path`, and what to read: a folder with a single graph file in it stands for that file.

    Raises DataError, listing the formats, when no format or more than one fits.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; give the file or folder that holds the graph")

    # `path` itself, or, of a folder, what lies in it.
    found = _formats_of(path)
    if len(found) == 1:
        return found[0], path
    if found:
        raise DataError(f"{path} fits several formats ({', '.join(found)}); say which by --format")
    inside = sorted(path.iterdir()) if path.is_dir() else []
    nested = [(name, entry) for entry in inside for name in _formats_of(entry)]
    files = [(name, entry) for name, entry in nested if entry.is_file()]
    if len(files) == 1:
        return files[0]

    # Say what there is instead.
    known = "; ".join(f"{name} ({SOURCES.load(name).SUMMARY})" for name in SOURCES.names())
    if path.suffix == ".npz" and path.is_file():
        from data_prep.formats.npz_reader import NpzFile

        arrays = ", ".join(sorted(NpzFile(path).names)) or "nothing"  # a damaged archive gets its own message here
        raise DataError(f"{path} holds {arrays}, which is in no format that is known; the formats are: {known}")
    hint = f"; inside it, {nested[0][1]} looks like {nested[0][0]}: name that instead" if nested else ""
    raise DataError(f"{path} is in no format that is known{hint}; the formats are: {known}")


def _formats_of(path: Path) -> list[str]:
    return [name for name in SOURCES.names() if SOURCES.load(name).can_read(path)]
