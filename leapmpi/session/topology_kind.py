"""Storage of in-neighbour lists: a copy on every node, or each rank those of its own vertices (`--topology`).

In memory, or in a file with the most read ones in memory (`--topology-memory`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.config.options import SAMPLERS, options_of
from leapmpi.config.schema import Config, models_of
from leapmpi.config.setting import AUTO_SIZE, names_code, parse_size
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology, empty_topology, topology_bytes
from leapmpi.engine.edge_features import reads_features
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ConfigError
from leapmpi.features.expected_reads import READS_BYTES, Reads, included
from leapmpi.features.list_memory import HeldLists, hold_most_read, read_singly
from leapmpi.features.node_shared import share_topology
from leapmpi.features.shared_reads import shared_reads, shared_reads_bytes
from leapmpi.nn.layer import reads_sources
from leapmpi.nn.model import model_of
from leapmpi.nn.task import task_of
from leapmpi.plan.homes import rank_offsets
from leapmpi.runs.text import size_text
from leapmpi.sampling.edge_lookup import bounds_by_root, reads_times, uses_times, uses_weights
from leapmpi.sampling.negative_sampler import negatives_named
from leapmpi.sampling.sampler import NAMED_LISTS
from leapmpi.sampling.samplers.temporal import AUTO, LATEST_EDGE
from leapmpi.sampling.sharded.owner_names import name_sources
from leapmpi.sampling.sharded.topology_shard import TopologyShard, load_shard_of_topology, shard_bytes, shard_of
from leapmpi.system.memory import available_bytes, check_memory

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator
    from leapmpi.comm.world import World
    from leapmpi.sampling.sharded.list_copies import ListCopies

log = logging.getLogger("leapmpi")

SHARDED = "sharded"

_SHARE_OF_FREE = 2
"""A copy of the whole topology may take one in so many bytes of a node's free memory."""


def is_sharded(config: Config, dataset: Dataset, world: World) -> bool:
    """Return whether the topology of `dataset` is spread over the ranks. Collective.

    `auto` does so where a copy does not fit in half of the free memory of some node, there are several, and lists are
    not read from a file.

    Raises ConfigError, on all ranks alike, where it is required and something needs a whole one.
    """
    reason = world.on_all(lambda: check_topology(config, dataset))
    if config.run.topology != "auto":
        return config.run.topology == SHARDED
    if reason or world.nodes == 1:
        return False
    if config.run.topology_memory:
        return False
    # Free memory differs by node, and all ranks must choose alike: one node without space decides for all.
    free = available_bytes()
    needed = topology_bytes(dataset, uses_weights(config, dataset), uses_times(config, dataset))
    fits = free is None or needed * _SHARE_OF_FREE <= free
    return not all(all_gather_values(world.comm, bool(fits)))


def check_topology(config: Config, dataset: Dataset) -> str:
    """Return the reason of `why_whole`. Raises ConfigError if there is one and a sharded topology is required.
    Local.
    """
    reason = why_whole(config, dataset)
    if config.run.topology == SHARDED and reason:
        raise ConfigError(f"run.topology: sharded cannot serve this run: {reason}, or use --topology node")
    return reason


def why_whole(config: Config, dataset: Dataset) -> str:
    """Return why `config` needs the whole topology on every node, and what else to choose; empty where it does not.
    Local.
    """
    sampler, strategy = config.sampling.sampler, config.strategy
    if sources_named_by(sampler) is None:
        able = [name for name in SAMPLERS.names() if sources_named_by(name) is not None]
        choices = f"{', '.join(able[:-1])} or {able[-1]}"
        own = ", or leave collective out" if names_code(sampler) else ""
        return f"--sampler {sampler} reads more than the lists of destinations; choose {choices}{own}"
    times = reads_times(config) and options_of(SAMPLERS, sampler, config.sampling.options).root_time
    if times and times not in (AUTO, LATEST_EDGE):
        return (
            f"--sampler-option root-time=FILE gives times to all vertices; give root-time={LATEST_EDGE}, or import "
            "them (leapmpi-prep import --vertex-times)"
        )
    if bounds_by_root(config):
        return "--sampler-option bound=root draws with a bound for each root; leave it out"
    if task_of(config, dataset).roots == "edges" and negatives_named(config.link.negatives_and_file[0]).reads_lists:
        return "--negatives hard:FILE looks up vertices of all ranks; choose uniform"
    return strategy_named(strategy.name).why_whole_topology(strategy)


def load_lists(
    config: Config,
    world: World,
    dataset: Dataset,
    parts: range,
    communicator: Communicator,
    offsets: np.ndarray,
    sharded: bool,
    numbers: bool,
) -> tuple[Topology | TopologyShard, str]:
    """Load the topology, or this rank's shard of it if `sharded`; also return how it is held. Collective.

    offsets: int64[ranks + 1], first vertex of each rank; numbers: whether all lists of a shard are read, so that its
    sources are numbered.

    Raises ResourceError for lack of memory or disk, DataError for a damaged part, and ConfigError for a file in memory.
    """
    task, room = task_of(config, dataset), list_room(config)
    carried = uses_weights(config, dataset), uses_times(config, dataset), task.reads_edge_labels
    if not sharded:
        return share_topology(world, dataset, *carried, room)

    # Ranks of a node share its room.
    room = None if room is None else room // world.node_comm.size
    own = empty_topology(dataset, *carried, parts)
    in_file = own.exceeds(room)
    # All ranks find how often lists are read, if those of any are in a file.
    finds = any(all_gather_values(world.comm, in_file))
    finding = shared_reads_bytes(own.vertices, own.edges, dataset.vertices) if finds else 0
    needed = own.memory_bytes(room, finding) * world.node_comm.size
    what = "the shards of the graph's topology take"
    advice = "start ranks on more nodes, give --topology-memory, or use a smaller graph"
    world.on_all(lambda: check_memory(needed, what, world.host, advice))
    numbers = numbers or config.evaluation_takes_all
    named = world.on_all(lambda: names_sources(config, dataset, numbers))
    shard = world.on_all(lambda: load_shard_of_topology(dataset, parts, *carried, numbers or named, in_file))
    if named:
        shard = name_sources(shard, communicator, offsets)
    if in_file:
        read_singly(shard.own)
    return shard, SHARDED


class LoadedLists(NamedTuple):
    """The lists of a rank, and what exchanges about them need."""

    world: World
    dataset: Dataset
    topology: Topology | TopologyShard
    communicator: Communicator
    offsets: np.ndarray
    """int64[ranks + 1]: first vertex of each rank."""


def reads_of_own(config: Config, loaded: LoadedLists, shard: TopologyShard, fanouts: tuple[int, ...]) -> Reads:
    """Return how often hops of an iteration of all ranks read what this rank holds; see `shared_reads`. Collective."""
    roots = root_chances(config, loaded.dataset, shard.first, shard.end)
    return shared_reads(shard, loaded.communicator, loaded.offsets, roots, fanouts)


def hold_lists(config: Config, loaded: LoadedLists, reads: Reads | None = None) -> str:
    """Keep the most read lists in memory where they are in a file; return words on how they are held. Collective.

    reads: how often own lists of a shard are read, where that is known.
    """
    world, dataset, topology, *_ = loaded
    room, shard = list_room(config), topology if isinstance(topology, TopologyShard) else None
    lists = topology if isinstance(topology, Topology) else topology.own
    if room is None or not any(all_gather_values(world.comm, lists.in_file)):
        return ""
    # A list is read where a hop before the last one reached its vertex.
    *before, last = config.sampling.fanout
    if shard is not None:
        # Ranks of a node share its room, and all ranks read their lists.
        room = room // world.node_comm.size
        reads = reads or reads_of_own(config, loaded, shard, tuple(before))

    def hold() -> HeldLists | None:
        if not lists.in_file or (shard is None and world.node_comm.rank):
            return None
        if shard is not None and reads is not None:
            return hold_most_read(lists, reads.lists, last, room)
        roots = root_chances(config, dataset, 0, dataset.vertices)
        return hold_most_read(lists, included(lists.indptr, lists.indices, roots, tuple(before)), last, room)

    held = world.on_all(hold)
    figures = all_gather_values(world.comm, [held.nbytes, held.share, held.refused] if held else None)
    found = [each for each in figures if each]
    if not found:
        return ""
    sizes, shares, refused = zip(*found, strict=True)
    limit = "; more are not, since the system limits locked memory (ulimit -l)" if any(refused) else ""
    return f", lists in files, {size_text(sum(sizes))} of them held for {min(shares):.0%} of reads{limit}"


def lists_in_memory(config: Config, dataset: Dataset, topology: Topology, ranks: int, kind: str = "") -> list[int]:
    """Count bytes of memory for the whole `topology` by rank of a job on one node. Local.

    That is the node's copy, or an own shard, as `kind` or `config` says.
    """
    room = list_room(config)
    if (kind or config.run.topology) != SHARDED:
        return [topology.memory_bytes(room, READS_BYTES * dataset.vertices * topology.exceeds(room))] * ranks
    offsets, named = rank_offsets(dataset.offsets, ranks), names_sources(config, dataset)
    room = None if room is None else room // ranks
    shards = [shard_of(topology, *each, False) for each in pairwise(offsets.tolist())]
    finds = any(each.own.exceeds(room) for each in shards)

    def memory(shard: TopologyShard) -> int:
        finding = shared_reads_bytes(shard.own.vertices, shard.own.edges, dataset.vertices) if finds else 0
        return shard_bytes(shard, named, room, finding)

    return list(map(memory, shards))


def list_room(config: Config) -> int | None:
    """Return the bytes of memory that in-neighbour lists may take on a node; None: as many as they take.

    With `auto` none, until the split is chosen (chosen_split.py).
    """
    text = config.run.topology_memory
    if text == AUTO_SIZE:
        return 0
    return parse_size(text, "run.topology_memory") if text else None


def room_for_copies(config: Config, dataset: Dataset, lists: int, ranks: int) -> int | None:
    """Return the bytes for copies of remote lists on a rank whose own lists take `lists` bytes. Local.

    That is what they leave of the room that `ranks` ranks of a node share. None, on all ranks alike, where lists have
    no limit, or edges are trained, which are left out of the lists of their owners.
    """
    room = list_room(config)
    if room is None or task_of(config, dataset).roots == "edges":
        return None
    return max(0, room // ranks - lists)


def logs_copies(communicator: Communicator) -> Callable[[ListCopies], None]:
    """Return a function that logs what copies of all ranks take and spare. It is collective."""

    def log_copies(copies: ListCopies) -> None:
        figures = communicator.all_gather_rows(np.array([copies.nbytes, round(1000 * copies.spared)]))
        size, spared = size_text(int(figures[:, 0].sum())), figures[:, 1].mean() / 10
        log.info(
            "most read lists of other ranks are copied: %s in all; spares %.0f %% of sampling's bytes", size, spared
        )

    return log_copies


def root_chances(config: Config, dataset: Dataset, first: int, end: int) -> np.ndarray:
    """Return the chance of each vertex from `first` to `end` (exclusive) to be a root of an iteration: float64[n]."""
    train, batch = dataset.splits.train, config.train.batch_size
    if task_of(config, dataset).roots == "edges" or not len(train):
        return np.full(end - first, min(1.0, 2 * batch / max(1, dataset.vertices)))
    chances = np.zeros(end - first)
    chances[train[(train >= first) & (train < end)] - first] = min(1.0, batch / len(train))
    return chances


def sources_named_by(sampler: str) -> bool | None:
    """Return whether `sampler` reads original ids or in-degrees of sources; None where it cannot draw from a shard."""
    if names_code(sampler):
        # Imported on demand: no other job compiles users' code.
        from leapmpi.sampling.user_samplers.compile import load_custom

        # It reads original ids of in-neighbours: of one list, unless all transits draw together.
        return None if load_custom(sampler).collective else True
    found = SAMPLERS.load(sampler).sharded
    return found == NAMED_LISTS if found else None


def names_sources(config: Config, dataset: Dataset, exact: bool = False) -> bool:
    """Return whether a shard holds original ids and in-degrees of the sources of its edges. Local.

    exact: whether models are run on all in-neighbours, too. Raises ConfigError for one that cannot be built.
    """
    # What edges carry is looked up by original ids; edges that are roots are ordered by them.
    carries = uses_weights(config, dataset) or reads_features(config, dataset)
    if carries or sources_named_by(config.sampling.sampler) or task_of(config, dataset).roots == "edges":
        return True
    return exact and any(
        layer.traits.reads_names for each in models_of(config) for layer in model_of(each, dataset).layers
    )


def reads_last_sources(config: Config, dataset: Dataset) -> bool:
    """Return whether a model reads original ids or in-degrees of sources that draw nothing. Local.

    They are those of its first layer; of every layer where each draws by itself. Raises ConfigError for a model that
    cannot be built.
    """
    models = (model_of(each, dataset).layers for each in models_of(config))
    by_layer = strategy_named(config.strategy.name).by_layer
    return any(reads_sources(layer) for layers in models for layer in (layers if by_layer else layers[:1]))
