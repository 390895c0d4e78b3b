"""From the config to a sampler."""

from __future__ import annotations

import numpy as np

from leapmpi.config.options import SAMPLERS, sampler_options
from leapmpi.config.schema import Config
from leapmpi.config.setting import names_code
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.sampler import Sampler, Setup


def build_sampler(
    config: Config, topology: Topology, train: np.ndarray, threads: int = 1, edge_numbers: bool = False
) -> Sampler:
    """The sampler that `config` names, for batches of the training vertices `train` (int64[t], renumbered ids).

    edge_numbers: whether blocks carry the numbers of their edges, for features of edges.

    Raises ConfigError for fan-outs and options that it does not take, and for a model that cannot use its edge weights.
    """
    setup, name = Setup(topology, config.sampling.fanout, train, config.train.seed, threads), config.sampling.sampler
    if names_code(name):
        from leapmpi.sampling.custom.compile import load_custom
        from leapmpi.sampling.custom.samplers import custom_sampler

        sampler = custom_sampler(setup, load_custom(name), config.sampling)
    else:
        sampler = SAMPLERS.load(name).build(setup, sampler_options(name, config.sampling.options))
    if sampler.weighted and config.model.aggregate == "max":
        raise ConfigError(
            f"model.aggregate = max has no use for the edge weights of --sampler {name}; "
            "pass --aggregate mean, or another --sampler"
        )
    return with_edge_data(sampler, edge_numbers)
