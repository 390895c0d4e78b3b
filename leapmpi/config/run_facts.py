"""Facts about strategy, dataset and job that decide which settings go together (compatibility.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from leapmpi.config.link import LinkConfig
from leapmpi.config.sections import (
    EvaluateConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    StrategyConfig,
    TrainConfig,
)


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
