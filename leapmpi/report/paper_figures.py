"""Single figures as PNG, PDF or SVG for papers, drawn by matplotlib (extra: pip install 'leapmpi[figures]')."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError, nearest
from leapmpi.report.charts import agreeing, value_range
from leapmpi.report.colours import GREY, LIGHT, colour_numbers
from leapmpi.report.drawing import WIDE
from leapmpi.report.figures import BarFigure, Figure, HeatFigure, LineFigure, SchemaFigure
from leapmpi.report.numbers import short, ticks
from leapmpi.report.page import make_folder
from leapmpi.report.schema_layout import schema_layout
from leapmpi.system.atomic_files import written_aside

ALL = "all"

_STYLE: Any = {
    **{"font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7},
    **{
        "legend.fontsize": 7,
        "legend.frameon": False,
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.2,
        "lines.markersize": 4,
    },
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True},
    # Text stays text in PDF and SVG, for editors and searches; equal figures give equal files.
    **{"grid.linewidth": 0.4, "grid.alpha": 0.5, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "leapmpi"},
}
"""One style for all figures, of the width of a column (3.4 inches) and more."""

_WIDTH, _LETTERS = 5.0, 90
"""Width of a figure in inches, and in characters of its legend."""

_METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
"""Dates and versions that are left out, by kind."""


def write_figures(figures: Mapping[str, Figure], names: Sequence[str], kind: str, report: Path) -> list[Path]:
    """Write the figures called `names` (ALL: every figure) next to the page `report`.

    `kind` is png, pdf or svg. Returns the paths written. Raises ConfigError for an unknown name, or if matplotlib is
    missing.
    """
    chosen = list(figures) if ALL in names else list(names)
    for name in chosen:
        if name not in figures:
            known = ", ".join(figures)
            raise ConfigError(f"--{kind} {name}: there is no such figure; {nearest(name, figures)} ({known}, or {ALL})")
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(f"--{kind} needs matplotlib; install it: pip install 'leapmpi[figures]'") from None

    make_folder(report.absolute().parent)
    # Draw without a display, so that compute nodes can do it.
    matplotlib.use("Agg")
    written = []
    for name in chosen:
        path = report.with_name(f"{report.stem}-{name}.{kind}")
        with written_aside(path, overwrite=True) as aside, matplotlib.rc_context(_STYLE):
            _write(figures[name], kind, aside)
        written.append(path)
    return written


def _write(figure: Figure, kind: str, path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(_WIDTH, min(_height(figure), 12.0)), layout="constrained")
    axes: Any = canvas.add_subplot()
    axes.set_title(figure.title, wrap=True)
    if isinstance(figure, LineFigure):
        _lines(figure, axes)
    elif isinstance(figure, BarFigure):
        _bars(figure, axes)
    elif isinstance(figure, HeatFigure):
        _heat(figure, axes, canvas)
    elif isinstance(figure, SchemaFigure):
        _schema(figure, axes)
    # Entries stand beside the axes, where they hide nothing.
    if len(names := axes.get_legend_handles_labels()[1]) > 1:
        fitting = max(1, _LETTERS // (max(map(len, names)) + 8))
        canvas.legend(loc="outside lower center", ncols=min(len(names), fitting))
    canvas.savefig(path, format=kind, dpi=300, metadata=_METADATA[kind])


def _height(figure: Figure) -> float:
    """Return the height of a figure in inches."""
    if isinstance(figure, BarFigure):
        return 1.2 + 0.2 * len(figure.labels) * (1 if figure.stacked else len(figure.stacks))
    if isinstance(figure, SchemaFigure):
        return 0.4 + _WIDTH * schema_layout(figure, WIDE).height / WIDE
    return 2.8


def _lines(figure: LineFigure, axes: Any) -> None:
    x0, x1, y0, y1 = value_range(figure)
    colours = colour_numbers([line.label for line in figure.lines])
    for line, colour, (place, together) in zip(figure.lines, colours, agreeing(figure.lines), strict=True):
        style: Any = "--" if line.reference else (-4 * place, (4, 4 * (together - 1))) if together > 1 else "-"
        marker = "." if line.marked and not line.reference else None
        colour = GREY if line.reference else colour
        axes.plot(line.x, line.y, label=line.label, marker=marker, linestyle=style, color=LIGHT[colour])
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_ylim(y0, y1)

    # The tick marks of the page.
    whole = figure.x_label == "epoch"
    across, up = ticks(x0, x1, 8, whole=whole), ticks(y0, y1, 5, figure.unit)
    axes.set_xticks(across, [short(each) for each in across])
    axes.set_yticks(up, [short(each, figure.unit) for each in up])


def _bars(figure: BarFigure, axes: Any) -> None:
    rows = np.arange(len(figure.labels))
    left, each = np.zeros(len(rows)), 0.8 / (1 if figure.stacked else len(figure.stacks))
    names = [name for name, _ in figure.stacks]
    for number, ((name, values), colour) in enumerate(zip(figure.stacks, colour_numbers(names), strict=True)):
        lengths = np.nan_to_num(np.array(values, np.float64))
        place = rows if figure.stacked else rows + (number - (len(figure.stacks) - 1) / 2) * each
        beginning = left if figure.stacked else None
        axes.barh(place, lengths, each, left=beginning, label=name, color=LIGHT[colour])
        left = left + lengths
    axes.set_yticks(rows, figure.labels)
    axes.set_ylabel(figure.first)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    marks = ticks(0, max(axes.get_xlim()[1], 0.0), 6, figure.unit)
    axes.set_xticks(marks, [short(value, figure.unit) for value in marks])
    axes.set_xlabel(figure.axis_title)


def _heat(figure: HeatFigure, axes: Any, canvas: Any) -> None:
    image = axes.imshow(figure.matrix, cmap="Blues", vmin=0, aspect="auto")
    axes.grid(visible=False)
    axes.set_xlabel(figure.column_title)
    axes.set_ylabel(figure.row_title)
    if len(figure.columns) <= 16:
        axes.set_xticks(range(len(figure.columns)), figure.columns)
        axes.set_yticks(range(len(figure.labels)), figure.labels)
    marks = ticks(0, float(figure.matrix.max(initial=0.0)), 6, figure.unit)
    canvas.colorbar(image, ticks=marks, format=lambda value, _: short(value, figure.unit))


def _schema(figure: SchemaFigure, axes: Any) -> None:
    places = schema_layout(figure, WIDE)
    axes.set_axis_off()
    axes.set_xlim(0, WIDE)
    axes.set_ylim(places.height, 0)
    axes.set_aspect("equal")
    for points in places.arrows:
        axes.plot(*points.T, color=LIGHT[GREY], linewidth=0.8)
    for head in places.heads:
        axes.fill(*head.T, color=LIGHT[GREY], linewidth=0)
    for each in (*places.types, *places.labels):
        x, y = [each.left, each.right, each.right, each.left], [each.top, each.top, each.bottom, each.bottom]
        edge = "none" if each in places.labels else LIGHT[0 if each.target else GREY]
        axes.fill(x, y, facecolor="white", edgecolor=edge, linewidth=0.8, zorder=3)
        axes.text(*each.centre, "\n".join(each.lines), ha="center", va="center", fontsize=6, zorder=4)
    for text, height in places.key:
        axes.text(4, height, text, va="baseline", fontsize=6)
