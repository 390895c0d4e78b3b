"""From a dataset to everything that a strategy works with on this rank."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.launcher import local_rank
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.comm.world import World, cuda_aware, load_mpi
from leapmpi.config.schema import Config
from leapmpi.config.setting import FULL_BATCH
from leapmpi.dataset.partitioned import Dataset, Part, open_dataset
from leapmpi.dataset.topology import Topology
from leapmpi.dataset.verify import verify, verify_digests, verify_ranges
from leapmpi.device.device_sampler import on_device
from leapmpi.engine.edge_features import edge_fetcher, edge_rows, reads_features
from leapmpi.engine.own_model import model_on_all
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ConfigError, DataError
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.packed_rows import packing
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.fetcher_choice import fetcher_class
from leapmpi.features.learned_rows import LearnedRows
from leapmpi.features.node_shared import share_entry_counts
from leapmpi.features.row_memory import RowMemory, room_of
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.mapped_shard import dense_shard
from leapmpi.features.shards.row_placement import load_shard, room_for_topology, sharers
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.features.typed_shard import TypedShard
from leapmpi.nn.kernels.kernel_choice import autocast, set_stand_in
from leapmpi.nn.layer import reads_sources
from leapmpi.nn.model import input_width, model_of, schema_of_typed
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.task import Task, task_of
from leapmpi.plan.homes import part_starts, rank_offsets
from leapmpi.plan.machine_rates import DOCUMENTED, MachineRates
from leapmpi.runs.progress_line import step
from leapmpi.sampling.construction.build import build_sampler, build_sharded_sampler, largest_number
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.root_times import share_times
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.session.chosen_split import settle_split
from leapmpi.session.label_statistics import prepare_loss
from leapmpi.session.topology_kind import (
    LoadedLists,
    hold_lists,
    is_sharded,
    load_lists,
    logs_copies,
    reads_last_sources,
    room_for_copies,
)
from leapmpi.system.allocator import keep_freed_memory
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.system.worker_threads import set_threads

_VERIFY_BYTES = 1 << 30

_MOST_READ_PARTS = 64
"""Most parts for which each rank reads original ids of all to verify its own: if there are more, digests have to do."""


def choose_device(setting: str) -> torch.device:
    """Return the device of this rank, by its number on the node; must run before MPI starts so that MPI sees it
    selected.
    """
    set_stand_in(setting == "stand-in")
    if setting in ("cpu", "stand-in") or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def check_device(setting: str, device: torch.device) -> None:
    """Raise ConfigError when a GPU is requested and `device` is none."""
    if setting == "cuda" and device.type != "cuda":
        host = socket.gethostname()
        raise ConfigError(f"run.device: cuda was requested, but torch sees no GPU on {host}; use --device auto or cpu")


def open_for_training(config: Config) -> Dataset:
    """Open the dataset and make sure that it can be trained on. Raises DataError, ConfigError."""
    if not config.data:
        raise ConfigError("no dataset given; name its folder, as in leapmpi train data/")
    dataset = open_dataset(config.data, typed=True)
    if not input_width(config, dataset):
        raise DataError(
            f"{config.data} has no features, which training needs; import the graph again with features, or learn a "
            "row for each vertex: --missing-features learned:64"
        )
    if task_of(config, dataset).roots == "edges":
        return dataset.of_edges()
    if not len(dataset.splits.train):
        raise DataError(f"{config.data} has no training vertices; import the graph again with --splits")
    return dataset


def with_batch_size(config: Config, dataset: Dataset) -> Config:
    """Return `config` with the number of training vertices in the place of `--batch-size full`.

    Raises ConfigError where the strategy trains mini-batches only, or no vertices are trained.
    """
    if config.train.batch_size != FULL_BATCH:
        return config
    name = config.strategy.name
    if not strategy_named(name).takes_full_batch:
        raise ConfigError(
            f"train.batch_size: {name} trains mini-batches; give a number, or use leap, pull, depcomm, "
            "depcache or hybrid"
        )
    if task_of(config, dataset).roots == "edges":
        raise ConfigError("train.batch_size: full means all training vertices; give a number with --task link")
    return config.replaced({"train.batch_size": len(dataset.splits.train)}, "--batch-size full")


def load(
    config: Config,
    dataset: Dataset,
    world: World,
    device: torch.device,
    phases: PhaseTimers,
    rates: MachineRates = DOCUMENTED,
    starts: np.ndarray | None = None,
    reads_all_lists: bool = False,
) -> Loaded:
    """Load this rank's parts of `dataset`, the node's topology and the model. Collective.

    Open choices will rest on `rates`. starts: int64[ranks + 1], the first part of each rank; None for about as many on
    each. reads_all_lists: each rank reads all lists of its vertices, and no others: the topology is sharded.
    Raises DataError for a damaged dataset and ConfigError for one that does not fit the ranks, on all ranks alike.
    """
    use_threads(config, world.threads)
    # This rank's parts are verified before their bytes are trusted.
    starts = world.on_all(lambda: part_starts(dataset.parts, world.size)) if starts is None else starts
    offsets, parts = rank_offsets(dataset.offsets, world.size, starts), _parts_of(starts, world.rank)
    sharded = reads_all_lists or is_sharded(config, dataset, world)
    verified = world.on_all(lambda: _verify(config, dataset, parts, sharded))
    opened, own = [dataset.part(part) for part in parts], offsets[world.rank : world.rank + 2].tolist()
    direct = device.type == "cuda" and direct_path(config.run.mpi_device_path)[0]
    communicator = MPICommunicator(world.comm, direct=direct, ahead=world.ahead_comms)
    topology, held = load_lists(config, world, dataset, parts, communicator, offsets, sharded, reads_all_lists)
    lists = LoadedLists(world, dataset, topology, communicator, offsets)
    config, split, reads_of_lists = (config, None, None) if reads_all_lists else settle_split(config, lists)
    host, learned = _held_rows(config, world, dataset, topology, parts, own)
    shared, dtype = sharers(world, device), getattr(torch, config.train.parameter_dtype)

    # Where models differ the first of them: `config` may describe one that nobody trains, or that cannot be.
    model = model_on_all(config, dataset, world).to(device)
    task, reads = task_of(config, dataset), reads_features(config, dataset)
    sampler = on_device(_sampler(config, lists), device, room_for_topology(device, shared))
    held += "" if reads_all_lists else hold_lists(config, lists, reads_of_lists)
    shard = host if learned or dataset.types else load_shard(host, device, shared)
    label_rows = _labels(opened, own[0], task)
    features = fetcher_class(shard)(communicator, shard, offsets, device, dtype, "features", phases)
    features.learned = learned
    ctx = RankContext(
        communicator=communicator,
        phases=phases,
        sampler=sampler,
        model=model,
        task=task,
        parameters=ParameterLayout(model),
        features=features,
        labels=FeatureFetcher(communicator, label_rows, offsets, device, task.label_dtype(dtype), "labels", phases),
        rank_offsets=offsets,
        device=device,
        seed=config.train.seed,
        machine=rates,
        packing=packing(rates.byte, world.nodes),
        edge_features=edge_fetcher(communicator, dataset, opened, device, dtype, phases, starts) if reads else None,
        answers=sampler.answers if isinstance(sampler, ShardedSampler) else None,
    )
    prepare_loss(config, world, dataset, ctx)
    keep_freed_memory()
    return Loaded(dataset, topology, held, parts, starts, host.nbytes, ctx, verified, shared=shared, split=split)


def _held_rows(
    config: Config, world: World, dataset: Dataset, topology: Topology | TopologyShard, parts: range, own: list[int]
) -> tuple[HostShard, LearnedRows | None]:
    """Return the feature rows of the vertices own[0] to own[1], and those that training moves, if any. Collective."""
    if dataset.types is not None or not dataset.feature_dim:
        return world.on_all(lambda: _learning_rows(config, dataset, topology, parts, own))
    counts, opened = share_entry_counts(world, dataset) if dataset.sparse else None, map(dataset.part, parts)
    return world.on_all(lambda: _shard(config, list(opened), own[0], counts)), None


def use_threads(config: Config, threads: int) -> None:
    """Compute on `threads` threads, in the type of `config`."""
    torch.set_num_threads(threads)
    set_threads(threads)
    autocast(config.train.dtype)


def load_reassigned(config: Config, world: World, loaded: Loaded, starts: np.ndarray) -> Loaded:
    """Return `loaded` with the parts of its dataset distributed by `starts`, int64[ranks + 1]. Collective.

    Features and labels are read again; topology, model and communicator stay. Raises DataError, on all ranks alike, for
    a damaged part.
    """
    dataset, ctx = loaded.dataset, loaded.ctx
    offsets, parts = rank_offsets(dataset.offsets, world.size, starts), _parts_of(starts, world.rank)
    verified = world.on_all(lambda: _verify(config, dataset, parts, True))
    # Only what depends on the distribution of parts is made again.
    opened, first = [dataset.part(part) for part in parts], int(offsets[world.rank])
    held, edges = ctx.features.shard, ctx.edge_features
    if dataset.types is not None:
        host: HostShard = typed_shard_of(config, dataset, parts, None)
    else:
        host = _shard(config, opened, first, held.entry_counts if isinstance(held, SparseShard) else None)
    shard = host if dataset.types is not None else load_shard(host, ctx.device, loaded.shared)
    moved = replace(
        ctx,
        features=ctx.features.holding(shard, offsets),
        labels=ctx.labels.holding(_labels(opened, first, ctx.task), offsets),
        rank_offsets=offsets,
        edge_features=edges and edges.holding(*edge_rows(dataset, opened, world.rank, world.size, starts)),
    )
    return replace(loaded, parts=parts, starts=starts, shard_bytes=host.nbytes, ctx=moved, verified=verified)


def _parts_of(starts: np.ndarray, rank: int) -> range:
    first, end = starts[rank : rank + 2].tolist()
    return range(first, end)


def _shard(config: Config, parts: Sequence[Part], first: int, entry_counts: np.ndarray | None) -> HostShard:
    """Return the features of `parts`, whose first vertex is `first`; `entry_counts` int32[n] of all vertices if sparse.

    Raises ConfigError where `--feature-memory` is too small.
    """
    if entry_counts is not None:
        return SparseShard([part.sparse_features for part in parts], first, entry_counts)
    return dense_shard(parts, first, room_of(config))


def _sampler(config: Config, lists: LoadedLists) -> Sampler:
    """Return the sampler of `lists`. Collective."""
    world, dataset, topology, communicator, offsets = lists
    reads = reads_features(config, dataset)
    if isinstance(topology, Topology):
        train, threads = dataset.splits.train, world.threads
        return world.on_all(lambda: build_sampler(config, topology, train, threads, reads))
    numbers = all_gather_values(world.comm, largest_number(topology.own, dataset.vertices, config.sampling.fanout))
    last = world.on_all(lambda: reads_last_sources(config, dataset))
    room = room_for_copies(config, dataset, topology.own.list_bytes, world.node_comm.size)
    arguments = config, topology, communicator, offsets, dataset, max(numbers), world.threads, reads, last, room
    sampler = world.on_all(lambda: build_sharded_sampler(*arguments))
    sampler.when_copied = logs_copies(communicator)
    # Draws by time read times of vertices or edges that other ranks hold: these are exchanged once.
    on_edges = task_of(config, dataset).roots == "edges"
    splits = None if on_edges else vars(dataset.splits).values()
    share_times(sampler.inner, topology, communicator, offsets, splits)
    # Rank 0 orders the roots of all epochs.
    roots = np.empty(0, np.int64) if on_edges or world.rank else np.asarray(dataset.splits.train, np.int64)
    sampler.name_roots(roots)
    return sampler


def _labels(parts: Sequence[Part], first: int, task: Task) -> HostShard:
    """Return the labels of `parts`, whose first vertex is `first`: zeros where they have none, or edges are trained."""
    known = [part.labels if task.roots == "vertices" else None for part in parts]
    zeros = (np.zeros(part.vertices, np.int64) for part in parts)
    return HostShard([zero if each is None else each for each, zero in zip(known, zeros, strict=True)], first)


def _learning_rows(
    config: Config, dataset: Dataset, topology: Topology | TopologyShard, parts: range, own: list[int]
) -> tuple[HostShard, LearnedRows | None]:
    """Return the rows of a typed dataset, or of one without features, with those that training moves, if any. Local."""
    if dataset.types is None:
        learned = _first_rows(config, dataset, topology, *own)
        return learned.shard, learned
    by_type = _first_rows_by_type(config, dataset, topology, parts, own[0])
    return typed_shard_of(config, dataset, parts, by_type), by_type


def with_new_model(config: Config, loaded: Loaded) -> Loaded:
    """Return the same data with a new model of `config`, and its own way to fetch rows."""
    ctx = loaded.ctx
    model = model_of(config, loaded.dataset).to(ctx.device)
    shard, learned = ctx.features.shard, None
    if ctx.learned:
        shard, learned = _learning_rows(config, loaded.dataset, loaded.topology, loaded.parts, list(ctx.local_range))
    features = ctx.features.holding(shard, ctx.rank_offsets)
    features.learned = learned
    sampler, answers = ctx.sampler, ctx.answers
    if isinstance(sampler, ShardedSampler) and reads_sources(model.layers[0]):
        # The model before may have read less.
        sampler = sampler.describing_all()
        answers = sampler.answers
    ctx = replace(ctx, model=model, parameters=ParameterLayout(model), features=features)
    return replace(loaded, ctx=replace(ctx, sampler=sampler, answers=answers))


def _first_rows(
    config: Config, dataset: Dataset, topology: Topology | TopologyShard, first: int, end: int
) -> LearnedRows:
    """Return the rows of the vertices `first` to `end`, where nothing is learned yet. Local."""
    width = input_width(config, dataset)
    if isinstance(topology, Topology):
        original = topology.original_id[first:end]
    else:
        original = topology.own.original_id[: end - first]
    return LearnedRows(original, first, width, config.train.parameter_dtype, config.model_seed, room=room_of(config))


def typed_shard_of(config: Config, dataset: Dataset, parts: range, learned: LearnedRows | None) -> TypedShard:
    """Return the input rows of `parts` of a typed dataset; nothing is read. `learned` as in TypedShard."""
    rows = [dataset.part(part).typed for part in parts]
    found = [each for each in rows if each is not None]
    columns, width = schema_of_typed(config, dataset).learned, input_width(config, dataset)
    dtype = config.train.parameter_dtype
    values, memory = (learned.values, learned.memory) if learned else (None, RowMemory(room_of(config)))
    return TypedShard(dataset, parts, found, width, columns, dtype, values, memory)


def _first_rows_by_type(
    config: Config, dataset: Dataset, topology: Topology | TopologyShard, parts: range, first: int
) -> LearnedRows | None:
    """Return the rows of the vertices of `parts` whose types learn rows, type by type; None where no type does."""
    columns = schema_of_typed(config, dataset).learned
    if not columns.any():
        return None
    assert dataset.types, "typed datasets have types"
    assert dataset.type_offsets is not None, "typed datasets say where types begin"
    held = topology if isinstance(topology, Topology) else topology.own
    offsets = dataset.type_offsets[parts.start : parts.stop] - (0 if isinstance(topology, Topology) else first)
    sections = [slice(*each[t : t + 2].tolist()) for t in np.flatnonzero(columns) for each in offsets]
    original, width = np.concatenate([held.original_id[section] for section in sections]), int(columns.max())
    # Glorot's range of a matrix of all rows of the type.
    sizes = np.array([each.vertices for each in dataset.types.vertices])
    bound = np.sqrt(6 / (sizes + width))[dataset.types.of_original(original)]
    return LearnedRows(original, 0, width, config.train.parameter_dtype, config.model_seed, bound, room_of(config))


def direct_path(setting: str) -> tuple[bool, str]:
    """Return whether device memory goes to MPI directly, and why. MPI must have been started."""
    if setting != "auto":
        return setting == "cuda", f"--mpi-device-path {setting}"
    return cuda_aware(load_mpi())


def _verify(config: Config, dataset: Dataset, parts: range, sharded: bool) -> bool:
    """Check this rank's parts, large features only where all is to be verified; returns whether features were.

    sharded: nothing as long as the graph is read.
    """
    if config.run.verify == "none":
        verify_ranges(dataset, parts)
        return False
    if dataset.types is not None:
        size = sum(array.nbytes for part in parts for _, _, array in dataset.part(part).sections() if array is not None)
    elif dataset.sparse:
        size = sum(dataset.part(part).sparse_features.nbytes for part in parts)
    else:
        size = int(dataset.offsets[parts.stop] - dataset.offsets[parts.start]) * dataset.feature_dim * 4
    features = size <= _VERIFY_BYTES or config.run.verify == "all"
    # Checking values looks up ids of neighbours in all parts; digests need none but the own ones.
    if sharded or dataset.parts > _MOST_READ_PARTS:
        verify_digests(dataset, parts, features)
    else:
        mine = int(dataset.offsets[parts.stop] - dataset.offsets[parts.start])
        first = int(dataset.offsets[parts.start])
        with step("loading: checked", mine, "vertices") as shown:
            verify(dataset, parts=parts, features=features, progress=lambda done: shown.reach(done - first))
    return features
