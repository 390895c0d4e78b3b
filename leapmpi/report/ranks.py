"""Ranks in text."""

from __future__ import annotations

from collections.abc import Iterable


def ranks_text(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0-3, 7'."""
    numbers = sorted(set(ranks))
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    named = (str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(named)}"
