"""Heat maps: a square for each number of a matrix, darker where it is larger, with a scale."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from leapmpi.report.drawing import RIGHT, WIDE, Drawing, cut, inside, label, pixels, width_of
from leapmpi.report.figures import HeatFigure
from leapmpi.report.markup import Markup, element, joined
from leapmpi.report.numbers import shown

_MAP_TOP, _MAP_SCALE = 36, 110
_SHADES = 8
"""Number of shades; 0 stays blank."""

_MOST_WRITTEN = 8
"""Largest matrix, in rows and columns, whose numbers are written into the squares."""


def heat_map(figure: HeatFigure, width: int) -> Drawing:
    """Return the drawing of a heat map, `width` pixels wide."""
    rows, columns = figure.matrix.shape
    labels = [cut(each, width // 4) for each in figure.labels]
    left = 28 + max(map(width_of, labels), default=0.0)
    # The scale stands at the side of a wide map, below a narrow one.
    below = width < WIDE
    room = width - left - (RIGHT if below else _MAP_SCALE + 16)
    size = max(2.0, min(46.0, room / max(columns, 1), 420 / max(rows, 1)))
    largest = float(figure.matrix.max(initial=0.0)) or 1.0

    # One path of thick strokes holds all squares of a shade, so that a page of thousands of squares stays small.
    side, shades = pixels(size), defaultdict(list)
    for row, values in enumerate(np.ceil(figure.matrix / largest * _SHADES).astype(int).tolist()):
        y = pixels(_MAP_TOP + (row + 0.5) * size)
        for column, shade in enumerate(values):
            if shade > 0:
                shades[shade].append(f"M{pixels(left + column * size)} {y}h{side}")
    parts = [_shade("".join(shades[shade]), shade, side) for shade in sorted(shades)]
    whole = pixels(columns * size)
    frame = f"M{pixels(left)} {_MAP_TOP}h{whole}v{pixels(rows * size)}h-{whole}z"
    parts += [element("path", d=frame, class_="axis"), *_names(figure, labels, left, size, width)]
    parts += _numbers(figure, left, size, largest)
    bottom = _MAP_TOP + rows * size + 10
    if below:
        parts += _scale(figure, left, bottom + 4, width - left, largest)
        return Drawing(bottom + 4 + 16 * _SHADES / 2, joined(parts))
    parts += _scale(figure, left + columns * size + 16, _MAP_TOP, 0, largest)
    return Drawing(max(bottom, _MAP_TOP + _SHADES * 16 + 20), joined(parts))


def _names(figure: HeatFigure, labels: Sequence[str], left: float, size: float, width: int) -> list[Markup]:
    rows, columns = figure.matrix.shape
    parts = [inside(left + columns * size / 2, 14, figure.column_title, width)]
    parts.append(label(13, _MAP_TOP + rows * size / 2, figure.row_title, turned=True))
    names = [cut(each, width // 5) for each in figure.columns]
    widest = max(map(width_of, names), default=0.0) + 6
    for column in range(0, columns, max(1, math.ceil(widest / size))):
        parts.append(label(left + (column + 0.5) * size, _MAP_TOP - 5, names[column]))
    for row in range(0, rows, max(1, math.ceil(14 / size))):
        parts.append(label(left - 5, _MAP_TOP + (row + 0.5) * size + 4, labels[row], "end"))
    return parts


def _numbers(figure: HeatFigure, left: float, size: float, largest: float) -> list[Markup]:
    texts = {place: _brief(value, figure.unit) for place, value in np.ndenumerate(figure.matrix) if value > 0}
    if max(figure.matrix.shape) > _MOST_WRITTEN or max(map(len, texts.values()), default=0) * 6.2 > size:
        return []
    return [
        element(
            "text",
            text,
            x=pixels(left + (column + 0.5) * size),
            y=pixels(_MAP_TOP + (row + 0.5) * size + 4),
            text_anchor="middle",
            class_="on" if figure.matrix[row, column] > 0.6 * largest else "small",
        )
        for (row, column), text in texts.items()
    ]


def _shade(path: str, shade: int, thickness: str) -> Markup:
    """Return strokes of a shade."""
    return element("path", d=path, class_=f"h h{shade}", stroke_width=thickness)


def _brief(value: float, unit: str) -> str:
    """Return a number for a square: '12.3 M', '45 %'."""
    return shown(value, unit).replace("iB", "").replace(".0", "")


def _scale(figure: HeatFigure, x: float, y: float, columns_room: float, largest: float) -> list[Markup]:
    """Return the shades and the largest value of each: one below the other, or in two columns within a room."""
    parts = []
    for place, shade in enumerate(range(_SHADES, 0, -1)):
        column, row = divmod(place, _SHADES // 2) if columns_room else (0, place)
        at, top = x + column * columns_room / 2, y + row * 16
        parts.append(_shade(f"M{pixels(at)} {pixels(top + 7)}h14", shade, "14"))
        text = f"≤ {shown(largest * shade / _SHADES, figure.unit)}"
        parts.append(label(at + 20, top + 12, text, "start"))
    return parts
