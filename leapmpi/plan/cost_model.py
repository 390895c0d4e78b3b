"""Cost model: seconds of an iteration from its work, its bytes and measured rates.

Pure functions. They choose the number of time steps, the form of the first layer's exchange, and the roots to move.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError

_LATENCY = 5e-5
"""Seconds of a small message, if only the bandwidth of a link is given."""

_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True)
class Rates:
    """Seconds per unit on the slowest rank of a job."""

    row: float
    """Seconds to read an input row and compute with it."""
    edge: float
    """Seconds to compute with a sampled edge."""
    step: float
    """Fixed seconds of a time step."""
    collective: float
    """Seconds of a collective operation, without its bytes."""
    byte: float
    """Seconds of a byte that a rank sends or receives."""

    def to_values(self) -> dict[str, float]:
        """Return plain values for a record of metrics.jsonl."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Rates:
        """Return the rates in a record. Raises ConfigError if it has none."""
        try:
            return cls(**{each.name: float(values[each.name]) for each in fields(cls)})
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"not a set of rates: {values!r}") from None


@dataclass(frozen=True, eq=False)
class Counts:
    """Work and traffic of an iteration."""

    rows: np.ndarray
    """int64[ranks, steps]: input rows."""
    edges: np.ndarray
    """int64[ranks, steps]: sampled edges."""
    bytes_ahead: float = 0.0
    """Bytes that the busiest rank sends or receives before it needs current weights."""
    bytes_within: float = 0.0
    """Bytes that it sends or receives and that depend on current weights."""
    hops: int = 0
    """Number of moves of models to another rank."""
    hop_bytes: float = 0.0
    """Bytes of one such move."""
    collectives: int = 1
    """Number of collective operations."""
    steps_synchronised: bool = True
    """Whether ranks wait for each other at every time step, not only at the end."""


def compute_seconds(counts: Counts, rates: Rates) -> float:
    """Return the seconds of computation, including the wait for the slowest rank."""
    work = counts.rows * rates.row + counts.edges * rates.edge + rates.step
    return float(work.max(axis=0).sum() if counts.steps_synchronised else work.sum(axis=1).max())


def iteration_seconds(counts: Counts, rates: Rates, *, ahead: bool) -> float:
    """Return the seconds of an iteration.

    With `ahead`, prefetching overlaps transfers that need no current weights with the previous iteration.
    """
    compute = compute_seconds(counts, rates)
    fetch = counts.bytes_ahead * rates.byte
    hops = counts.hops * (rates.collective + counts.hop_bytes * rates.byte)
    exposed = max(0.0, fetch - compute) if ahead else fetch
    return compute + exposed + counts.bytes_within * rates.byte + counts.collectives * rates.collective + hops


def link_rates(text: str) -> tuple[float, float]:
    """Parse a link such as '10gbit' or '200mbit' into (seconds per byte, seconds of a small message).

    Raises ConfigError.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([kmg]?)bit", text.strip().lower())
    if not found or not float(found[1]):
        raise ConfigError(f"--link {text}: give bits per second, such as 10gbit or 200mbit, or a run folder")
    return 8 / (float(found[1]) * _BITS[found[2]]), _LATENCY
