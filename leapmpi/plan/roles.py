"""Which ranks of a job prepare mini-batches and which compute with them, where these are not the same ranks."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.errors import ConfigError
from leapmpi.plan.homes import parts_of_rank


@dataclass(frozen=True)
class Roles:
    """The last `preparing` of `ranks` ranks prepare: they hold the dataset. The others compute: they hold the model.

    A mini-batch is cut into shares, as many as the larger role has ranks: share k is what rank k would train in a
    job of so many ranks that do both. Each preparation rank prepares, and each compute rank trains, a group of
    neighbouring shares; no rank has none.
    """

    ranks: int
    preparing: int

    def __post_init__(self) -> None:
        """Raise ConfigError where a role would have no rank."""
        if not 0 < self.preparing < self.ranks:
            raise ConfigError(
                f"strategy.prepare_ranks: {self.preparing} of {self.ranks} rank{'s' * (self.ranks > 1)} would prepare, "
                f"and none would be left to compute; prepare on fewer, or start at least {self.preparing + 1} ranks"
            )

    @property
    def computing(self) -> int:
        """The number of ranks that compute; they are the first ones."""
        return self.ranks - self.preparing

    @property
    def shares(self) -> int:
        """How many shares a mini-batch has."""
        return max(self.preparing, self.computing)

    def prepares(self, rank: int) -> bool:
        """Whether `rank` is one of those that prepare."""
        return rank >= self.computing

    def prepared_by(self, number: int) -> range:
        """The shares that preparation rank `number` (from 0) prepares."""
        return parts_of_rank(self.shares, self.preparing, number)

    def computed_by(self, rank: int) -> range:
        """The shares that compute rank `rank` trains."""
        return parts_of_rank(self.shares, self.computing, rank)

    def preparer_of(self, share: int) -> int:
        """The number, among those that prepare, of the rank that prepares `share`."""
        return share * self.preparing // self.shares

    def trainer_of(self, share: int) -> int:
        """The rank that trains `share`."""
        return share * self.computing // self.shares

    def sentence(self) -> str:
        """'rank 0 computes, ranks 1-3 prepare'."""
        last = self.ranks - 1
        computes = "rank 0 computes" if self.computing == 1 else f"ranks 0-{self.computing - 1} compute"
        prepares = f"rank {last} prepares" if self.preparing == 1 else f"ranks {self.computing}-{last} prepare"
        return f"{computes}, {prepares}"
