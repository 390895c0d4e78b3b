"""The partition methods by name; loads none of them, so that `--help` stays light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leapmpi.registry import Member, Registry

BALANCES = ("training", "vertices", "edges", "work", "bytes", "types")
"""Balance criteria besides vertices, for methods with `weights`; the first is the default of all."""


@dataclass(frozen=True)
class PartitionMethod(Member):
    """A partition method: partition(graph, request) -> MethodResult, which depends on both alone.

    Instead of `partition` it may have choose(graph, request) -> the names of other methods to try, and the reason.
    """

    partition: Callable[..., Any] | None = None
    weights: bool = False
    """Whether `partition` reads `PartitionRequest.weights`, and so balances by other criteria than vertices."""
    groups: bool = False
    """Whether it reads the types of vertices, `PartitionRequest.groups`."""
    choose: Callable[..., tuple[tuple[str, ...], str]] | None = None

    def __post_init__(self) -> None:
        assert (self.partition is None) != (self.choose is None), "a method partitions, or names others"


METHODS = Registry("partition method", "data_prep.partitioning.methods", PartitionMethod)
