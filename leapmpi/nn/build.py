"""Builds the model that a config names, with its initial weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from leapmpi.errors import ConfigError
from leapmpi.nn.initial import initialise
from leapmpi.nn.model import Model
from leapmpi.registry import Registry

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.config.sections import ModelConfig
    from leapmpi.dataset.partitioned import Dataset

MODELS = Registry("model", "leapmpi.nn.models")


def build_model(
    config: ModelConfig, layers: int, in_dim: int, out_dim: int, seed: int, dtype: torch.dtype = torch.float32
) -> Model:
    """The model named config.name, on the CPU, with weights that depend on `seed` and parameter names alone.

    `layers` is the number of blocks, `in_dim` that of features, `out_dim` that of classes. Raises ConfigError for an
    unknown model or unsuitable sizes.
    """
    if layers < 1:
        raise ConfigError(f"a model needs at least one layer, that is one fan-out, not {layers}")
    if in_dim < 1 or out_dim < 1:
        raise ConfigError(f"a model needs features and classes; the dataset has {in_dim} features, {out_dim} classes")
    model = MODELS.load(config.name).build(config, layers, in_dim, out_dim).to(dtype)
    initialise(model, seed)
    return model


def model_of(config: Config, dataset: Dataset) -> Model:
    """The model that `config` describes for `dataset`, with its initial weights, on the CPU.

    Raises ConfigError for an unknown model or unsuitable sizes.
    """
    layers, dtype = len(config.sampling.fanout), getattr(torch, config.train.dtype)
    return build_model(config.model, layers, dataset.feature_dim, dataset.classes, config.model_seed, dtype)
