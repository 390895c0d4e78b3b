"""Horizontal bars, one below the other: stacks, or a few bars beside each other for each label."""

from __future__ import annotations

import math

from leapmpi.report.charts.drawing import COLOURS, RIGHT, WIDTH, label, legend, picture, pixels
from leapmpi.report.figures import BarFigure
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import short, shown, ticks

_LEFT, _TOP, _BOTTOM = 150, 6, 24
_MOST_LETTERS = 22


def draw(figure: BarFigure) -> Markup:
    """The picture and its legend."""
    # Each label has a row; rows get thinner where there are many.
    each = 1 if figure.stacked else len(figure.stacks)
    thickness = 18 if len(figure.labels) * each <= 16 else 11
    row = thickness * each + (6 if thickness == 18 else 3)
    height = _TOP + row * len(figure.labels) + _BOTTOM
    longest = max(_lengths(figure), default=0.0) or 1.0
    scale = (WIDTH - _LEFT - RIGHT - 50) / longest

    # The grid, then the bars.
    parts = []
    for value in ticks(0, longest, 6, figure.unit):
        x = _LEFT + value * scale
        parts.append(element("path", d=f"M{pixels(x)} {_TOP}V{height - _BOTTOM}", class_="grid"))
        parts.append(label(x, height - 8, short(value, figure.unit)))
    for number, name in enumerate(figure.labels):
        top = _TOP + number * row
        cut = name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
        parts.append(label(_LEFT - 8, top + thickness * each / 2 + 4, cut, "end"))
        parts.append(_bars(figure, number, top, thickness, scale))
    names = [name for name, _ in figure.stacks]
    return joined([legend(names), picture(height, figure.title, *parts)])


def _lengths(figure: BarFigure) -> list[float]:
    numbers = range(len(figure.labels))
    if figure.stacked:
        return [sum(_positive(values[number]) for _, values in figure.stacks) for number in numbers]
    return [_positive(values[number]) for _, values in figure.stacks for number in numbers]


def _bars(figure: BarFigure, number: int, top: float, thickness: float, scale: float) -> Markup:
    """The bars of one label."""
    parts, x = [], float(_LEFT)
    for place, (name, values) in enumerate(figure.stacks):
        width = _positive(values[number]) * scale
        if width > 0:
            told = element("title", f"{figure.labels[number]}, {name}: {shown(values[number], figure.unit)}")
            box = {"x": pixels(x), "y": pixels(top), "width": pixels(max(width, 0.5)), "height": pixels(thickness - 1)}
            parts.append(element("rect", told, **box, class_=f"c{place % COLOURS}"))
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
