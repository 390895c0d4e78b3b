"""Decisions that clocks had a say in: made on rank 0, kept for the records, and made again in a replay of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.errors import RunFolderError

RATES, REMOTE, TIME_STEPS, STRATEGY = "rates", "remote", "time_steps", "strategy"
DEPENDENCIES, PARTS = "dependencies", "parts"
"""Subjects of records: the job's rates, the exchange mode, the number of time steps, the strategy, the rates by which
`hybrid` chose dependencies, and the distribution of parts.
"""


@dataclass(frozen=True)
class TuningRecord:
    """`value` (plain) holds for what it is `about` from this epoch and iteration on; `evidence` says why."""

    about: str
    epoch: int
    iteration: int
    value: Any
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_values(self) -> dict[str, Any]:
        """Return plain values for a record."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> TuningRecord:
        """Return the decision in a record, which may hold more."""
        return cls(**{each.name: values[each.name] for each in fields(cls)})


class TuningLog:
    """Those of one run. In a replay, those of the earlier run take the place of clocks."""

    def __init__(self) -> None:
        self.begin = 0, 0
        """The epoch and iteration from which this start goes on, and from which its choices hold."""
        self.replays = False
        self._earlier: dict[tuple[str, int, int], TuningRecord] = {}
        self._new: list[TuningRecord] = []

    def replay(self, earlier: Iterable[TuningRecord]) -> None:
        """Repeat the decisions in `earlier` from now on; all ranks call it, and rank 0 has the decisions."""
        self.replays = True
        self._earlier = {(each.about, each.epoch, each.iteration): each for each in earlier}

    def earlier(self, about: str, epoch: int, iteration: int) -> TuningRecord | None:
        """Return the decision of the replayed run at this very iteration."""
        return self._earlier.get((about, epoch, iteration))

    def make(self, decision: TuningRecord) -> None:
        """Keep `decision` for the records."""
        self._new.append(decision)

    @property
    def pending(self) -> Sequence[TuningRecord]:
        """Decisions made since the last take, which go on waiting for it."""
        return tuple(self._new)

    def take(self) -> Sequence[TuningRecord]:
        """Take the decisions made since the last call."""
        taken, self._new = self._new, []
        return taken


def agreed_rates(rates: Iterable[float], communicator: Communicator, what: str) -> list[float]:
    """Return rank 0's `rates` on all ranks, whose choices must not differ. Collective.

    None at all mean that the replayed run has recorded none: raises RunFolderError, naming `what`, on all ranks.
    """
    values = np.array(list(rates), np.float64).view(np.int64) if communicator.rank == 0 else None
    found = communicator.broadcast(values, "control").view(np.float64)
    if not len(found):
        error = RunFolderError(f"the run to be replayed has recorded no {what}; leave out --replay")
        error.agreed = True
        raise error
    return found.tolist()


def from_records(records: Iterable[dict[str, Any]]) -> list[TuningRecord]:
    """Return the decisions among the records of a run, whose epochs count from 1."""
    decisions = (TuningRecord.from_values(each) for each in records if each["event"] == "decision")
    return [replace(each, epoch=each.epoch - 1) for each in decisions]
