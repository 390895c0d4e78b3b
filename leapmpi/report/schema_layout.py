"""Places of a schema: boxes of vertex types on an ellipse, arrows of relations, and labels that do not overlap.

Relations of the same two types share an arrow; one with two heads has its reverse relations too. A label stands on its
arrow where it has room; elsewhere a number stands there, and the label in a key below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.report.drawing import WIDE, cut, width_of
from leapmpi.report.figures import SchemaFigure, SchemaRelation
from leapmpi.report.numbers import COUNT, short, shown

_LINE, _GAP, _MARGIN = 14.0, 4.0, 4.0
"""Height of a line of text, space around it, and margins of the drawing, in pixels."""

_BOX, _APART, _HEAD = 38.0, 44.0, 8.0
"""Height of a type's box, least distance of boxes, length of an arrow's head."""

_BOW, _LOOP = 44.0, 24.0
"""Distance of the middles of arrows between the same types; height of an arrow from a type to itself."""

_DETOURS = (0.0, 90.0, -90.0, 180.0, -180.0)
"""Further bends of an arrow, the first that leads past all other boxes."""

_PLACES = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73)
"""Places of a label on its arrow, the first that is free."""

_MOST_LINES = 2
"""Most relations of an arrow whose names stand on it."""


@dataclass(frozen=True)
class Box:
    """Rectangle in pixels around `lines` of text, such as a type or a label."""

    left: float
    top: float
    right: float
    bottom: float
    lines: Sequence[str] = ()
    target: bool = False

    @property
    def centre(self) -> tuple[float, float]:
        """x and y of the middle."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def baselines(self) -> Iterator[tuple[str, float, float]]:
        """Yield each line of text with x of its middle and y of its baseline."""
        x, y = self.centre
        first = y - len(self.lines) * _LINE / 2 + _LINE - 3
        for number, line in enumerate(self.lines):
            yield line, x, first + number * _LINE

    def meets(self, other: Box, gap: float = 0.0) -> bool:
        """Return whether the boxes are less than `gap` apart in both directions."""
        across = self.left - gap < other.right and other.left - gap < self.right
        return across and self.top - gap < other.bottom and other.top - gap < self.bottom

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Return bool[n]: which of the `points` (float64[n, 2]) are inside."""
        x, y = points.T
        return (x >= self.left) & (x <= self.right) & (y >= self.top) & (y <= self.bottom)


@dataclass(frozen=True)
class SchemaLayout:
    """Places of all that is drawn, in pixels: `height` of the drawing, boxes of `types`, and labels.

    arrows: the points of each line, float64[n, 2]; heads: triangles, float64[3, 2]; key: lines below the drawing.
    """

    height: float
    types: Sequence[Box]
    arrows: Sequence[np.ndarray]
    heads: Sequence[np.ndarray]
    labels: Sequence[Box]
    key: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class _Arrow:
    """Relations from one type to another, with or without their reverses."""

    source: int
    destination: int
    both_ways: bool
    relations: Sequence[SchemaRelation]

    def lines(self) -> list[str]:
        """Return the text on the arrow: names and counts, or their number and sum."""
        if len(self.relations) <= _MOST_LINES:
            return [f"{cut(each.name, 150)} {_brief(each.edges)}" for each in self.relations]
        whole = sum(each.edges for each in self.relations)
        return [f"{len(self.relations)} relations", f"{_brief(whole)} edges"]


def schema_layout(figure: SchemaFigure, width: int) -> SchemaLayout:
    """Return the places of a schema, `width` pixels wide."""
    arrows = _arrows(figure)
    types = _type_boxes(figure, arrows, width)
    lines = [_points(arrow, bow, types) for arrow, bow in zip(arrows, _bows(arrows), strict=True)]
    labels: list[Box] = []
    key: list[str] = []
    for arrow, points in zip(arrows, lines, strict=True):
        label = _free(arrow.lines(), arrow, points, [*types, *labels], width)
        if label is None:
            number = str(len(key) + 1)
            label = _free([number], arrow, points, [*types, *labels], width)
            key.append(_entry(number if label else "·", arrow, figure))
        labels += [label] if label else []

    # Move all to the top; the key stands below.
    heads = [head for arrow, points in zip(arrows, lines, strict=True) for head in _heads(arrow, points)]
    top = min(*(each.top for each in (*types, *labels)), *(points[:, 1].min() for points in lines)) - _MARGIN
    bottom = max(*(each.bottom for each in (*types, *labels)), *(points[:, 1].max() for points in lines)) + _MARGIN
    down = np.array([0.0, top])
    return SchemaLayout(
        bottom - top + (len(key) * (_LINE + 4) + 6 if key else 0),
        [_raised(each, top) for each in types],
        [points - down for points in lines],
        [head - down for head in heads],
        [_raised(each, top) for each in labels],
        [(cut(text, width), bottom - top + (number + 1) * (_LINE + 4)) for number, text in enumerate(key)],
    )


def _brief(count: int) -> str:
    return shown(count, COUNT) if count < 100_000 else short(float(f"{count:.3g}"))


def _entry(number: str, arrow: _Arrow, figure: SchemaFigure) -> str:
    """Return the line of the key for an arrow."""
    source, destination = (figure.types[each].name for each in (arrow.source, arrow.destination))
    return f"{number}  {source} {'↔' if arrow.both_ways else '→'} {destination}: {', '.join(arrow.lines())}"


def _raised(box: Box, by: float) -> Box:
    return Box(box.left, box.top - by, box.right, box.bottom - by, box.lines, box.target)


def _arrows(figure: SchemaFigure) -> list[_Arrow]:
    """Group the relations by their types; reverse relations make an arrow one with two heads."""
    groups: dict[tuple[int, int, bool], list[SchemaRelation]] = {}
    reversed_ones = {each.reverse_of for each in figure.relations}
    number = {each.name: place for place, each in enumerate(figure.types)}
    for each in figure.relations:
        if not each.reverse_of:
            ends = number[each.source], number[each.destination], each.full_name in reversed_ones
            groups.setdefault(ends, []).append(each)
    return [_Arrow(*ends, relations) for ends, relations in groups.items()]


def _type_boxes(figure: SchemaFigure, arrows: Sequence[_Arrow], width: int) -> list[Box]:
    """Return the boxes of all types on an ellipse, as flat as leaves them apart."""
    texts = [
        (cut(each.name, width // (4 if width == WIDE else 3)), "target, " * each.target + _brief(each.vertices))
        for each in figure.types
    ]
    widths = [max(map(width_of, lines)) + 14 for lines in texts]
    across = (width - max(widths)) / 2 - _MARGIN
    loops = any(arrow.source == arrow.destination for arrow in arrows)
    apart = _APART + (_LOOP + 2 * _LINE if loops else 0)
    for places in (*_ellipses(len(texts), across, width), _rows(len(texts), across, _BOX + apart)):
        boxes = []
        for each, lines, (x, y), box in zip(figure.types, texts, places, widths, strict=True):
            left = width / 2 + x - box / 2
            boxes.append(Box(left, y - _BOX / 2, left + box, y + _BOX / 2, lines, each.target))
        if not any(a.meets(b, apart) for place, a in enumerate(boxes) for b in boxes[:place]):
            break
    return boxes


def _ellipses(number: int, across: float, width: int) -> Iterator[list[tuple[float, float]]]:
    """Yield places on ellipses of growing height, as offsets from their middle."""
    start = math.pi if width == WIDE else -math.pi / 2
    angles = [start + 2 * math.pi * place / number for place in range(number)]
    for down in range(80, 260, 10):
        yield [(across * math.cos(angle), down * math.sin(angle)) for angle in angles]


def _rows(number: int, across: float, height: float) -> list[tuple[float, float]]:
    """Return places in rows of two, with the first alone on top, as offsets from their middle."""
    half = number // 2
    places = []
    for place in range(number):
        row = min(place, number - place)
        side = 0 if place == 0 or (number % 2 == 0 and place == half) else 1 if place == row else -1
        places.append((side * across, (row - half / 2) * height))
    return places


def _bows(arrows: Sequence[_Arrow]) -> list[float]:
    """Return how far each arrow bends to a side, so that those between the same types are apart."""
    between: dict[tuple[int, int], list[int]] = {}
    for number, arrow in enumerate(arrows):
        between.setdefault((min(arrow.source, arrow.destination), max(arrow.source, arrow.destination)), []).append(
            number
        )
    bows = [0.0] * len(arrows)
    for numbers in between.values():
        for place, number in enumerate(numbers):
            side = 1 if arrows[number].source < arrows[number].destination else -1
            bows[number] = side * (place - (len(numbers) - 1) / 2) * _BOW * 2
    return bows


def _points(arrow: _Arrow, bow: float, types: Sequence[Box]) -> np.ndarray:
    """Return the points of an arrow between the edges of its boxes, float64[n, 2]."""
    one, other = types[arrow.source], types[arrow.destination]
    t = np.linspace(0, 1, 513)[:, None]
    if one is other:
        # An arc on the side of the box that faces outwards.
        x, y = one.centre
        out = -1 if y <= 0 else 1
        reach = _LOOP + abs(bow) / 4
        angle = math.pi * t
        return _fewer(np.hstack([x - 18 * np.cos(angle), y + out * (_BOX / 2 + reach * np.sin(angle))]))
    a, b = np.array(one.centre), np.array(other.centre)
    along = b - a
    aside = np.array([along[1], -along[0]]) / (np.hypot(*along) or 1.0)
    further = [each for each in types if each not in (one, other)]
    lines = []
    for detour in _DETOURS:
        middle = (a + b) / 2 + aside * (bow + detour)
        points = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * b
        lines.append(_fewer(points[~one.holds(points) & ~other.holds(points)]))
        if not any(each.holds(lines[-1]).any() for each in further):
            return lines[-1]
    return lines[0]


def _fewer(points: np.ndarray) -> np.ndarray:
    """Return the ends of a line and 31 points between them."""
    return points[np.linspace(0, len(points) - 1, 33).astype(int)]


def _heads(arrow: _Arrow, points: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the triangles at the ends of an arrow."""
    for line in (points, points[::-1])[: 1 + arrow.both_ways]:
        tip = line[-1]
        back = line[np.hypot(*(line - tip).T) >= min(_HEAD, np.hypot(*(line[0] - tip)))][-1]
        along = (tip - back) / (np.hypot(*(tip - back)) or 1.0)
        aside = np.array([-along[1], along[0]]) * _HEAD / 2
        yield np.array([tip, tip - along * _HEAD + aside, tip - along * _HEAD - aside])


def _free(lines: Sequence[str], arrow: _Arrow, points: np.ndarray, taken: Sequence[Box], width: int) -> Box | None:
    """Return the first place on the arrow where a label of `lines` meets nothing, or None."""
    half, tall = max(map(width_of, lines)) / 2 + _GAP, len(lines) * _LINE + _GAP
    places = [points[int(share * (len(points) - 1))] for share in _PLACES]
    if arrow.source == arrow.destination:
        # Beyond the arc, not upon it.
        x, y = places[0]
        places = [(x, y + (tall if y > points[0, 1] else -tall) / 2), *places]
    for x, y in places:
        x = min(max(x, half), width - half)
        label = Box(x - half, y - tall / 2, x + half, y + tall / 2, lines)
        if label.left >= 0 and not any(label.meets(each, 1.0) for each in taken):
            return label
    return None
