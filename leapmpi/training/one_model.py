"""Training of one model: its step, its scores, its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.engine.engine import Engine
from leapmpi.engine.tuning import check_memory, choose_mode
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.runs.run_folder import RunFolder
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.training.model_state import Best, State, evaluations_since, restore, save_best, save_weights, saved
from leapmpi.training.optimizer import Optimizer
from leapmpi.training.trained_models import Record, Scores


class OneModel:
    """One model, whose gradients are summed over all ranks in each iteration, and whose update all ranks compute.

    With roles, compute ranks have summed the gradients in their step, and preparation ranks update nothing.
    """

    def __init__(self, config: Config, loaded: Loaded, per_epoch: int) -> None:
        self.config, self.loaded, ctx = config, loaded, loaded.ctx
        self.ctx, self.parameters, self.learned = ctx, ctx.parameters, ctx.learned
        by_role = loaded if isinstance(loaded, LoadedByRole) else None
        self._reduces = by_role is None
        self._updates = by_role is None or not by_role.prepares
        self.optimizer = Optimizer(config.train, ctx.parameters, per_epoch, ctx.learned, ctx.communicator)
        self.best = Best()

    @property
    def described(self) -> list[tuple[Config, ParameterLayout]]:
        """Config and parameters of the model."""
        return [(self.config, self.parameters)]

    @property
    def last_rate(self) -> float:
        """Learning rate of the last step."""
        return self.optimizer.last_rate

    def choose_mode(self, engine: Engine, batch: np.ndarray | None) -> dict[str, int]:
        """Choose as `choose_mode` of the engine does. Collective."""
        return choose_mode(engine, batch)

    def dry_run(self, engine: Engine, batch: np.ndarray | None) -> None:
        """Run the first iteration but for the optimizer's step. Collective."""
        minibatch = engine.plan(batch, 0, 0)
        check_memory(engine, minibatch)
        engine.fetch(minibatch)
        self._add_gradients(engine, minibatch)
        engine.placement.iteration_ended(minibatch)
        self.parameters.gradients.zero_()
        if self.learned:
            self.learned.forget()
        self.ctx.sampler.forget()

    def dry_run_evaluation(self, evaluator: Evaluator) -> None:
        """Compile the kernels of an evaluation. Collective."""
        evaluator.dry_run()

    def step(self, engine: Engine, minibatch: MiniBatch, number: int) -> float:
        """Take the step of iteration `number`; return this rank's share of its loss. Collective."""
        loss = self._add_gradients(engine, minibatch)
        if self._updates:
            with self.ctx.phases("compute"):
                self.optimizer.step(number)
        engine.placement.iteration_ended(minibatch)
        return loss

    def _add_gradients(self, engine: Engine, minibatch: MiniBatch) -> float:
        """Put the gradients of the whole batch into the parameters'. Collective."""
        self.parameters.gradients.zero_()
        loss = engine.forward_backward(minibatch)
        if self._reduces:
            with self.ctx.phases("reduce"):
                self.ctx.communicator.all_reduce(self.parameters.shared_gradients)
        return loss

    def scores(self, evaluator: Evaluator, remote: str) -> Scores:
        """Score the model. Collective."""
        return [evaluator.scores()]

    def keep_best(self, epoch: int, scores: Scores, evaluator: Evaluator) -> Record:
        """Keep the model if its scores are the best so far, with a breakdown of the scores. Collective."""
        (found,) = scores
        record: Record = {"accuracy": found}
        if evaluator.details:
            record["figures"] = evaluator.details
        if self.best.is_beaten_by(found, evaluator.metric):
            if details := evaluator.take_breakdown():
                record["details"] = details
            weights = self.parameters.by_name()
            self.best = Best(epoch, found["val"], found["test"], weights if self.ctx.rank == 0 else {})
            if self.learned:
                self.learned.keep_best()
        return record

    def close_epoch(self, record: Record) -> None:
        """Add nothing: the record is that of the one model. Local."""

    def evaluations_since_best(self, epochs: Sequence[Record]) -> int:
        """Count the evaluations since the last one with a better validation score. Local."""
        return evaluations_since(self.best.epoch, epochs)

    def state(self) -> State:
        """Return what a checkpoint holds of the model. Collective."""
        return saved(self.parameters, *self.optimizer.state(), self.best)

    def restore(self, state: State, epochs: Sequence[Record], origin: str) -> None:
        """Take over a `state`. Raises DataError if it does not fit. Local."""
        self.best = restore(self.parameters, self.optimizer, state, origin, self.ctx.rank == 0)

    def saver(self) -> Callable[[RunFolder, Sequence[Record], float], None]:
        """Gather the last weights; return a local function that writes them and the best ones. Collective."""
        final, best_rows = self.parameters.by_name(), {}
        if self.learned:
            final |= self.learned.gathered(self.ctx.communicator)
            best_rows = self.learned.gathered(self.ctx.communicator, best=True)

        def save(folder: RunFolder, epochs: Sequence[Record], seconds: float) -> None:
            best = replace(self.best, weights=self.best.weights | best_rows)
            save_weights(folder.path, self.config, self.loaded, epochs, final, best)

        return save

    def save_best(self, folder: RunFolder, epoch: int) -> None:
        """Write the weights of the best epoch, if it is `epoch`. On rank 0."""
        if self.best.epoch == epoch and not self.learned:
            save_best(folder.path, self.config, self.loaded, self.best)

    def digest(self) -> str:
        """Return a digest of the parameters, and of learned rows if there are any, on rank 0. Collective."""
        arrays = self.parameters.by_name()
        if self.learned:
            arrays |= self.learned.gathered(self.ctx.communicator)
        return digest(arrays)

    def summary(self, seconds: float) -> Record:
        """Return nothing: the summary is that of the one model. Local."""
        return {}

    def sentences(self) -> list[str]:
        """Return nothing: the banner describes the model. Local."""
        return []
