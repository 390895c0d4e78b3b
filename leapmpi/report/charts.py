"""Charts as inline SVG: lines, bars and heat maps, in colours from the page's style sheet.

Equal figures give equal bytes.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.report.figures import BarFigure, HeatFigure, Line, LineFigure, thinned
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import short, shown, ticks

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 38
"""Margins around the plot area, in pixels at its natural size."""

COLOURS = 8
"""Number of colours in the style sheet, classes c0 to c7. Further lines and bars reuse them."""

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Plane:
    """Plot area of `height` pixels that spans the values x0 to x1 and y0 to y1."""

    x0: float
    x1: float
    y0: float
    y1: float
    height: int = HEIGHT

    def x(self, value: float) -> float:
        """Return the distance of `value` from the left edge, in pixels."""
        return LEFT + _share(value, self.x0, self.x1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the distance of `value` from the top edge, in pixels."""
        return self.height - BOTTOM - _share(value, self.y0, self.y1) * (self.height - TOP - BOTTOM)


def _share(value: float, low: float, high: float) -> float:
    """Return the place of `value` between `low` and `high`, 0 to 1, by halves: a difference may overflow."""
    return (value / 2 - low / 2) / ((high / 2 - low / 2) or 1)


def pixels(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, anchor: str = "middle", turned: bool = False) -> Markup:
    """Return text centred (or anchored) at a point; `turned` rotates it by 90 degrees."""
    turn = f"rotate(-90 {pixels(x)} {pixels(y)})" if turned else None
    return element("text", text, x=pixels(x), y=pixels(y), text_anchor=anchor, transform=turn)


def axes(plane: Plane, x_label: str, y_label: str, y_unit: str = "") -> Markup:
    """Return grid lines, tick labels and titles of both axes."""
    bottom = plane.height - BOTTOM
    parts = []
    for value in ticks(plane.y0, plane.y1, 5, y_unit):
        y = plane.y(value)
        parts.append(element("path", d=f"M{LEFT} {pixels(y)}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(label(LEFT - 6, y + 4, short(value, y_unit), "end"))
    for value in ticks(plane.x0, plane.x1, 8, whole=x_label == "epoch"):
        parts.append(label(plane.x(value), bottom + 16, short(value)))
    parts.append(element("path", d=f"M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}", class_="axis"))
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, plane.height - 4, x_label))
    parts.append(label(14, (TOP + bottom) / 2, y_label, turned=True))
    return joined(parts)


def picture(height: float, title: str, *parts: Markup) -> Markup:
    """Return the SVG element. It scales with the page, down to a readable width."""
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {pixels(height)}", role="img", aria_label=title)


def legend(names: Sequence[str]) -> Markup | None:
    """Return the legend of colours; None for a single entry."""
    if len(names) < 2:
        return None
    entries = [element("span", element("i", class_=f"c{number % COLOURS}"), name) for number, name in enumerate(names)]
    return element("p", *entries, class_="legend")


_LARGEST = sys.float_info.max
_MOST_MARKS = 60
"""Longest line whose points are drawn as circles with tooltips."""


def line_chart(figure: LineFigure) -> Markup:
    """Return the picture of a line figure and its legend."""
    plane = _plane(figure)
    parts = [axes(plane, figure.x_label, figure.y_label, figure.y_unit)]
    parts += [_line(plane, line, f"c{number % COLOURS}", figure) for number, line in enumerate(figure.lines)]
    return joined([legend([line.label for line in figure.lines]), picture(plane.height, figure.title, *parts)])


def _plane(figure: LineFigure) -> Plane:
    x = np.concatenate([line.x for line in figure.lines])
    y = np.concatenate([line.y for line in figure.lines])
    y = y[np.isfinite(y)] if np.isfinite(y).any() else np.zeros(1)
    low, high = float(y.min()), float(y.max())
    room = 0.05 * high - 0.05 * low or 0.05 * abs(high) or 1.0
    low = 0.0 if figure.from_zero and low >= 0 else max(low - room, -_LARGEST)
    return Plane(float(x.min()), float(x.max()), low, min(high + room, _LARGEST))


def _line(plane: Plane, line: Line, colour: str, figure: LineFigure) -> Markup:
    x, y = thinned(line.x, line.y)
    path, drawing = [], False
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if np.isfinite(b):
            path.append(f"{'L' if drawing else 'M'}{pixels(plane.x(a))} {pixels(plane.y(b))}")
        drawing = bool(np.isfinite(b))
    parts = [element("path", d="".join(path), class_=f"line {colour}")]
    if (line.marked or len(x) == 1) and len(x) <= _MOST_MARKS:
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            if np.isfinite(b):
                tooltip = f"{line.label}: {shown(b, figure.y_unit)} at {shown(a)}"
                place = {"cx": pixels(plane.x(a)), "cy": pixels(plane.y(b)), "r": 3}
                parts.append(element("circle", element("title", tooltip), **place, class_=colour))
    return joined(parts)


_BAR_LEFT, _BAR_TOP, _BAR_BOTTOM = 150, 6, 24
_MOST_LETTERS = 22


def bar_chart(figure: BarFigure) -> Markup:
    """Return the picture of a bar figure and its legend."""
    # One row per label, thinner if there are many labels.
    each = 1 if figure.stacked else len(figure.stacks)
    thickness = 18 if len(figure.labels) * each <= 16 else 11
    row = thickness * each + (6 if thickness == 18 else 3)
    height = _BAR_TOP + row * len(figure.labels) + _BAR_BOTTOM
    longest = max(_lengths(figure), default=0.0) or 1.0
    scale = (WIDTH - _BAR_LEFT - RIGHT - 50) / longest

    # The grid, then the bars.
    parts = []
    for value in ticks(0, longest, 6, figure.unit):
        x = _BAR_LEFT + value * scale
        parts.append(element("path", d=f"M{pixels(x)} {_BAR_TOP}V{height - _BAR_BOTTOM}", class_="grid"))
        parts.append(label(x, height - 8, short(value, figure.unit)))
    for number, name in enumerate(figure.labels):
        top = _BAR_TOP + number * row
        cut = name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
        parts.append(label(_BAR_LEFT - 8, top + thickness * each / 2 + 4, cut, "end"))
        parts.append(_bars(figure, number, top, thickness, scale))
    names = [name for name, _ in figure.stacks]
    return joined([legend(names), picture(height, figure.title, *parts)])


def _lengths(figure: BarFigure) -> list[float]:
    numbers = range(len(figure.labels))
    if figure.stacked:
        return [sum(_positive(values[number]) for _, values in figure.stacks) for number in numbers]
    return [_positive(values[number]) for _, values in figure.stacks for number in numbers]


def _bars(figure: BarFigure, number: int, top: float, thickness: float, scale: float) -> Markup:
    """Return the bars of one label."""
    parts, x = [], float(_BAR_LEFT)
    for place, (name, values) in enumerate(figure.stacks):
        width = _positive(values[number]) * scale
        if width > 0:
            tooltip = element("title", f"{figure.labels[number]}, {name}: {shown(values[number], figure.unit)}")
            box = {"x": pixels(x), "y": pixels(top), "width": pixels(max(width, 0.5)), "height": pixels(thickness - 1)}
            parts.append(element("rect", tooltip, **box, class_=f"c{place % COLOURS}"))
        if figure.stacked:
            x += width
        else:
            parts.append(label(x + width + 4, top + thickness / 2 + 4, shown(values[number], figure.unit), "start"))
            top += thickness
    if len(figure.stacks) == 1 and figure.stacked:
        parts.append(label(x + 4, top + thickness / 2 + 4, shown(figure.stacks[0][1][number], figure.unit), "start"))
    return joined(parts)


def _positive(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


_MAP_LEFT, _MAP_TOP, _MAP_RIGHT = 90, 34, 150
_SHADES = 8
"""Number of shades; 0 stays blank."""

_MOST_WRITTEN = 8
"""Largest matrix, in rows and columns, whose numbers are written into the squares."""


def heat_map(figure: HeatFigure) -> Markup:
    """Return the picture of a heat map, with a scale at its side."""
    rows, columns = figure.values.shape
    size = min(46, (WIDTH - _MAP_LEFT - _MAP_RIGHT) // max(columns, 1), 420 // max(rows, 1))
    size = max(size, 3)
    largest = float(figure.values.max(initial=0.0)) or 1.0

    # One path holds all squares of a shade, so that a page of thousands of squares stays small.
    shades: dict[int, list[str]] = defaultdict(list)
    for row, values in enumerate(np.ceil(figure.values / largest * _SHADES).astype(int).tolist()):
        for column, shade in enumerate(values):
            if shade > 0:
                shades[shade].append(f"M{_MAP_LEFT + column * size} {_MAP_TOP + row * size}h{size}v{size}h-{size}z")
    parts = [element("path", d="".join(shades[shade]), class_=f"h h{shade}") for shade in sorted(shades)]
    frame = f"M{_MAP_LEFT} {_MAP_TOP}h{columns * size}v{rows * size}h-{columns * size}z"
    parts += [element("path", d=frame, class_="axis"), *_names(figure, size), *_numbers(figure, size, largest)]
    parts += _scale(figure, _MAP_LEFT + columns * size + 16, largest)
    return joined([picture(max(_MAP_TOP + rows * size + 10, _MAP_TOP + _SHADES * 16 + 20), figure.title, *parts)])


def _names(figure: HeatFigure, size: int) -> list[Markup]:
    rows, columns = figure.values.shape
    every = max(1, -(-14 // size))
    parts = [label(_MAP_LEFT + columns * size / 2, 12, figure.column_title)]
    parts.append(label(12, _MAP_TOP + rows * size / 2, figure.row_title, turned=True))
    for column in range(0, columns, max(1, -(-26 // size))):
        parts.append(label(_MAP_LEFT + (column + 0.5) * size, _MAP_TOP - 5, figure.columns[column]))
    for row in range(0, rows, every):
        parts.append(label(_MAP_LEFT - 5, _MAP_TOP + (row + 0.5) * size + 4, figure.labels[row], "end"))
    return parts


def _numbers(figure: HeatFigure, size: int, largest: float) -> list[Markup]:
    if max(figure.values.shape) > _MOST_WRITTEN or size < 40:
        return []
    return [
        element(
            "text",
            shown(value, figure.unit).replace("iB", ""),
            x=_MAP_LEFT + (column + 0.5) * size,
            y=_MAP_TOP + (row + 0.5) * size + 4,
            text_anchor="middle",
            class_="on" if value > 0.6 * largest else "small",
        )
        for (row, column), value in np.ndenumerate(figure.values)
        if value > 0
    ]


def _scale(figure: HeatFigure, x: int, largest: float) -> list[Markup]:
    """Return the shades and the largest value of each."""
    parts = []
    for shade in range(_SHADES, 0, -1):
        y = _MAP_TOP + (_SHADES - shade) * 16
        parts.append(element("path", d=f"M{x} {y}h14v14h-14z", class_=f"h h{shade}"))
        parts.append(label(x + 20, y + 12, f"≤ {shown(largest * shade / _SHADES, figure.unit)}", "start"))
    return parts
