"""From the config to a sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapmpi.config.options import SAMPLERS, sampler_options
from leapmpi.config.setting import names_code
from leapmpi.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from leapmpi.config.schema import Config
    from leapmpi.dataset.topology import Topology
    from leapmpi.sampling.sampler import Sampler


def build_sampler(config: Config, topology: Topology, train: np.ndarray, threads: int = 1) -> Sampler:
    """The sampler that `config` names, for batches of the training vertices `train` (int64[t], renumbered ids).

    Raises ConfigError for fan-outs and options that it does not take, and for a model that cannot use its edge weights.
    """
    sampler = _build(config, topology, train, threads)
    if sampler.weighted and config.model.aggregate == "max":
        raise ConfigError(
            f"model.aggregate = max has no use for the edge weights of --sampler {config.sampling.sampler}; "
            "pass --aggregate mean, or another --sampler"
        )
    return sampler


def _build(config: Config, topology: Topology, train: np.ndarray, threads: int) -> Sampler:
    from leapmpi.sampling.sampler import Setup

    setup = Setup(topology, config.sampling.fanout, train, config.train.seed, threads)
    if names_code(config.sampling.sampler):
        from leapmpi.sampling.custom.compile import load_custom
        from leapmpi.sampling.custom.samplers import custom_sampler

        return custom_sampler(setup, load_custom(config.sampling.sampler), config.sampling)
    options = sampler_options(config.sampling.sampler, config.sampling.options)
    return SAMPLERS.load(config.sampling.sampler).build(setup, options)
