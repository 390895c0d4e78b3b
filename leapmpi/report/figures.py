"""Data of figures, independent of how they are drawn. Each figure is also shown as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from leapmpi.report.numbers import shown

MOST_POINTS = 400
"""Most points of a line, and rows of its table. Longer lines are averaged over equal shares."""

MOST_CELLS = 64
"""Most rows and columns of a heat map, and most bars of a chart."""


@dataclass(frozen=True)
class Figure:
    """Base of all figures. `name` is the name used by --png and --pdf."""

    name: str
    title: str

    def table(self) -> list[list[str]]:
        """Return the numbers as text: a row of headings, then the rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Line:
    """Line of a figure: float64[n] `x`, ascending, and `y`; NaN leaves a gap. `marked` draws its points as well."""

    label: str
    x: np.ndarray
    y: np.ndarray
    marked: bool = False


@dataclass(frozen=True)
class LineFigure(Figure):
    """Lines over a common axis."""

    x_label: str
    y_label: str
    lines: Sequence[Line]
    y_unit: str = ""
    from_zero: bool = False

    def table(self) -> list[list[str]]:
        """Return one row for each x of any line, after thinning."""
        lines = [thinned(line.x, line.y) for line in self.lines]
        values = [dict(zip(x.tolist(), y.tolist(), strict=True)) for x, y in lines]
        all_x = sorted(set().union(*values))
        rows = [[self.x_label, *(line.label for line in self.lines)]]
        for x in all_x:
            rows.append([shown(x), *(shown(each.get(x, np.nan), self.y_unit) for each in values)])
        return rows


@dataclass(frozen=True)
class BarFigure(Figure):
    """Bars, one per entry of `labels`. Each of the `stacks` is a label and one number per bar.

    If not `stacked`, the numbers of a bar are drawn side by side, such as predicted and measured.
    """

    labels: Sequence[str]
    stacks: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""
    first: str = ""
    """Heading of the labels."""
    stacked: bool = True

    def table(self) -> list[list[str]]:
        """Return one row per bar."""
        rows = [[self.first, *(label for label, _ in self.stacks)]]
        for number, label in enumerate(self.labels):
            rows.append([label, *(shown(values[number], self.unit) for _, values in self.stacks)])
        return rows


@dataclass(frozen=True)
class HeatFigure(Figure):
    """Matrix of numbers, float64[rows, columns]."""

    values: np.ndarray
    labels: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    unit: str = ""
    notes: Sequence[str] = field(default=())

    def table(self) -> list[list[str]]:
        """Return the matrix with row and column headings."""
        corner = f"{self.row_title} \\ {self.column_title}"
        rows = zip(self.labels, self.values.tolist(), strict=True)
        return [[corner, *self.columns], *([label, *(shown(each, self.unit) for each in row)] for label, row in rows)]


def line_of(label: str, points: Sequence[tuple[float, float]]) -> Line:
    """Return the line through `points` (x, y), with its points marked."""
    x, y = np.array(points, np.float64).reshape(-1, 2).T
    return Line(label, x, y, marked=True)


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `most` points of a line: the line itself, or means over equal shares."""
    if len(x) <= most:
        return x, y
    bounds = np.arange(most + 1) * len(x) // most
    counts = np.diff(bounds)
    # Sums of large numbers overflow; a power of two keeps every bit of them.
    scale = 2.0 ** int(counts.max()).bit_length()
    return x[bounds[1:] - 1], np.add.reduceat(y / scale, bounds[:-1]) / counts * scale
