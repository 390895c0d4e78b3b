"""Data of figures, independent of how they are drawn. Each figure is also shown as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from leapmpi.report.numbers import COUNT, shown, title_of

MOST_POINTS = 400
"""Most points of a line, and rows of its table. Longer lines are averaged over equal shares."""

MOST_CELLS = 64
"""Most rows and columns of a heat map, and most bars of a chart."""


@dataclass(frozen=True)
class Figure:
    """Base of all figures. `name` is the name used by --png and --pdf."""

    name: str
    title: str
    unit = COUNT
    """Unit of the numbers, but for those of a first column."""

    def table(self) -> list[list[str]]:
        """Return `values` as text for people: a row of headings, then the rows."""
        head, *rows = self.values()
        units = ["", *[self.unit] * (len(head) - 1)]
        return [
            [each if isinstance(each, str) else shown(each, unit) for each, unit in zip(row, units, strict=True)]
            for row in (head, *rows)
        ]

    def values(self) -> list[list[str | float]]:
        """Return a row of headings, then rows of numbers as they are: seconds, bytes, shares. Missing ones are NaN."""
        raise NotImplementedError

    def csv(self) -> str:
        """Return `values` as text of comma-separated values (RFC 4180), with empty fields for missing numbers."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in self.values():
            writer.writerow(["" if isinstance(each, float) and not math.isfinite(each) else each for each in row])
        return out.getvalue()


@dataclass(frozen=True)
class Line:
    """Line of a figure: float64[n] `x`, ascending, and `y`; NaN leaves a gap.

    `marked` draws its points as well; a `reference`, such as a baseline, is dashed and grey.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    marked: bool = False
    reference: bool = False


@dataclass(frozen=True)
class LineFigure(Figure):
    """Lines over a common axis."""

    x_label: str
    y_label: str
    lines: Sequence[Line]
    unit: str = ""
    from_zero: bool = False

    def values(self) -> list[list[str | float]]:
        """Return one row for each x of any line, after thinning."""
        lines = [thinned(line.x, line.y) for line in self.lines]
        values = [dict(zip(x.tolist(), y.tolist(), strict=True)) for x, y in lines]
        rows: list[list[str | float]] = [[self.x_label, *(line.label for line in self.lines)]]
        for x in sorted(set().union(*values)):
            rows.append([x, *(each.get(x, math.nan) for each in values)])
        return rows


@dataclass(frozen=True)
class BarFigure(Figure):
    """Bars, one per entry of `labels`. Each of the `stacks` is a label and one number per bar.

    If not `stacked`, the numbers of a bar are drawn side by side, such as predicted and measured. `measure` names
    the numbers where their unit does not.
    """

    labels: Sequence[str]
    stacks: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""
    first: str = ""
    """Heading of the labels."""
    stacked: bool = True
    measure: str = ""

    @property
    def axis_title(self) -> str:
        """Title of the axis of numbers."""
        return self.measure or title_of(self.unit)

    def values(self) -> list[list[str | float]]:
        """Return one row per bar."""
        rows: list[list[str | float]] = [[self.first, *(label for label, _ in self.stacks)]]
        rows += [[label, *(values[number] for _, values in self.stacks)] for number, label in enumerate(self.labels)]
        return rows


@dataclass(frozen=True)
class HeatFigure(Figure):
    """Matrix of numbers, float64[rows, columns]."""

    matrix: np.ndarray
    labels: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    unit: str = ""
    notes: Sequence[str] = field(default=())

    def values(self) -> list[list[str | float]]:
        """Return the matrix with row and column headings."""
        corner = f"{self.row_title} \\ {self.column_title}"
        rows = zip(self.labels, self.matrix.tolist(), strict=True)
        return [[corner, *self.columns], *([label, *row] for label, row in rows)]


@dataclass(frozen=True)
class SchemaType:
    """Type of vertices, with their number; the target has the labels."""

    name: str
    vertices: int
    target: bool = False


@dataclass(frozen=True)
class SchemaRelation:
    """Relation between two types, with the number of its edges.

    `full_name` tells relations of one name apart; `reverse_of` is that of the relation that this one reverses, or ''.
    """

    name: str
    source: str
    destination: str
    edges: int
    full_name: str
    reverse_of: str = ""


@dataclass(frozen=True)
class SchemaFigure(Figure):
    """Types and relations of a typed graph."""

    types: Sequence[SchemaType]
    relations: Sequence[SchemaRelation]

    def values(self) -> list[list[str | float]]:
        """Return one row per relation."""
        rows: list[list[str | float]] = [["from", "relation", "to", "edges"]]
        return rows + [[each.source, each.name, each.destination, each.edges] for each in self.relations]


def constant_line(label: str, value: float, others: Sequence[Line]) -> Line:
    """Return a reference line at `value` over the range of `others`."""
    ends = [min(float(line.x[0]) for line in others), max(float(line.x[-1]) for line in others)]
    x = np.array(ends if ends[1] > ends[0] else ends[:1])
    return Line(label, x, np.full(len(x), value), reference=True)


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
