"""Lines over a common axis."""

from __future__ import annotations

import sys

import numpy as np

from leapmpi.report.charts.drawing import COLOURS, Plane, axes, legend, picture, pixels
from leapmpi.report.figures import Line, LineFigure, thinned
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import shown

_LARGEST = sys.float_info.max
_MOST_MARKS = 60
"""Points of a line that are drawn as circles with their numbers."""


def draw(figure: LineFigure) -> Markup:
    """The picture and its legend."""
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
                told = f"{line.label}: {shown(b, figure.y_unit)} at {shown(a)}"
                place = {"cx": pixels(plane.x(a)), "cy": pixels(plane.y(b)), "r": 3}
                parts.append(element("circle", element("title", told), **place, class_=colour))
    return joined(parts)
