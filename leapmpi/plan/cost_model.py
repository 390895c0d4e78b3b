"""The cost model: seconds of an iteration from what it computes and moves, at the rates of a job.

A pure function of counts and rates, for the choice of time steps, of what crosses ranks, and of moving roots.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError

_LATENCY = 5e-5
"""Seconds of a small message, where a link is given by its bits a second alone."""

_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True)
class Rates:
    """Seconds that one unit takes on the slowest rank of a job.

    row: an input row, read and computed with; edge: a sampled edge; step: the fixed part of a time step; collective: an
    operation that all ranks must reach, without bytes; byte: a byte that leaves or reaches a rank.
    """

    row: float
    edge: float
    step: float
    collective: float
    byte: float

    def to_values(self) -> dict[str, float]:
        """Plain values for a record."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Rates:
        """The rates in a record. Raises ConfigError when it holds something else."""
        try:
            return cls(**{each.name: float(values[each.name]) for each in fields(cls)})
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"these are no rates: {values!r}") from None


@dataclass(frozen=True, eq=False)
class Counts:
    """What an iteration asks for. rows, edges: int64[ranks, steps], computed with at each time step by each rank.

    bytes_ahead: what the busiest rank moves without need of current weights; bytes_within: with; hops: how often models
    move, hop_bytes at a time; collectives: operations all ranks must reach; together: whether ranks wait for each other
    at every time step, not only at the end.
    """

    rows: np.ndarray
    edges: np.ndarray
    bytes_ahead: float = 0.0
    bytes_within: float = 0.0
    hops: int = 0
    hop_bytes: float = 0.0
    collectives: int = 1
    together: bool = True


def compute_seconds(counts: Counts, rates: Rates) -> float:
    """Seconds of computing, waiting for the slowest rank included."""
    work = counts.rows * rates.row + counts.edges * rates.edge + rates.step
    return float(work.max(axis=0).sum() if counts.together else work.sum(axis=1).max())


def iteration_seconds(counts: Counts, rates: Rates, *, ahead: bool = False) -> float:
    """Seconds of an iteration; with `ahead`, what needs no current weights is fetched while the one before computes."""
    compute = compute_seconds(counts, rates)
    fetch = counts.bytes_ahead * rates.byte
    hops = counts.hops * (rates.collective + counts.hop_bytes * rates.byte)
    exposed = max(0.0, fetch - compute) if ahead else fetch
    return compute + exposed + counts.bytes_within * rates.byte + counts.collectives * rates.collective + hops


def link_rates(text: str) -> tuple[float, float]:
    """(seconds of a byte, seconds of a small message) of a link such as '10gbit' or '200mbit'. Raises ConfigError."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([kmg]?)bit", text.strip().lower())
    if not found or not float(found[1]):
        raise ConfigError(f"--link {text}: give bits a second, such as 10gbit or 200mbit, or a run folder")
    return 8 / (float(found[1]) * _BITS[found[2]]), _LATENCY
