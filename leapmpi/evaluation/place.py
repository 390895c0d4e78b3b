"""Place of scoring: all ranks, or those that prepare, to which the others send the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch

from leapmpi.session.role_loading import LoadedByRole

T = TypeVar("T")


class AllRanks:
    """Every rank scores its own vertices. `around` makes a context for each round."""

    def __init__(self) -> None:
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext

    def round(self) -> AbstractContextManager[None]:
        """Return a context for a round, which all ranks enter together."""
        return self.around()

    def run(self, action: Callable[[], T], with_weights: bool = False) -> T:
        """Run `action` and return its result, the same on all ranks. Collective."""
        return action()

    def run_here(self, action: Callable[[], None]) -> None:
        """Run `action`, which has no result. Collective."""
        action()


class PreparingRanks(AllRanks):
    """The ranks that prepare score; those that compute send the weights and wait, round by round."""

    def __init__(self, loaded: LoadedByRole) -> None:
        super().__init__()
        self._everyone, self._first, self._scores = loaded.ctx.communicator, loaded.roles.computing, loaded.prepares
        self._parameters, self._others_wait = loaded.ctx.parameters, False

    def round(self) -> AbstractContextManager[None]:
        """Return a context for a round of the ranks that prepare, which the others join while they wait."""
        return self._announced() if self._others_wait else nullcontext()

    def run(self, action: Callable[[], T], with_weights: bool = False) -> T:
        """Run `action` on the ranks that prepare, on the model of rank 0 if `with_weights`. Collective.

        Returns the result of the first rank that prepares.
        """
        if with_weights:
            self._send_weights()
        found: Any = None
        if self._scores:
            self._others_wait = True
            found = action()
            self._others_wait = False
            self._any_rank_has_more(False)
        else:
            # Ranks that prepare nothing answer each round, as its exchanges are collective.
            while self._any_rank_has_more(False):
                with self.around():
                    pass
        return self._everyone.all_gather_objects(found)[self._first]

    def run_here(self, action: Callable[[], None]) -> None:
        """Run `action` on the ranks that prepare, while the others do not wait."""
        if self._scores:
            action()

    def _send_weights(self) -> None:
        """Send the parameters of rank 0 to all ranks. Collective."""
        values = self._parameters.values
        sent = values.detach().cpu().numpy()
        # Words of eight bytes are broadcast, and the last one may hold less than that.
        words = np.zeros(-(-sent.nbytes // 8), np.int64)
        words.view(sent.dtype)[: len(sent)] = sent
        arrived = self._everyone.broadcast(words if self._everyone.rank == 0 else None, "parameters")
        values.copy_(torch.from_numpy(arrived.view(sent.dtype)[: len(sent)]))

    @contextmanager
    def _announced(self) -> Iterator[None]:
        self._any_rank_has_more(True)
        with self.around():
            yield

    def _any_rank_has_more(self, mine: bool) -> bool:
        """Return whether another round follows, as the ranks that prepare say. Collective."""
        return bool(self._everyone.all_gather_rows(np.array([int(mine)])).any())
