"""From the config to a sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leapmpi.config.options import parse_options
from leapmpi.config.setting import names_code
from leapmpi.errors import ConfigError
from leapmpi.registry import Registry

if TYPE_CHECKING:
    import numpy as np

    from leapmpi.config.schema import Config, SamplingConfig
    from leapmpi.dataset.topology import Topology
    from leapmpi.sampling.sampler import Sampler

SAMPLERS = Registry("sampler", "leapmpi.sampling.samplers")


def check_sampler(config: SamplingConfig) -> None:
    """Raise ConfigError for options that the sampler does not take. Loads no code of the user's."""
    if not names_code(config.sampler):
        _options(config, SAMPLERS.load(config.sampler))


def build_sampler(config: Config, topology: Topology, train: np.ndarray, threads: int = 1) -> Sampler:
    """The sampler that `config` names, for batches of the training vertices `train` (int64[t], renumbered ids).

    Raises ConfigError for fan-outs and options that it cannot take, and for a model that has no use for its weights.
    """
    sampler = _built(config, topology, train, threads)
    if sampler.weighted and config.model.aggregate == "max":
        raise ConfigError(
            f"model.aggregate = max has no use for the edge weights of --sampler {config.sampling.sampler}; "
            "pass --aggregate mean, or another --sampler"
        )
    return sampler


def _built(config: Config, topology: Topology, train: np.ndarray, threads: int) -> Sampler:
    from leapmpi.sampling.sampler import Setup

    setup = Setup(topology, config.sampling.fanout, train, config.train.seed, threads)
    if names_code(config.sampling.sampler):
        from leapmpi.sampling.custom.compile import load_own
        from leapmpi.sampling.custom.samplers import own_sampler

        return own_sampler(setup, load_own(config.sampling.sampler), config.sampling)
    module = SAMPLERS.load(config.sampling.sampler)
    return module.build(setup, _options(config.sampling, module))


def _options(config: SamplingConfig, module: Any) -> Any:
    return parse_options(getattr(module, "Options", None), config.options, config.sampler)
