"""Where training stands, and what the running epoch has cost so far: enough to close an epoch after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.comm.communicator import Communicator
from leapmpi.system.phase_timers import PHASES

_COUNTS = (*KINDS, *ROWS)


@dataclass
class EpochProgress:
    """Before which `iteration` of which `epoch` training stands, and this rank's share of the epoch so far.

    losses: float64[iterations], this rank's share of each batch's loss; seconds: of the epoch; phases: seconds of this
    rank by phase; counts: bytes by kind and rows by place; rate: the last learning rate.
    """

    losses: np.ndarray
    epoch: int = 0
    iteration: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))

    @classmethod
    def standing_at(cls, epoch: int, iterations: int) -> EpochProgress:
        """The start of an epoch of so many iterations."""
        return cls(np.zeros(iterations), epoch)

    def add(self, seconds: float, phases: dict[str, float], *counts: dict[str, int]) -> None:
        """Add what was spent and counted since the last call."""
        self.seconds += seconds
        for phase, spent in phases.items():
            self.phases[phase] += spent
        for each in counts:
            for name, count in each.items():
                self.counts[name] += count

    def summed(self, communicator: Communicator) -> tuple[np.ndarray, dict[str, int], np.ndarray]:
        """Losses and counts of all ranks together, and seconds float64[ranks, phases]. Collective."""
        losses = communicator.all_gather_rows(self.losses).sum(axis=0)
        counts = communicator.all_gather_rows(np.array(list(self.counts.values()), np.int64)).sum(axis=0)
        phases = communicator.all_gather_rows(np.array([self.phases[phase] for phase in PHASES]))
        return losses, dict(zip(self.counts, counts.tolist(), strict=True)), phases

    def to_values(self, counts: dict[str, int]) -> dict[str, Any]:
        """What a checkpoint says of it besides arrays, given the counts of all ranks."""
        return {"epoch": self.epoch, "iteration": self.iteration, "seconds": self.seconds, "counts": counts}

    @classmethod
    def restored(
        cls, values: dict[str, Any], losses: np.ndarray, phases: np.ndarray, communicator: Communicator
    ) -> EpochProgress:
        """Progress whose sums over the ranks are those of the checkpoint, on any number of ranks. Local.

        Where the number of ranks differs from the checkpoint's, each has spent the mean of its ranks.
        """
        first = communicator.rank == 0
        own = phases[communicator.rank] if len(phases) == communicator.size else phases.mean(axis=0)
        progress = cls.standing_at(values["epoch"], len(losses))
        progress.iteration, progress.seconds = values["iteration"], values["seconds"]
        progress.phases.update(zip(PHASES, own.tolist(), strict=True))
        if first:
            progress.losses += losses
            progress.counts.update({name: count for name, count in values["counts"].items() if name in progress.counts})
        return progress
