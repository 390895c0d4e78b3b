"""Charts as inline SVG: lines, bars and heat maps, in colours from the page's style sheet.

Each chart is drawn for a `width` in pixels, so that its text has the same size on wide and on narrow screens. Equal
figures give equal bytes.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.report.colours import GREY, colour_numbers
from leapmpi.report.drawing import BOTTOM, RIGHT, TOP, WIDE, Drawing, cut, inside, label, pixels, width_of
from leapmpi.report.figures import BarFigure, Figure, HeatFigure, Line, LineFigure, SchemaFigure, thinned
from leapmpi.report.heat_map import heat_map
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import short, shown, ticks
from leapmpi.report.schema_drawing import schema_drawing


def chart(figure: Figure, width: int = WIDE) -> Markup:
    """Return the picture of a figure, `width` pixels wide, for a page."""
    drawing = _draw(figure, width)
    box = f"0 0 {width} {pixels(drawing.height)}"
    return element("svg", drawing.content, viewBox=box, role="img", aria_label=figure.title)


def svg_file(figure: Figure, style: str) -> str:
    """Return the picture of a figure with its title and legend as an SVG file; `style` is its style sheet."""
    drawing, top, x = _draw(figure, WIDE), 40.0, 4.0
    parts = [label(WIDE / 2, 16, cut(figure.title, WIDE))]
    for name, key in _keys(figure):
        room = 24 + width_of(name)
        if x > 4 and x + room > WIDE:
            top, x = top + 18, 4.0
        parts.append(element("path", d=f"M{pixels(x)} {pixels(top - 10)}h10v10h-10z", class_=key.split()[0]))
        parts.append(label(x + 14, top - 1, name, "start"))
        x += room
    height = top + 6 + drawing.height
    # Tooltips serve pages alone.
    content = Markup(re.sub("<title>.*?</title>", "", drawing.content))
    picture = element(
        "svg",
        element("style", Markup(style)),
        element("path", d=f"M0 0h{WIDE}v{pixels(height)}H0z", class_="page"),
        *parts,
        element("g", content, transform=f"translate(0 {pixels(top + 6)})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDE} {pixels(height)}",
        width=WIDE,
        height=pixels(height),
    )
    return f"{picture}\n"


def _draw(figure: Figure, width: int) -> Drawing:
    if isinstance(figure, LineFigure):
        return _line_chart(figure, width)
    if isinstance(figure, BarFigure):
        return _bar_chart(figure, width)
    if isinstance(figure, SchemaFigure):
        return schema_drawing(figure, width)
    assert isinstance(figure, HeatFigure), "figures are lines, bars, schemas or heat maps"
    return heat_map(figure, width)


def _share(value: float, low: float, high: float) -> float:
    """Return the place of `value` between `low` and `high`, 0 to 1, by halves: a difference may overflow."""
    return (value / 2 - low / 2) / ((high / 2 - low / 2) or 1)


def legend(figure: Figure) -> Markup | None:
    """Return the legend of a figure; None for a single entry."""
    keys = _keys(figure)
    if not keys:
        return None
    return element("p", *(element("span", element("i", class_=key), name) for name, key in keys), class_="legend")


def _keys(figure: Figure) -> list[tuple[str, str]]:
    """Return names and classes of the entries of a legend; nothing for a single one."""
    keys: list[tuple[str, str]] = []
    if isinstance(figure, LineFigure):
        for line, colour in zip(figure.lines, _line_classes(figure), strict=True):
            keys.append((line.label, colour + " dashed" * line.reference))
    elif isinstance(figure, BarFigure):
        names = [name for name, _ in figure.stacks]
        keys = [(name, f"c{number}") for name, number in zip(names, colour_numbers(names), strict=True)]
    return keys if len(keys) > 1 else []


# -- lines -----------------------------------------------------------------------------------------------------------

HEIGHT = 260
_LARGEST = sys.float_info.max
_MOST_MARKS = 60
"""Longest line whose points are drawn as circles with tooltips."""

_DASH = 7
"""Pixels of a dash, where lines agree."""


@dataclass(frozen=True)
class _Plane:
    """Plot area that spans the values x0 to x1 and y0 to y1, right of `left`, in a picture of `width` pixels."""

    x0: float
    x1: float
    y0: float
    y1: float
    left: float
    width: int

    def x(self, value: float) -> float:
        """Return the distance of `value` from the left edge, in pixels."""
        return self.left + _share(value, self.x0, self.x1) * (self.width - self.left - RIGHT)

    def y(self, value: float) -> float:
        """Return the distance of `value` from the top edge, in pixels."""
        return HEIGHT - BOTTOM - _share(value, self.y0, self.y1) * (HEIGHT - TOP - BOTTOM)


def _line_chart(figure: LineFigure, width: int) -> Drawing:
    x0, x1, y0, y1 = value_range(figure)
    values = ticks(y0, y1, 5, figure.unit)
    left = 26 + max((width_of(short(value, figure.unit)) for value in values), default=0.0)
    plane = _Plane(x0, x1, y0, y1, left, width)
    parts = _axes(plane, figure, values)
    shares = agreeing(figure.lines)
    for line, colour, (place, together) in zip(figure.lines, _line_classes(figure), shares, strict=True):
        parts.append(_line(plane, line, colour, figure, place, together))
    return Drawing(HEIGHT, joined(parts))


def value_range(figure: LineFigure) -> tuple[float, float, float, float]:
    """Return the ranges of both axes: x0, x1, y0, y1, with room above and below the lines."""
    x = np.concatenate([line.x for line in figure.lines])
    y = np.concatenate([line.y for line in figure.lines])
    y = y[np.isfinite(y)] if np.isfinite(y).any() else np.zeros(1)
    low, high = float(y.min()), float(y.max())
    room = 0.05 * high - 0.05 * low or 0.05 * abs(high) or 1.0
    low = 0.0 if figure.from_zero and low >= 0 else max(low - room, -_LARGEST)
    return float(x.min()), float(x.max()), low, min(high + room, _LARGEST)


def agreeing(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return for each line its place among those that agree with it to a thousandth, and their number."""
    groups: list[list[int]] = []
    for number, line in enumerate(lines):
        for group in groups:
            other = lines[group[0]]
            if len(line.y) == len(other.y) and all(
                np.allclose(a, b, rtol=1e-3, atol=0, equal_nan=True) for a, b in ((line.x, other.x), (line.y, other.y))
            ):
                group.append(number)
                break
        else:
            groups.append([number])
    places = {number: (place, len(group)) for group in groups for place, number in enumerate(group)}
    return [places[number] for number in range(len(lines))]


def _line_classes(figure: LineFigure) -> list[str]:
    """Return the class of colour of each line."""
    numbers = colour_numbers([line.label for line in figure.lines])
    return [f"c{GREY if line.reference else each}" for line, each in zip(figure.lines, numbers, strict=True)]


def _axes(plane: _Plane, figure: LineFigure, values: Sequence[float]) -> list[Markup]:
    """Return grid lines, tick labels and titles of both axes."""
    left, right, bottom = plane.left, plane.width - RIGHT, HEIGHT - BOTTOM
    parts = []
    for value in values:
        y = plane.y(value)
        parts.append(element("path", d=f"M{pixels(left)} {pixels(y)}H{right}", class_="grid"))
        parts.append(label(left - 6, y + 4, short(value, figure.unit), "end"))
    for value in _x_ticks(plane, figure.x_label == "epoch"):
        parts.append(inside(plane.x(value), bottom + 16, short(value), plane.width))
    parts.append(element("path", d=f"M{pixels(left)} {TOP}V{bottom}H{right}", class_="axis"))
    parts.append(label((left + right) / 2, HEIGHT - 6, figure.x_label))
    parts.append(label(13, (TOP + bottom) / 2, figure.y_label, turned=True))
    return parts


def _x_ticks(plane: _Plane, whole: bool) -> list[float]:
    """Return the ticks of the horizontal axis, as many as have room."""
    room = plane.width - plane.left - RIGHT
    for most in (8, 6, 4, 3, 2):
        found = ticks(plane.x0, plane.x1, most, whole=whole)
        widest = max((width_of(short(value)) for value in found), default=0.0)
        if len(found) * (widest + 10) <= room:
            break
    return found


def _line(plane: _Plane, line: Line, colour: str, figure: LineFigure, place: int, together: int) -> Markup:
    """Return a line; of several `together` that agree, each shows as dashes of its colour in turn."""
    x, y = thinned(line.x, line.y)
    path, drawing = [], False
    # A gap in the numbers is a gap in the line.
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if np.isfinite(b):
            path.append(f"{'L' if drawing else 'M'}{pixels(plane.x(a))} {pixels(plane.y(b))}")
        drawing = bool(np.isfinite(b))
    if line.reference and len(x) == 1 and np.isfinite(y[0]):
        path.append(f"H{plane.width - RIGHT}")
    # Lines that agree would hide each other.
    dashes = f"{_DASH} {_DASH * (together - 1)}" if together > 1 else "5 4" if line.reference else None
    offset = -_DASH * place if together > 1 and place else None
    parts = [
        element("path", d="".join(path), class_=f"line {colour}", stroke_dasharray=dashes, stroke_dashoffset=offset)
    ]
    if (line.marked or len(x) == 1) and len(x) <= _MOST_MARKS and not line.reference:
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            if np.isfinite(b):
                tooltip = f"{line.label}: {shown(b, figure.unit)} at {shown(a)}"
                spot = {"cx": pixels(plane.x(a)), "cy": pixels(plane.y(b)), "r": 3 if place == 0 else 2}
                parts.append(element("circle", element("title", tooltip), **spot, class_=colour))
    return joined(parts)


# -- bars ------------------------------------------------------------------------------------------------------------

_BAR_TOP, _BAR_BOTTOM, _ABOVE = 6, 24, 17


def _bar_chart(figure: BarFigure, width: int) -> Drawing:
    # One row per label, thinner if there are many labels. Long labels stand above their bars.
    each = 1 if figure.stacked else len(figure.stacks)
    thickness = 18 if len(figure.labels) * each <= 16 else 13
    longest_label = max(map(width_of, figure.labels), default=0.0) + 12
    above = _ABOVE if longest_label > 0.3 * width else 0
    left = 2.0 if above else max(longest_label, 40.0)
    row = above + thickness * each + (6 if thickness == 18 else 3)
    title = _BAR_BOTTOM if figure.axis_title else 6
    bottom = _BAR_TOP + row * len(figure.labels)
    height = bottom + _BAR_BOTTOM + title - 6
    longest = max(_lengths(figure), default=0.0) or 1.0
    room = max((width_of(shown(value, figure.unit)) for value in _written(figure)), default=0.0)
    scale = (width - left - RIGHT - room) / longest

    # The grid, then the bars.
    parts, end = [], -math.inf
    for value in ticks(0, longest, 6 if width == WIDE else 3, figure.unit):
        x, text = left + value * scale, short(value, figure.unit)
        if x - width_of(text) / 2 > end:
            parts.append(element("path", d=f"M{pixels(x)} {_BAR_TOP}V{pixels(bottom)}", class_="grid"))
            parts.append(inside(x, bottom + 16, text, width))
            end = max(x, width_of(text) / 2) + width_of(text) / 2 + 8
    for number, name in enumerate(figure.labels):
        top = float(_BAR_TOP + number * row)
        if above:
            parts.append(label(left, top + 12, cut(name, width), "start"))
        else:
            parts.append(label(left - 8, top + thickness * each / 2 + 4, name, "end"))
        parts.append(_bars(figure, number, left, top + above, thickness, scale))
    if figure.axis_title:
        parts.append(label((left + width - RIGHT) / 2, height - 5, figure.axis_title))
    return Drawing(height, joined(parts))


def _lengths(figure: BarFigure) -> list[float]:
    numbers = range(len(figure.labels))
    if figure.stacked:
        return [sum(_positive(values[number]) for _, values in figure.stacks) for number in numbers]
    return [_positive(values[number]) for _, values in figure.stacks for number in numbers]


def _written(figure: BarFigure) -> list[float]:
    """Return the numbers at the ends of the bars: sums of stacked ones."""
    if figure.stacked and len(figure.stacks) > 1:
        return _lengths(figure)
    return [value for _, values in figure.stacks for value in values]


def _bars(figure: BarFigure, number: int, left: float, top: float, thickness: int, scale: float) -> Markup:
    """Return the bars of one label."""
    parts, x = [], left
    colours = colour_numbers([name for name, _ in figure.stacks])
    for (name, values), colour in zip(figure.stacks, colours, strict=True):
        width = _positive(values[number]) * scale
        if width > 0:
            tooltip = element("title", f"{figure.labels[number]}, {name}: {shown(values[number], figure.unit)}")
            box = {"x": pixels(x), "y": pixels(top), "width": pixels(max(width, 0.5)), "height": pixels(thickness - 1)}
            parts.append(element("rect", tooltip, **box, class_=f"c{colour}"))
        if figure.stacked:
            x += width
        else:
            parts.append(label(x + width + 4, top + thickness / 2 + 4, shown(values[number], figure.unit), "start"))
            top += thickness
    if figure.stacked:
        whole = _lengths(figure)[number] if len(figure.stacks) > 1 else figure.stacks[0][1][number]
        parts.append(label(x + 4, top + thickness / 2 + 4, shown(whole, figure.unit), "start"))
    return joined(parts)


def _positive(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0
