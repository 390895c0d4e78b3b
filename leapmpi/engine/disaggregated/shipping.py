"""Prepared shares on their way from the ranks that prepare to those that compute: sizes, bytes, then matrices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.mpi_communicator import of_job
from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.disaggregated.prepared_share import PreparedShare
from leapmpi.plan.roles import Roles
from leapmpi.system.buffer_pool import BufferPool

_SIZES = 2
"""Numbers that go ahead of each share: its bytes, and the rows of its matrix."""

SIZE_BYTES = 8 * _SIZES
"""Bytes of them."""


def depth_of(config: StrategyConfig) -> int:
    """Return how many mini-batches may be prepared ahead, or wait on a compute rank: two unless a number is given."""
    return 2 if config.prefetch == "auto" else int(config.prefetch)


class Shipping:
    """Moves shares over `communicator`, which joins all ranks and carries nothing else.

    Rows of matrices have `width` columns of `dtype`. What arrives for a GPU is put into pinned memory.
    """

    def __init__(
        self, communicator: Communicator, roles: Roles, width: int, dtype: torch.dtype, pinned: bool = False
    ) -> None:
        self.communicator, self.roles, self.width, self.dtype, self.pinned = communicator, roles, width, dtype, pinned
        self._nobody = np.zeros(roles.ranks, np.int64)
        self._arriving = BufferPool()
        self.seconds = 0.0
        """In which the shares received last have arrived, from their sizes on."""

    def send(self, shares: Sequence[PreparedShare], matrices: Sequence[Tensor]) -> Callable[[], None]:
        """Begin to send this rank's shares, in order, to the ranks that train them; the result waits for the end.

        Each matrix is float[rows, width], on the host. Every rank that computes calls `receive` for it.
        """
        rank = self.communicator.rank - self.roles.computing
        to = [self.roles.trainer_of(share) for share in self.roles.prepared_by(rank)]
        packed = [share.to_bytes() for share in shares]
        sizes = np.array([[len(each), len(matrix)] for each, matrix in zip(packed, matrices, strict=True)], np.int64)

        # Shares ascend with the ranks that train them, so that what goes to one rank is in one piece.
        matrix = matrices[0] if len(matrices) == 1 else torch.cat(list(matrices))
        pieces: list[tuple[np.ndarray | Tensor, np.ndarray]] = [
            (sizes, self._by_rank(to, np.ones(len(to), np.int64))),
            (np.concatenate(packed), self._by_rank(to, sizes[:, 0])),
            (matrix.contiguous(), self._by_rank(to, sizes[:, 1])),
        ]
        finish = of_job(self.communicator).start_sends(pieces, "shares")

        def end() -> None:
            finish()
            # The memory must live as long as that.
            pieces.clear()

        return end

    def receive(self) -> tuple[list[PreparedShare], list[Tensor]]:
        """Return the shares that this rank trains, in order, with their matrices, which are views of one."""
        shares = self.roles.computed_by(self.communicator.rank)
        origin = [self.roles.computing + self.roles.preparer_of(share) for share in shares]

        # Sizes, then what they are the sizes of.
        sizes = np.empty((len(shares), _SIZES), np.int64)
        of_job(self.communicator).receive(sizes, self._by_rank(origin, np.ones(len(shares), np.int64)))
        begin = time.perf_counter()
        data = np.empty(int(sizes[:, 0].sum()), np.uint8)
        of_job(self.communicator).receive(data, self._by_rank(origin, sizes[:, 0]))
        matrix = self._memory(int(sizes[:, 1].sum()))
        of_job(self.communicator).receive(matrix, self._by_rank(origin, sizes[:, 1]))
        self.seconds = time.perf_counter() - begin

        cut = np.split(data, np.cumsum(sizes[:-1, 0]))
        return [PreparedShare.from_bytes(each) for each in cut], list(matrix.split(sizes[:, 1].tolist()))

    def _memory(self, rows: int) -> Tensor:
        """Return memory for the rows of a mini-batch, which is used again when its steps are done."""
        if self.pinned:
            return torch.empty((rows, self.width), dtype=self.dtype, pin_memory=True)
        return torch.from_numpy(self._arriving.array((rows, self.width), str(self.dtype).removeprefix("torch.")))

    def _by_rank(self, ranks: Sequence[int], counts: np.ndarray) -> np.ndarray:
        """Return int64[ranks]: the sum of the `counts` of each of `ranks`."""
        found = self._nobody.copy()
        np.add.at(found, np.array(ranks), counts)
        return found
