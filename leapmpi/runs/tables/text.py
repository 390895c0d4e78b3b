"""Figures as text: aligned columns, and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """`lines` of equally many cells, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def score_text(score: float) -> str:
    """A score: '0.8120', or four digits of one that is very small or large, as errors of a regression may be."""
    return f"{score:.4f}" if score == 0 or 0.001 <= abs(score) < 10_000 else f"{score:.4g}"


def scores_text(scores: Mapping[str, float | None]) -> str:
    """'val 0.8120 test 0.8010', without splits that have no score."""
    return " ".join(f"{split} {score_text(score)}" for split, score in scores.items() if score is not None)


def size_text(count: float) -> str:
    """A number of bytes with its unit, such as '1.5 MiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
