"""Problems that checks find, and the registry of checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leapmpi.registry import Registry

REGISTRY = Registry("check", "leapmpi.tools.doctor.checks")


@dataclass(frozen=True)
class Problem:
    """A problem: what and where it is, how to mend it, and whether it is grave.

    A grave problem stops jobs, makes them wrong or much slower; others are only worth knowing.
    """

    what: str
    mend: str
    grave: bool = True


def problems(facts: Mapping[str, Any]) -> list[Problem]:
    """All problems, the grave ones first."""
    found = [problem for name in REGISTRY.names() for problem in REGISTRY.load(name).find(facts)]
    return sorted(found, key=lambda problem: not problem.grave)


def by_node(facts: Mapping[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """The facts of ranks, by node."""
    nodes = defaultdict(list)
    for rank in facts["ranks"]:
        nodes[rank["node"]].append(rank)
    return nodes
