"""Scores where the model and the data are on different ranks: preparation ranks get the weights, and score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.session.role_loading import LoadedByRole

T = TypeVar("T")


class RemoteEvaluator(Evaluator):
    """Scores splits on the ranks that prepare; those that compute send the weights and wait, round by round.

    All methods that score are collective over all ranks, and give the same on all.
    """

    def __init__(self, config: Config, loaded: LoadedByRole) -> None:
        super().__init__(config, loaded.dataset, loaded.topology, loaded.of_role)
        self.everyone, self.first = loaded.ctx.communicator, loaded.roles.computing
        self.parameters = loaded.ctx.parameters
        self._scorer = Evaluator(config, loaded.dataset, loaded.topology, loaded.of_role) if loaded.prepares else None

    def dry_run(self) -> None:
        """Compile the kernels of an evaluation, where there will be one."""
        if self._scorer:
            self._scorer.dry_run()

    def scores(self) -> dict[str, float | None]:
        """Return the metric on each split of the model as it is on rank 0."""
        self._send_weights()
        return self._where_data_are(lambda scorer: scorer.scores())

    def trivial_scores(self) -> dict[str, float | str | None]:
        """Return the best score of one answer for all vertices, and the answer in words."""
        return self._where_data_are(lambda scorer: scorer.trivial_scores())

    def take_breakdown(self) -> dict[str, dict]:
        """Return the last scores, by split, taken apart by class, degree and part; once."""
        return self._where_data_are(lambda scorer: scorer.take_breakdown())

    def _send_weights(self) -> None:
        """Give all ranks the parameters of rank 0."""
        values = self.parameters.values
        sent = values.detach().cpu().numpy()
        # Words of eight bytes are broadcast, and the last one may hold less than that.
        words = np.zeros(-(-sent.nbytes // 8), np.int64)
        words.view(sent.dtype)[: len(sent)] = sent
        arrived = self.everyone.broadcast(words if self.everyone.rank == 0 else None, "parameters")
        values.copy_(torch.from_numpy(arrived.view(sent.dtype)[: len(sent)]))

    def _where_data_are(self, action: Callable[[Evaluator], T]) -> T:
        """Return the result of `action` on the first rank that prepares; compute ranks take part in its rounds."""
        found: Any = None
        if self._scorer:
            self._scorer.round = self._announced
            found = action(self._scorer)
            self._another(False)
        else:
            while self._another(False):
                with self.round():
                    pass
        return self.everyone.all_gather_objects(found)[self.first]

    @contextmanager
    def _announced(self) -> Iterator[None]:
        """Wrap a round of the ranks that prepare, which the others join."""
        self._another(True)
        with self.round():
            yield

    def _another(self, mine: bool) -> bool:
        """Return whether another round follows, as the ranks that prepare say."""
        return bool(self.everyone.all_gather_rows(np.array([int(mine)])).any())
