"""Construction of samplers from the config."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.config.options import SAMPLERS, given_option, options_of
from leapmpi.config.schema import Config
from leapmpi.config.setting import names_code
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.relation_lists import relation_fanouts
from leapmpi.sampling.sampler import Sampler, Setup
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.sharded.answer_format import answer_format
from leapmpi.sampling.sharded.frontier_ranks import FrontierRanks
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator


def build_sampler(
    config: Config, topology: Topology, train: np.ndarray, threads: int = 1, edge_numbers: bool = False
) -> Sampler:
    """Build the sampler named by `config`, with edge data in its blocks. See `drawing_sampler`.

    edge_numbers: whether blocks carry the numbers of their edges, for edge features.
    """
    return with_edge_data(drawing_sampler(config, topology, train, threads), edge_numbers)


def build_sharded_sampler(
    config: Config,
    shard: TopologyShard,
    communicator: Communicator,
    rank_offsets: np.ndarray,
    dataset: Dataset,
    largest: int,
    threads: int = 1,
    edge_numbers: bool = False,
    last: bool = True,
    room: int | None = None,
) -> ShardedSampler:
    """Build the same sampler for a rank that holds only `shard`.

    rank_offsets: int64[ranks + 1], first vertex of each rank; largest: maximum over ranks of `largest_number`; last:
    whether the last hop's sources are described; room: bytes for copies of remote lists, None for no copies.
    """
    # The same sampler as with a whole topology draws from the shard, so that draws are the same (rule R1).
    inner = drawing_sampler(config, shard.own, np.empty(0, np.int64), threads)
    assert isinstance(inner, HopSampler), "the samplers that draw from shards go hop by hop"
    carried = shard.own.edge_weight is not None
    if isinstance(inner, RandomWalk) and (carried or edge_numbers):
        raise ConfigError(
            "--sampler random-walk may join vertices without an edge between them, which have no edge data; choose "
            "another --sampler, or --edge-weights ignore and a model without edge features"
        )
    if isinstance(inner, FrontierSampler):
        inner.share(FrontierRanks(shard, communicator, rank_offsets))
    answers = answer_format(
        largest, dataset.edges, inner.weighted, edge_numbers, carried, last, dataset.types is not None
    )
    sampler = ShardedSampler(inner, shard, communicator, rank_offsets, answers, partial(original_ids, dataset))
    if room is not None and inner.draws_from_copies and not answers.numbers:
        sampler.copy_lists(room)
    return sampler


def largest_number(topology: Topology, vertices: int, fanouts: tuple[int, ...]) -> int:
    """Return the largest number in any reply about `topology`, of a graph of `vertices` vertices."""
    return max(vertices, *fanouts, int(topology.original_id.max(initial=0)), int(topology.degrees.max(initial=0)))


def drawing_sampler(config: Config, topology: Topology, train: np.ndarray, threads: int = 1) -> Sampler:
    """Build the sampler itself, for batches of the training vertices `train` (int64[t], renumbered ids).

    Raises ConfigError for unusable fan-outs and options, and for a model that cannot use its edge weights.
    """
    sampling, types, name = config.sampling, topology.types, config.sampling.sampler
    of_relations = relation_fanouts(types, sampling.fanout, sampling.relation_fanout) if types else None
    setup = Setup(topology, sampling.fanout, train, config.train.seed, threads, of_relations)
    # Imported on demand: compiling users' code is not needed by any other job.
    if names_code(name):
        from leapmpi.sampling.user_samplers.compile import load_custom
        from leapmpi.sampling.user_samplers.samplers import custom_sampler

        sampler = custom_sampler(setup, load_custom(name), config.sampling)
    else:
        sampler = SAMPLERS.load(name).build(setup, options_of(SAMPLERS, name, config.sampling.options))
    if sampler.weighted and given_option(config.model.options, "aggregate") == "max":
        raise ConfigError(
            f"--model-option aggregate=max has no use for the edge weights of --sampler {name}; "
            "give aggregate=mean, or another --sampler"
        )
    return sampler
