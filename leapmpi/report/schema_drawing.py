"""Drawing of a schema: types of vertices as boxes, relations as arrows, both with their counts."""

from __future__ import annotations

import numpy as np

from leapmpi.report.colours import GREY
from leapmpi.report.drawing import Drawing, label, pixels
from leapmpi.report.figures import SchemaFigure
from leapmpi.report.markup import element, joined
from leapmpi.report.schema_layout import Box, schema_layout


def schema_drawing(figure: SchemaFigure, width: int) -> Drawing:
    """Return the drawing of a schema, `width` pixels wide."""
    places = schema_layout(figure, width)
    parts = [element("path", d=_path(points), class_=f"line c{GREY}") for points in places.arrows]
    parts += [element("path", d=f"{_path(head)}z", class_=f"c{GREY}") for head in places.heads]
    # Labels cover the lines behind them.
    parts += [element("rect", **_sides(each), class_="page") for each in (*places.labels, *places.types)]
    for each in places.types:
        parts.append(element("rect", **_sides(each), rx=4, class_=f"line c{0 if each.target else GREY}"))
    for each in (*places.types, *places.labels):
        parts += [label(x, y, text) for text, x, y in each.baselines()]
    parts += [label(4, y, text, "start") for text, y in places.key]
    return Drawing(places.height, joined(parts))


def _path(points: np.ndarray) -> str:
    return "M" + "L".join(f"{pixels(x)} {pixels(y)}" for x, y in points.tolist())


def _sides(box: Box) -> dict[str, str]:
    """Return the attributes of a rectangle."""
    width, height = box.right - box.left, box.bottom - box.top
    return {"x": pixels(box.left), "y": pixels(box.top), "width": pixels(width), "height": pixels(height)}
