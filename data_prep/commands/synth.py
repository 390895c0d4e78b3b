"""`leapmpi-prep synth GRAPH`: a random graph with communities and learnable features, for trials and benchmarks."""

from __future__ import annotations

import argparse
from pathlib import Path

from data_prep.commands.import_graph import FEATURE_DTYPE, add_workers
from leapmpi.config.parser import number_between
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.errors import ConfigError, counted

HELP = "make a random graph with communities, heavy-tailed degrees and learnable features"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph file, the fields of CommunityGraph, and the limits of memory and disk."""
    add = parser.add_argument
    share = number_between(0.0, 1.0, float)
    output = "graph file to write, e.g. graph.h5; or NAME.npz, a source for import with its edges in random order"
    add("graph", type=Path, metavar="GRAPH", help=output)
    add("--vertices", type=number_between(2), default=200_000, metavar="N", help="vertices")
    distinct = "undirected edges (16 M at most: distinct)"
    add("--edges", type=number_between(1), default=2_000_000, metavar="M", help=distinct)
    add("--features", type=number_between(0), default=300, metavar="F", help="features per vertex")
    add("--classes", type=number_between(1), default=40, metavar="C", help="classes")
    add("--communities", type=number_between(1), metavar="K", help="communities, each of one class (10 per class)")
    add("--mixing", type=share, default=0.15, metavar="SHARE", help="share of edges that ignore communities")
    add("--strays", type=share, default=0.1, metavar="SHARE", help="share of vertices with a random class")
    signal = "length of the class prototypes in the features; the noise has unit variance in each feature"
    add("--signal", type=number_between(0.0, None, float), default=1.0, metavar="X", help=signal)
    add(
        "--train",
        type=share,
        default=0.4,
        metavar="SHARE",
        help="share of training vertices; the others are halved into validation and test",
    )
    scored = "share of validation and test vertices, half each; by default all others"
    add("--scored", type=share, metavar="SHARE", help=scored)
    add("--feature-dtype", choices=tuple(FEATURE_DTYPES), default="float32", help=FEATURE_DTYPE)
    add("--seed", type=number_between(0), default=0, metavar="S", help="the same seed gives the same graph")
    add("--max-mem", metavar="SIZE", help="most memory to use, such as 4G; by default half of what is available")
    add_workers(parser)
    add("--max-disk", metavar="SIZE", help="most bytes of temporary files beside GRAPH; by default what is free there")
    add("--overwrite", action="store_true", help="replace GRAPH if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Make, check and write the graph; print what was done. Raises LeapmpiError when it cannot be made."""
    from data_prep.assembly.assemble import AssemblyOptions, make_graph
    from data_prep.assembly.community_graph import CommunityGraph, generate
    from data_prep.assembly.output import check_output, write
    from data_prep.assembly.splits import SplitRule
    from data_prep.formats.npz_writer import write_source
    from data_prep.progress import Steps
    from data_prep.workspace import disk_budget, memory_budget, use_workers, workspace_beside

    # Refuse what can be refused before the work.
    memory, disk = memory_budget(arguments.max_mem), disk_budget(arguments.max_disk)
    use_workers(arguments.workers, memory)
    check_output(arguments.graph, arguments.overwrite)
    communities = _communities(arguments)
    names = ("vertices", "edges", "features", "classes", "mixing", "strays", "signal", "train", "scored", "seed")
    source = arguments.graph.suffix == ".npz"
    if source and arguments.feature_dtype not in ("float32", "float16"):
        raise ConfigError(f"--feature-dtype {arguments.feature_dtype}: a source has float32 or float16; import it so")
    drawn = arguments.feature_dtype if source else "float32"
    spec = CommunityGraph(
        communities=communities, **{name: getattr(arguments, name) for name in names}, feature_dtype=drawn
    )
    title = f"synthetic, seed {spec.seed}"

    # NAME.npz is a source for import; a graph file goes through the same steps as an import.
    steps = Steps()
    with workspace_beside(arguments.graph, memory, disk) as workspace:
        with steps.step("draw vertices"):
            raw = generate(spec, workspace)
        if source:
            write_source(arguments.graph, raw, steps, overwrite=arguments.overwrite)
            print(title, *steps.table(), sep="\n")
            return 0
        options = AssemblyOptions(SplitRule("source", "source"), feature_dtype=arguments.feature_dtype)
        graph, summary = make_graph(raw, options, "the synthetic graph", workspace, steps)
        del raw
        graph.attributes |= {"source": "synthetic", "source_format": "synthetic", "command": arguments.command_line}
        graph.attributes |= {"synthetic_seed": spec.seed}
        write(arguments.graph, graph, summary, title, overwrite=arguments.overwrite, steps=steps)
    return 0


def _communities(arguments: argparse.Namespace) -> int:
    """Return the number of communities, checked against the other sizes."""
    pairs = arguments.vertices * (arguments.vertices - 1) // 2
    if arguments.edges > pairs:
        raise ConfigError(
            f"--edges {arguments.edges}: a graph of {counted(arguments.vertices, 'vertex')} has only "
            f"{counted(pairs, 'pair')}"
        )
    if arguments.classes > arguments.vertices:
        raise ConfigError(f"--classes {arguments.classes}: more classes than vertices ({arguments.vertices})")
    if arguments.communities is None:
        return min(10 * arguments.classes, arguments.vertices)
    if not arguments.classes <= arguments.communities <= arguments.vertices:
        raise ConfigError(
            f"--communities {arguments.communities}: expected at least one per class ({arguments.classes}) and at most "
            f"one per vertex ({arguments.vertices})"
        )
    return arguments.communities
