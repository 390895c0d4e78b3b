"""How many ranks must prepare so that those that compute never wait, from seconds that were measured or counted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RoleBalance:
    """What one mini-batch costs each role.

    Preparation is shared out among the ranks that do it, and goes on while mini-batches before travel and are trained.
    """

    prepare: float
    """Seconds of one rank that prepares it alone: to plan, draw, fetch and add up."""
    send: float
    """Seconds in which its shares arrive at the busiest rank that computes."""
    compute: float
    """Seconds of forward, backward and step on the ranks that compute."""

    @property
    def ranks_needed(self) -> int | None:
        """The fewest ranks that prepare as fast as is computed; None where shares arrive more slowly than that."""
        if self.send > self.compute:
            return None
        return max(1, math.ceil(self.prepare / self.compute)) if self.compute else None

    def seconds(self, preparing: int) -> float:
        """Seconds of an iteration where so many ranks prepare: those of the slowest of the three."""
        return max(self.prepare / preparing, self.send, self.compute)

    def busy(self, preparing: int) -> float:
        """The share of the time in which ranks that compute have something to do."""
        seconds = self.seconds(preparing)
        return self.compute / seconds if seconds else 1.0

    def sentence(self, preparing: int, computing: int) -> str:
        """What is predicted where `preparing` ranks prepare for `computing` ranks."""
        they = "rank that computes" if computing == 1 else f"{computing} ranks that compute"
        costs = (
            f"a mini-batch takes {self.prepare:.3g} s to prepare on one rank, {self.send:.3g} s to arrive, "
            f"{self.compute:.3g} s to compute"
        )
        if self.ranks_needed is None:
            return f"{costs}: shares arrive too slowly to keep the {they} busy, however many ranks prepare"
        return (
            f"{costs}: {self.ranks_needed} that prepare keep{'s' * (self.ranks_needed == 1)} the {they} busy, and with "
            f"{preparing} {'it is' if computing == 1 else 'they are'} busy {self.busy(preparing):.0%} of the time"
        )

    def to_values(self) -> dict[str, float | int | None]:
        """Plain values, for records."""
        return {**asdict(self), "ranks_needed": self.ranks_needed}
