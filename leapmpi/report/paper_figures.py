"""Single figures as PNG or PDF for papers, drawn by matplotlib (extra: pip install 'leapmpi[figures]')."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.errors import ConfigError, nearest
from leapmpi.report.figures import BarFigure, Figure, HeatFigure, LineFigure
from leapmpi.report.numbers import short
from leapmpi.report.page import make_folder
from leapmpi.system.atomic_files import written_aside

ALL = "all"


def write_figures(figures: Mapping[str, Figure], names: Sequence[str], kind: str, report: Path) -> list[Path]:
    """Write the figures called `names` (ALL: every figure) next to the page `report`.

    `kind` is png or pdf. Returns the paths written. Raises ConfigError for an unknown name, or if matplotlib is
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
        with written_aside(path, overwrite=True) as aside:
            _write(figures[name], kind, aside)
        written.append(path)
    return written


def _write(figure: Figure, kind: str, path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    tall = 2.6 + 0.18 * len(figure.labels) if isinstance(figure, BarFigure) else 4.2
    canvas = Canvas(figsize=(6.4, min(tall, 12.0)), layout="constrained")
    axes: Any = canvas.add_subplot()
    axes.set_title(figure.title, fontsize=10, wrap=True)
    if isinstance(figure, LineFigure):
        _lines(figure, axes)
    elif isinstance(figure, BarFigure):
        _bars(figure, axes)
    elif isinstance(figure, HeatFigure):
        _heat(figure, axes, canvas)
    # Drop dates and versions: equal figures give equal files.
    dates: dict[str, Any] = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    canvas.savefig(path, format=kind, dpi=200, metadata=dates)


def _lines(figure: LineFigure, axes: Any) -> None:
    for line in figure.lines:
        axes.plot(line.x, line.y, label=line.label, marker="." if line.marked else None, linewidth=1)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if figure.from_zero:
        axes.set_ylim(bottom=0)
    _finish(axes, len(figure.lines))


def _bars(figure: BarFigure, axes: Any) -> None:
    rows = np.arange(len(figure.labels))
    left, each = np.zeros(len(rows)), 0.8 / (1 if figure.stacked else len(figure.stacks))
    for number, (name, values) in enumerate(figure.stacks):
        lengths = np.nan_to_num(np.array(values, np.float64))
        place = rows if figure.stacked else rows + (number - (len(figure.stacks) - 1) / 2) * each
        axes.barh(place, lengths, each, left=left if figure.stacked else None, label=name)
        left = left + lengths
    axes.set_yticks(rows, figure.labels, fontsize=7)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: short(value, figure.unit))
    _finish(axes, len(figure.stacks))


def _heat(figure: HeatFigure, axes: Any, canvas: Any) -> None:
    image = axes.imshow(figure.values, cmap="Blues", vmin=0)
    axes.set_xlabel(figure.column_title)
    axes.set_ylabel(figure.row_title)
    if len(figure.columns) <= 16:
        axes.set_xticks(range(len(figure.columns)), figure.columns, fontsize=7)
        axes.set_yticks(range(len(figure.labels)), figure.labels, fontsize=7)
    canvas.colorbar(image, format=lambda value, _: short(value, figure.unit))


def _finish(axes: Any, entries: int) -> None:
    if entries > 1:
        axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
