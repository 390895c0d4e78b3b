"""A matrix as squares, the darker (or, on a dark page, the brighter) the larger."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from leapmpi.report.charts.drawing import WIDTH, label, picture
from leapmpi.report.figures import HeatFigure
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import shown

_LEFT, _TOP, _RIGHT = 90, 34, 150
_STEPS = 8
"""Shades; 0 is left blank."""

_WRITTEN = 8
"""Up to so many rows and columns, numbers stand in the squares."""


def draw(figure: HeatFigure) -> Markup:
    """The picture, with a scale at its side."""
    rows, columns = figure.values.shape
    size = min(46, (WIDTH - _LEFT - _RIGHT) // max(columns, 1), 420 // max(rows, 1))
    size = max(size, 3)
    largest = float(figure.values.max(initial=0.0)) or 1.0

    # Squares of one shade are one path: thousands of them stay small.
    shades: dict[int, list[str]] = defaultdict(list)
    for row, values in enumerate(np.ceil(figure.values / largest * _STEPS).astype(int).tolist()):
        for column, shade in enumerate(values):
            if shade > 0:
                shades[shade].append(f"M{_LEFT + column * size} {_TOP + row * size}h{size}v{size}h-{size}z")
    parts = [element("path", d="".join(shades[shade]), class_=f"h h{shade}") for shade in sorted(shades)]
    frame = f"M{_LEFT} {_TOP}h{columns * size}v{rows * size}h-{columns * size}z"
    parts += [element("path", d=frame, class_="axis"), *_names(figure, size), *_numbers(figure, size, largest)]
    parts += _scale(figure, _LEFT + columns * size + 16, largest)
    return joined([picture(max(_TOP + rows * size + 10, _TOP + _STEPS * 16 + 20), figure.title, *parts)])


def _names(figure: HeatFigure, size: int) -> list[Markup]:
    rows, columns = figure.values.shape
    every = max(1, -(-14 // size))
    parts = [label(_LEFT + columns * size / 2, 12, figure.column_title)]
    parts.append(label(12, _TOP + rows * size / 2, figure.row_title, turned=True))
    for column in range(0, columns, max(1, -(-26 // size))):
        parts.append(label(_LEFT + (column + 0.5) * size, _TOP - 5, figure.columns[column]))
    for row in range(0, rows, every):
        parts.append(label(_LEFT - 5, _TOP + (row + 0.5) * size + 4, figure.labels[row], "end"))
    return parts


def _numbers(figure: HeatFigure, size: int, largest: float) -> list[Markup]:
    if max(figure.values.shape) > _WRITTEN or size < 40:
        return []
    return [
        element(
            "text",
            shown(value, figure.unit).replace("iB", ""),
            x=_LEFT + (column + 0.5) * size,
            y=_TOP + (row + 0.5) * size + 4,
            text_anchor="middle",
            class_="on" if value > 0.6 * largest else "small",
        )
        for (row, column), value in np.ndenumerate(figure.values)
        if value > 0
    ]


def _scale(figure: HeatFigure, x: int, largest: float) -> list[Markup]:
    """Shades and the numbers up to which they stand."""
    parts = []
    for shade in range(_STEPS, 0, -1):
        y = _TOP + (_STEPS - shade) * 16
        parts.append(element("path", d=f"M{x} {y}h14v14h-14z", class_=f"h h{shade}"))
        parts.append(label(x + 20, y + 12, f"≤ {shown(largest * shade / _STEPS, figure.unit)}", "start"))
    return parts
