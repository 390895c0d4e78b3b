"""Problems found by checks, and helpers that checks share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leapmpi.runs.text import ranks_text

MOST_SPREAD = 0.3
"""Spread, as a share of the median, above which measurements count as disturbed."""


@dataclass(frozen=True)
class Problem:
    """A problem: its description and place, its remedy, and whether it is grave.

    A grave problem stops jobs, makes them wrong or much slower; others are only worth knowing.
    """

    what: str
    mend: str
    grave: bool = True


def by_node(facts: Mapping[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Group the facts of ranks by node."""
    nodes = defaultdict(list)
    for rank in facts["ranks"]:
        nodes[rank["node"]].append(rank)
    return nodes


def named(ranks: Iterable[Mapping[str, Any]]) -> str:
    """Format ranks as 'ranks 0-3, 7', from their facts."""
    return ranks_text(rank["rank"] for rank in ranks)
