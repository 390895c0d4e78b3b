"""`--topology`: whether every node holds a copy of the whole topology, or every rank the lists of its own vertices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapmpi.comm.collectives import all_gather_values
from leapmpi.config.options import SAMPLERS, options_of
from leapmpi.config.schema import Config, models_of
from leapmpi.config.setting import names_code
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import topology_bytes
from leapmpi.engine.edge_features import reads_features
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ConfigError
from leapmpi.nn.layer import reads_sources
from leapmpi.nn.model import model_of
from leapmpi.nn.task import task_of
from leapmpi.sampling.edge_lookup import bounds_by_root, reads_times, uses_times, uses_weights
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.sampler import NAMED_LISTS
from leapmpi.sampling.samplers.temporal import AUTO, LATEST_EDGE
from leapmpi.system.memory import available_bytes

if TYPE_CHECKING:
    from leapmpi.comm.world import World

SHARDED = "sharded"

_SHARE_OF_FREE = 2
"""A copy of the whole topology may take one in so many bytes of a node's free memory."""


def is_sharded(config: Config, dataset: Dataset, world: World) -> bool:
    """Return whether the topology of `dataset` is spread over the ranks. Collective.

    `auto` does so where a copy does not fit in half of the free memory of some node, and there are several.

    Raises ConfigError, on all ranks alike, where it is required and something needs a whole one.
    """
    reason = world.on_all(lambda: check_topology(config, dataset))
    if config.run.topology != "auto":
        return config.run.topology == SHARDED
    if reason or world.nodes == 1:
        return False
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
        return f"--sampler {sampler} reads more than the lists of destinations; choose {choices}"
    times = reads_times(config) and options_of(SAMPLERS, sampler, config.sampling.options).root_time
    if times and times not in (AUTO, LATEST_EDGE):
        return f"--sampler-option root-time=FILE gives times to all vertices; give root-time={LATEST_EDGE}"
    if bounds_by_root(config):
        return "--sampler-option bound=root draws with a bound for each root; leave it out"
    if why := strategy_named(strategy.name).why_whole_topology(strategy):
        return why
    if strategy.cache:
        return "--cache scores the vertices of all lists; leave it out"
    if strategy.feature_memory:
        return "--feature-memory scores the vertices of all lists; leave it out"
    return ""


def sources_named_by(sampler: str) -> bool | None:
    """Return whether `sampler` reads original ids or in-degrees of sources; None where it cannot draw from a shard."""
    found = "" if names_code(sampler) else SAMPLERS.load(sampler).sharded
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


def scores_exactly(config: Config) -> bool:
    """Return whether splits are scored by all in-neighbours. Local."""
    return set(config.evaluation_fanout) == {ALL}


def reads_last_sources(config: Config, dataset: Dataset) -> bool:
    """Return whether a model reads original ids or in-degrees of sources that draw nothing. Local.

    They are those of its first layer; of every layer where each draws by itself. Raises ConfigError for a model that
    cannot be built.
    """
    models = (model_of(each, dataset).layers for each in models_of(config))
    by_layer = strategy_named(config.strategy.name).by_layer
    return any(reads_sources(layer) for layers in models for layer in (layers if by_layer else layers[:1]))
