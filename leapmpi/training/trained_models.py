"""The models that a training updates: one, or several that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.engine.engine import Engine
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.runs.run_folder import RunFolder
from leapmpi.training.model_state import Best, State

Scores = Sequence[dict[str, float | None]]
"""By model, the metric on each split."""

Record = dict[str, Any]
"""Record of an epoch, as metrics.jsonl holds it."""


class TrainedModels(Protocol):
    """Models with their optimizers and the best of each so far. Methods are collective unless said otherwise."""

    best: Best

    @property
    def described(self) -> list[tuple[Config, ParameterLayout]]:
        """Config and parameters of each model."""
        ...

    @property
    def last_rate(self) -> float:
        """Learning rate of the last step; 0 if each model has its own."""
        ...

    def choose_mode(self, engine: Engine, batch: np.ndarray | None) -> dict[str, int]:
        """Choose the exchange mode if it is open; return the bytes of the first iteration by mode considered."""
        ...

    def dry_run(self, engine: Engine, batch: np.ndarray | None) -> None:
        """Run the first iteration without a step, to compile its kernels. Raises TooLarge if memory is short."""
        ...

    def dry_run_evaluation(self, evaluator: Evaluator) -> None:
        """Compile the kernels of an evaluation."""
        ...

    def step(self, engine: Engine, minibatch: MiniBatch, number: int) -> float:
        """Take the step of iteration `number`, counted over epochs; return this rank's share of its (mean) loss."""
        ...

    def scores(self, evaluator: Evaluator, remote: str) -> Scores:
        """Score every model; inputs of several are fetched by the mode `remote`."""
        ...

    def keep_best(self, epoch: int, scores: Scores, evaluator: Evaluator) -> Record:
        """Keep the models whose `scores` are their best; return what the record of `epoch` holds of the scores."""
        ...

    def close_epoch(self, record: Record) -> None:
        """Add what `record` holds of each of several models."""
        ...

    def evaluations_since_best(self, epochs: Sequence[Record]) -> int:
        """Count the evaluations in `epochs` since the last one with a better validation score of any model. Local."""
        ...

    def state(self) -> State:
        """Return what a checkpoint holds of the models."""
        ...

    def restore(self, state: State, epochs: Sequence[Record], origin: str) -> None:
        """Take over a `state`, after `epochs`. Raises DataError, naming `origin`, if it does not fit. Local."""
        ...

    def saver(self) -> Callable[[RunFolder, Sequence[Record], float], None]:
        """Gather the last weights; return a local function that writes them, given the folder, all epochs, seconds."""
        ...

    def save_best(self, folder: RunFolder, epoch: int) -> None:
        """Write the weights of the models whose best epoch is `epoch`. Learned rows follow at the end. On rank 0."""
        ...

    def digest(self) -> str:
        """Return a digest of all parameters, on rank 0."""
        ...

    def summary(self, seconds: float) -> Record:
        """Return what the summary of a run of so many seconds holds of several models. Local."""
        ...

    def sentences(self) -> list[str]:
        """Return sentences about the models for the start of the log. Local."""
        ...
