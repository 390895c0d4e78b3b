"""Facts about strategy, dataset and job that decide which settings go together (compatibility.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from leapmpi.config.link import LinkConfig
from leapmpi.config.options import given_option
from leapmpi.config.sections import (
    EvaluateConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    StrategyConfig,
    TrainConfig,
)
from leapmpi.config.setting import AUTO_SIZE, names_code


class Settings(Protocol):
    """The sections of a config that conditions read."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def sampling(self) -> SamplingConfig: ...
    @property
    def strategy(self) -> StrategyConfig: ...
    @property
    def train(self) -> TrainConfig: ...
    @property
    def evaluate(self) -> EvaluateConfig: ...
    @property
    def link(self) -> LinkConfig: ...
    @property
    def run(self) -> RunConfig: ...


def mixes_attention(config: Settings) -> bool:
    """Return whether layers mix the attention of an edge with that of the layer below: a beta that is not 0."""
    model = config.model
    return model.name == "simple-hgn" and given_option(model.options, "beta").strip("-0.e") != ""


@dataclass(frozen=True)
class Facts:
    """Facts that conditions read. Unknown facts keep their defaults, with which no row holds."""

    config: Settings
    own_mode: bool = False
    """Whether the strategy has a way of its own to feed the first layer (p3, naive)."""
    reassigns_parts: bool = True
    """Whether the strategy can reassign the dataset's parts to ranks."""
    features: bool = True
    """Whether the dataset has features."""
    edge_weights: bool = True
    """Whether its edges have weights."""
    roots: str = ""
    """Kind of roots: "vertices" or "edges"."""
    validation: bool = True
    """Whether there is something to validate by."""
    answers: str = "regression"
    """Answer of the task."""
    edge_labels: bool = False
    """Whether the task reads classes of edges."""
    typed: bool = False
    """Whether the graph has types of vertices and relations."""
    draws_by_relation: bool = True
    """Whether the sampler draws from typed graphs."""
    optimizers: tuple[str, ...] = ("sgd",)
    """Those of all models."""
    bounds_by_root: bool = False
    """Whether each root bounds by its own time what is drawn for it."""
    by_layer: bool = False
    """Whether the strategy computes layer by layer, at owners."""
    ranks: int = 0
    parts: int = 0
    steps: int = 0
    """Time steps, 0 while they are not chosen."""
    fetches_before_step: bool = False
    """Whether rows are fetched before the step, without weights."""
    on_host: bool = False
    """Whether the CPU multiplies."""
    on_cpu: bool = False
    """Whether there is no GPU."""

    @property
    def learned(self) -> bool:
        """Whether rows are learned in place of features."""
        return not self.features

    @property
    def own_model(self) -> bool:
        """Whether the model is a module of the user."""
        return names_code(self.config.model.name)

    @property
    def varies(self) -> bool:
        """Whether several models are trained."""
        return bool(self.config.strategy.vary)

    @property
    def prepares(self) -> bool:
        """Whether some ranks prepare for others."""
        return self.config.strategy.prepare_ranks > 0

    @property
    def sharded(self) -> bool:
        """Whether each rank shall hold the lists of its own vertices alone."""
        return self.config.run.topology == "sharded"

    @property
    def splits_memory(self) -> bool:
        """Whether lists and rows share one budget of memory."""
        return self.config.run.topology_memory == AUTO_SIZE
