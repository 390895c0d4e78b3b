"""Figures as numbers: what a picture shows, apart from how it is drawn. Each of them is a table, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from leapmpi.report.numbers import shown

MOST_POINTS = 400
"""Points of a line, and so rows of its table; of a longer one, means of equal shares are shown."""

MOST_CELLS = 64
"""Rows and columns of a heat map, and bars of a chart."""


@dataclass(frozen=True)
class Figure:
    """What figures have in common. `name` is what --png and --pdf call it."""

    name: str
    title: str

    def table(self) -> list[list[str]]:
        """The numbers as text: a row of headings, then the rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Line:
    """A line of a figure: float64[n] `x`, ascending, and `y`; NaN leaves a gap. `marked` draws its points too."""

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
        """A row for each x that any line has, once it is thinned."""
        lines = [thinned(line.x, line.y) for line in self.lines]
        values = [dict(zip(x.tolist(), y.tolist(), strict=True)) for x, y in lines]
        everywhere = sorted(set().union(*values))
        rows = [[self.x_label, *(line.label for line in self.lines)]]
        for x in everywhere:
            rows.append([shown(x), *(shown(each.get(x, np.nan), self.y_unit) for each in values)])
        return rows


@dataclass(frozen=True)
class BarFigure(Figure):
    """Bars, one for each of `labels`, each made of the `stacks`: a label and a number for each bar.

    Not `stacked`, the numbers of a bar stand beside each other, such as predicted and measured.
    """

    labels: Sequence[str]
    stacks: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""
    first: str = ""
    """What the labels are."""
    stacked: bool = True

    def table(self) -> list[list[str]]:
        """A row for each bar."""
        rows = [[self.first, *(label for label, _ in self.stacks)]]
        for number, label in enumerate(self.labels):
            rows.append([label, *(shown(values[number], self.unit) for _, values in self.stacks)])
        return rows


@dataclass(frozen=True)
class HeatFigure(Figure):
    """A number for each pair of a row and a column: float64[rows, columns]."""

    values: np.ndarray
    labels: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    unit: str = ""
    notes: Sequence[str] = field(default=())

    def table(self) -> list[list[str]]:
        """The matrix."""
        corner = f"{self.row_title} \\ {self.column_title}"
        rows = zip(self.labels, self.values.tolist(), strict=True)
        return [[corner, *self.columns], *([label, *(shown(each, self.unit) for each in row)] for label, row in rows)]


def line_of(label: str, points: Sequence[tuple[float, float]]) -> Line:
    """The line through `points` (x, y), which are drawn too."""
    x, y = np.array(points, np.float64).reshape(-1, 2).T
    return Line(label, x, y, marked=True)


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` points of a line: itself, or means of as many equal shares of it."""
    if len(x) <= most:
        return x, y
    bounds = np.arange(most + 1) * len(x) // most
    counts = np.diff(bounds)
    # Sums of large numbers overflow; a power of two keeps every bit of them.
    scale = 2.0 ** int(counts.max()).bit_length()
    return x[bounds[1:] - 1], np.add.reduceat(y / scale, bounds[:-1]) / counts * scale
