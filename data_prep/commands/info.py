"""`leapmpi-prep info PATH`: what a graph file or a dataset holds and where it comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from leapmpi.dataset.hdf5 import names

HELP = "show what a graph file or a dataset holds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="graph file or dataset folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from data_prep.commands.check import open_any

    description = open_any(arguments.path).describe()
    print(json.dumps(description, indent=2, sort_keys=True) if arguments.json else _text(description))
    return 0


def _text(description: dict[str, Any]) -> str:
    """Return the description as lines of name and value, then tables: types and relations, if any, and parts."""
    parts = description.pop("part_list", [])
    typed = [description.pop(name, []) for name in (names.VERTEX_TYPE_LIST, names.RELATION_LIST)]
    shown = ("relation", "edges", "reverse_of")
    typed[1] = [{key: row[key] for key in shown} for row in typed[1]]
    splits = description.pop("splits")
    lines = [f"{name:<18} {_shown(value)}" for name, value in sorted(description.items()) if name not in splits]
    lines += [f"{'split ' + name:<18} {count:,}" for name, count in splits.items()]
    for rows in filter(None, typed):
        lines += ["", *_table(rows)]
    if parts:
        columns = list(parts[0])
        lines += ["", "".join(f"{name:>16}" for name in columns)]
        lines += ["".join(f"{_shown(row[name]):>16}" for name in columns) for row in parts]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table of `rows` with their names above; columns are as wide as their widest value."""
    cells = [list(rows[0]), *([_shown("" if value is None else value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
