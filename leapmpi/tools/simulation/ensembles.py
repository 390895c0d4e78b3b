"""Models that differ (`--replicas independent`) in a forecast."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from leapmpi.config.schema import Config
from leapmpi.config.vary import variations
from leapmpi.dataset.partitioned import Dataset
from leapmpi.nn.build import build_model
from leapmpi.nn.parameters import ParameterLayout


def seated(config: Config, dataset: Dataset) -> tuple[Config, Sequence[int]]:
    """The config by which ranks are seated, and the bytes of each model's parameters; empty where there is one model.

    Of several models, which fetch raw rows once for all, the largest stands for what an iteration holds.
    """
    if config.strategy.replicas != "independent":
        return config, ()
    configs = [each.replaced({"strategy.remote": "raw"}) for each in variations(config).values()]
    sizes = [_parameter_bytes(each, dataset) for each in configs]
    return configs[sizes.index(max(sizes))], sizes


def _parameter_bytes(config: Config, dataset: Dataset) -> int:
    layers, dtype = len(config.sampling.fanout), getattr(torch, config.train.dtype)
    model = build_model(config.model, layers, dataset.feature_dim, dataset.classes, config.train.seed, dtype)
    return ParameterLayout(model).gradients.nbytes
