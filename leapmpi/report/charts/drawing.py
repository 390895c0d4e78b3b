"""The plane of a chart: its size, scales, axes and legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import short, ticks

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 38
"""The plane, and the margins around what is drawn, in pixels at its natural size."""

COLOURS = 8
"""Colours of the page's style sheet: classes c0 to c7; further lines and bars use them again."""

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Plane:
    """Numbers from x0 to x1 and y0 to y1 on a plane of `height` pixels."""

    x0: float
    x1: float
    y0: float
    y1: float
    height: int = HEIGHT

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + _share(value, self.x0, self.x1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return self.height - BOTTOM - _share(value, self.y0, self.y1) * (self.height - TOP - BOTTOM)


def _share(value: float, low: float, high: float) -> float:
    """Where `value` is between `low` and `high`, from 0 to 1; of halves, as the difference of two numbers overflows."""
    return (value / 2 - low / 2) / ((high / 2 - low / 2) or 1)


def pixels(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, anchor: str = "middle", turned: bool = False) -> Markup:
    """Text at a point."""
    turn = f"rotate(-90 {pixels(x)} {pixels(y)})" if turned else None
    return element("text", text, x=pixels(x), y=pixels(y), text_anchor=anchor, transform=turn)


def axes(plane: Plane, x_label: str, y_label: str, y_unit: str = "") -> Markup:
    """Grid lines, numbers and names of both axes."""
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
    """The SVG element; it grows and shrinks with the page, down to a width that can still be read."""
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {pixels(height)}", role="img", aria_label=title)


def legend(names: Sequence[str]) -> Markup | None:
    """Which colour is what; nothing where there is one."""
    if len(names) < 2:
        return None
    entries = [element("span", element("i", class_=f"c{number % COLOURS}"), name) for number, name in enumerate(names)]
    return element("p", *entries, class_="legend")
