"""Number of preparing ranks that keep the computing ranks busy, from measured or counted seconds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RoleBalance:
    """Costs of one mini-batch by role.

    Preparation is divided among its ranks, and overlaps the transfer and training of previous mini-batches.
    """

    prepare: float
    """Seconds of one rank that prepares it alone: to plan, sample, fetch and sum."""
    send: float
    """Seconds until its shares have reached the busiest computing rank."""
    compute: float
    """Seconds of forward, backward and step on the computing ranks."""

    @property
    def ranks_needed(self) -> int | None:
        """Fewest ranks that prepare as fast as the others compute; None if the transfer is slower than that."""
        if self.send > self.compute:
            return None
        return max(1, math.ceil(self.prepare / self.compute)) if self.compute else None

    def seconds(self, preparing: int) -> float:
        """Return the seconds of an iteration with `preparing` ranks: those of the slowest of the three."""
        return max(self.prepare / preparing, self.send, self.compute)

    def busy(self, preparing: int) -> float:
        """Return the share of time that computing ranks work."""
        seconds = self.seconds(preparing)
        return self.compute / seconds if seconds else 1.0

    def sentence(self, preparing: int, computing: int) -> str:
        """Describe the prediction for `preparing` ranks that serve `computing` ranks."""
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
        """Return plain values, for records."""
        return {**asdict(self), "ranks_needed": self.ranks_needed}
