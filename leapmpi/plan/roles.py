"""Roles: ranks that prepare mini-batches, and ranks that compute with them."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.errors import ConfigError, counted
from leapmpi.plan.homes import parts_of_rank


@dataclass(frozen=True)
class Roles:
    """Roles of a job: the last `preparing` of `ranks` ranks hold the dataset, the others hold the model.

    A mini-batch is cut into shares, as many as the larger role has ranks. Share k is the work of rank k in a job of so
    many ranks without roles. Each rank prepares or trains a group of neighbouring shares, and at least one.
    """

    ranks: int
    preparing: int

    def __post_init__(self) -> None:
        """Raise ConfigError if a role would have no rank."""
        if not 0 < self.preparing < self.ranks:
            raise ConfigError(
                f"strategy.prepare_ranks: {self.preparing} of {counted(self.ranks, 'rank')} would prepare, "
                f"which leaves none to compute; prepare on fewer, or start at least {self.preparing + 1} ranks"
            )

    @property
    def computing(self) -> int:
        """Number of computing ranks; they are the first ones."""
        return self.ranks - self.preparing

    @property
    def shares(self) -> int:
        """Number of shares of a mini-batch."""
        return max(self.preparing, self.computing)

    def prepares(self, rank: int) -> bool:
        """Return whether `rank` prepares."""
        return rank >= self.computing

    def prepared_by(self, number: int) -> range:
        """Return the shares prepared by preparation rank `number` (from 0)."""
        return parts_of_rank(self.shares, self.preparing, number)

    def computed_by(self, rank: int) -> range:
        """Return the shares trained by compute rank `rank`."""
        return parts_of_rank(self.shares, self.computing, rank)

    def preparer_of(self, share: int) -> int:
        """Return the number, among preparing ranks, of the one that prepares `share`."""
        return share * self.preparing // self.shares

    def trainer_of(self, share: int) -> int:
        """Return the rank that trains `share`."""
        return share * self.computing // self.shares

    def sentence(self) -> str:
        """Format the roles as 'rank 0 computes, ranks 1-3 prepare'."""
        last = self.ranks - 1
        computes = "rank 0 computes" if self.computing == 1 else f"ranks 0-{self.computing - 1} compute"
        prepares = f"rank {last} prepares" if self.preparing == 1 else f"ranks {self.computing}-{last} prepare"
        return f"{computes}, {prepares}"
