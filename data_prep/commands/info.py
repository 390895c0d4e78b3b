"""`leapmpi-prep info PATH`: what a graph file or a dataset holds and where it comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from leapmpi.dataset.hdf5 import names

HELP = "show what a graph file or a dataset holds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph or dataset to describe, and the form of the output."""
    parser.add_argument("path", type=Path, help="graph file or dataset folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from data_prep.commands.check import open_any

    description = open_any(arguments.path).describe()
    print(json.dumps(description, indent=2, sort_keys=True) if arguments.json else _text(description))
    return 0


_MEANINGS = {
    "format": "graph file, or dataset of parts",
    "source": "", "source_format": "", "command": "", "graph_command": "",
    "created_utc": "",
    "graph_uuid": "identity of the graph", "uuid": "identity of the parts",
    "vertices": "",
    "edges": "with one entry for each direction",
    "directed": "whether edges were kept in one direction",
    "largest_component": "whether the rest was left out",
    "vertex_types": "", "relations": "",
    "feature_dim": "columns of features",
    "feature_storage": "zeros of sparse rows are not stored",
    "feature_entries": "features that are not zero",
    "feature_dtype": "type of each number",
    "feature_origin": "", "feature_normalisation": "",
    "feature_error_largest": "of storing, as a share of a column's range",
    "feature_error_rms": "the same, root mean square",
    "classes": "", "label_kind": "",
    "edge_classes": "classes of edges",
    "edge_feature_dim": "columns of features of edges",
    "has_edge_weight": "", "has_edge_time": "", "has_vertex_time": "",
    "vertex_names": "file of names",
    "split_origin": "",
    "edge_split_origin": "", "val_edges": "held back", "test_edges": "held back",
    "val_negatives": "pairs to score against", "test_negatives": "pairs to score against",
    "parts": "files to divide among ranks",
    "method": "how the graph was cut", "seed": "of the cut", "hierarchy": "parts by level",
    "method_reason": "",
    "vertex_order": "of a part: as in the source, or by community",
    "has_columns": "features are stored by column too, for p3",
    "edge_cut": "edges that lead to another part", "edge_cut_share": "of all edges",
    "cut_on_ranks": "share of edges between so many ranks",
    "replication": "parts that need a vertex, on average",
    "vertex_balance": "largest part / mean, by vertices",
    "training_balance": "the same by training vertices",
    "edge_balance": "the same by edges", "work_balance": "the same by rows and edges of samples",
    "balanced_by": "what the cut balanced", "type_balance": "the same by vertices of each type",
    "replicated_types": "types whose rows every rank holds",
    "micrograph_locality": "sampled vertices of a root that are in its part",
}  # fmt: skip
"""Keys that are shown, in their order, and what their values mean; --json shows all."""

_VALUE = 14
"""Columns of a value that has its meaning beside it."""


def _text(description: dict[str, Any]) -> str:
    """Return lines of name, value and meaning, then tables: types and relations, if any, and parts."""
    parts = description.pop("part_list", [])
    typed = [description.pop(name, []) for name in (names.VERTEX_TYPE_LIST, names.RELATION_LIST)]
    shown = ("relation", "edges", "reverse_of")
    typed[1] = [{key: row[key] for key in shown} for row in typed[1]]
    splits = description.pop("splits")
    rows = [(name, _shown(description[name]), meaning) for name, meaning in _MEANINGS.items() if name in description]
    rows += [(f"split {name}", f"{count:,}", "") for name, count in splits.items()]
    lines = [
        f"{name:<18} {value:<{_VALUE}} {meaning if len(value) <= _VALUE else ''}".rstrip()
        for name, value, meaning in rows
    ]
    for table in filter(None, (*typed, parts)):
        lines += ["", *_table(table)]
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
