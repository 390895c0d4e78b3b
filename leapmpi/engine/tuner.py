"""Choosing the number of time steps while training: proposed by the cost model, confirmed by warm medians.

Arithmetic on measured times. It starts at the fewest time steps that memory allows, where synchronous training is
nearly always fastest. It tries another number only if the model, scaled to the measurements, promises a gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WARM, WINDOW, GAIN = 2, 6, 0.1
"""Iterations left out after a change, iterations of a median, and the share that a change must promise to save."""


@dataclass(frozen=True)
class TunerChoice:
    """From now on `time_steps`; `evidence` holds predicted and measured seconds of an iteration by time steps."""

    time_steps: int
    evidence: dict[str, Any]


class Tuner:
    """Tries numbers of time steps in turn; `predicted` maps each that may be tried to seconds of an iteration."""

    def __init__(self, start: int, predicted: Mapping[int, float]) -> None:
        self.best = self.current = start
        self.predicted = dict(predicted)
        self.measured: dict[int, float] = {}
        self.decided = len(self.predicted) < 2
        self._times: list[float] = []

    def add(self, time_steps: int, seconds: float) -> None:
        """Add the `seconds` of an iteration of `time_steps`. Iterations planned before a change do not count."""
        if time_steps == self.current and not self.decided:
            self._times.append(seconds)

    def choose(self) -> TunerChoice | None:
        """Return the choice for the next iterations, once enough is known to make a new one."""
        if self.decided or len(self._times) < WARM + WINDOW:
            return None
        # The first iterations after a change still hold what was prepared before it.
        self.measured[self.current] = statistics.median(self._times[WARM:])
        self._times = []
        # A smaller gain may be noise, and changing costs warm iterations.
        if self.measured[self.current] < self.measured[self.best] * (1 - GAIN / 2):
            self.best = self.current
        promising = self._promising()
        self.current = promising or self.best
        self.decided = promising is None
        return TunerChoice(self.current, self._evidence())

    def _promising(self) -> int | None:
        """Return the untried number for which the model promises most, and at least GAIN."""
        limit = self.predicted[self.best] * (1 - GAIN)
        untried = [each for each in self.predicted if each not in self.measured and self.predicted[each] < limit]
        return min(untried, key=self.predicted.__getitem__, default=None)

    def _evidence(self) -> dict[str, Any]:
        scale = self.measured[self.best] / max(1e-12, self.predicted[self.best])
        return {
            "predicted": {str(steps): seconds * scale for steps, seconds in self.predicted.items()},
            "measured": {str(steps): seconds for steps, seconds in self.measured.items()},
            "settled": self.decided,
        }

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return {
            "best": self.best,
            "current": self.current,
            "predicted": list(self.predicted.items()),
            "measured": list(self.measured.items()),
            "settled": self.decided,
            "times": self._times,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Tuner:
        """Return the tuner that had this `state`."""
        tuner = cls(state["best"], {int(steps): seconds for steps, seconds in state["predicted"]})
        tuner.current, tuner.decided, tuner._times = state["current"], state["settled"], list(state["times"])
        tuner.measured = {int(steps): seconds for steps, seconds in state["measured"]}
        return tuner
