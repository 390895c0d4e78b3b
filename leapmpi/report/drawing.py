"""Primitives of all charts: labels of estimated width, coordinates, and the finished drawing."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.report.markup import Markup, element

WIDE, NARROW = 720, 340
"""Natural widths of a chart in pixels, on a screen of a desk and in a hand."""

RIGHT, TOP, BOTTOM = 14, 12, 40
"""Margins around the plot area; that on the left depends on the labels."""

_LETTER = 7.4
"""Mean width of a character at 12 pixels, in the widest of the usual fonts."""


@dataclass(frozen=True)
class Drawing:
    """Content of a picture, and its height in pixels."""

    height: float
    content: Markup


def width_of(text: str) -> float:
    """Return an upper estimate of the width of `text` in pixels."""
    return len(text) * _LETTER


def pixels(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, anchor: str = "middle", turned: bool = False) -> Markup:
    """Return text centred (or anchored) at a point; `turned` rotates it by 90 degrees."""
    turn = f"rotate(-90 {pixels(x)} {pixels(y)})" if turned else None
    return element("text", text, x=pixels(x), y=pixels(y), text_anchor=anchor, transform=turn)


def inside(x: float, y: float, text: str, width: int) -> Markup:
    """Return text centred at x, moved as far as it takes to stay within `width`."""
    half = width_of(text) / 2
    return label(min(max(x, half), width - half), y, text)


def cut(name: str, width: int) -> str:
    """Return a name that fits into `width` pixels, shortened in its middle."""
    most = int(width / _LETTER) - 1
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"
