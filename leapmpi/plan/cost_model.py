"""The cost model: seconds of an iteration, from what it computes and sends and from measured rates.

Pure functions. They serve to choose the number of time steps, what is sent of the first layer, and which roots to move.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError

_LATENCY = 5e-5
"""Seconds of a small message, where only the bandwidth of a link is given."""

_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True)
class Rates:
    """Seconds that one unit takes on the slowest rank of a job."""

    row: float
    """Reading an input row and computing with it."""
    edge: float
    """Computing with a sampled edge."""
    step: float
    """The fixed part of a time step."""
    collective: float
    """An operation that all ranks must reach, without its bytes."""
    byte: float
    """A byte that a rank sends or receives."""

    def to_values(self) -> dict[str, float]:
        """Plain values for a record of metrics.jsonl."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Rates:
        """The rates in a record. Raises ConfigError when it has no rates."""
        try:
            return cls(**{each.name: float(values[each.name]) for each in fields(cls)})
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"these are no rates: {values!r}") from None


@dataclass(frozen=True, eq=False)
class Counts:
    """What an iteration computes and sends."""

    rows: np.ndarray
    """int64[ranks, steps]: input rows."""
    edges: np.ndarray
    """int64[ranks, steps]: sampled edges."""
    bytes_ahead: float = 0.0
    """What the busiest rank sends or receives before it needs current weights."""
    bytes_within: float = 0.0
    """What it sends or receives that depends on current weights."""
    hops: int = 0
    """How often models move to another rank."""
    hop_bytes: float = 0.0
    """Bytes of one such move."""
    collectives: int = 1
    """Operations that all ranks must reach."""
    steps_synchronised: bool = True
    """Whether ranks wait for each other at every time step, not only at the end."""


def compute_seconds(counts: Counts, rates: Rates) -> float:
    """Seconds of computing, including the wait for the slowest rank."""
    work = counts.rows * rates.row + counts.edges * rates.edge + rates.step
    return float(work.max(axis=0).sum() if counts.steps_synchronised else work.sum(axis=1).max())


def iteration_seconds(counts: Counts, rates: Rates, *, ahead: bool = False) -> float:
    """Seconds of an iteration.

    With `ahead`, what needs no current weights is fetched while the iteration before computes.
    """
    compute = compute_seconds(counts, rates)
    fetch = counts.bytes_ahead * rates.byte
    hops = counts.hops * (rates.collective + counts.hop_bytes * rates.byte)
    exposed = max(0.0, fetch - compute) if ahead else fetch
    return compute + exposed + counts.bytes_within * rates.byte + counts.collectives * rates.collective + hops


def link_rates(text: str) -> tuple[float, float]:
    """(seconds per byte, seconds of a small message) of a link such as '10gbit' or '200mbit'. Raises ConfigError."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([kmg]?)bit", text.strip().lower())
    if not found or not float(found[1]):
        raise ConfigError(f"--link {text}: give bits a second, such as 10gbit or 200mbit, or a run folder")
    return 8 / (float(found[1]) * _BITS[found[2]]), _LATENCY
