"""The epochs of a run as a table: a pandas.DataFrame where pandas is installed, else rows that print well."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from html import escape
from typing import Any

from leapmpi.runs.tables.text import aligned

_COLUMNS = (
    *("epoch", "loss", "val", "test", "seconds", "evaluation_seconds", "remote_share", "sent_bytes", "lr"),
    *("time_steps", "remote"),
)


class EpochTable(list[dict[str, Any]]):
    """A list of dicts, one for each epoch, that shows itself as a table, in notebooks too."""

    def __repr__(self) -> str:
        return aligned(self._lines()) if self else "no epochs"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        head, *rows = [[escape(cell) for cell in line] for line in self._lines()]
        cells = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[list[str]]:
        return [[*_COLUMNS], *([_text(row[name]) for name in _COLUMNS] for row in self)]


def epoch_table(records: Sequence[dict[str, Any]]) -> Any:
    """A row for each of the `records` of epochs, the last of those with one number. Scores that are missing are None.

    Columns: epoch (from 1), loss, val and test by the run's metric, seconds of training and of evaluation, remote_share
    of the rows that were read, sent_bytes over all ranks, lr, time_steps, remote.
    """
    last = {each["epoch"]: each for each in records}
    rows = EpochTable(_row(last[number]) for number in sorted(last))
    if importlib.util.find_spec("pandas") is None:
        return rows
    import pandas

    return pandas.DataFrame(rows, columns=list(_COLUMNS)).set_index("epoch")


def _row(record: dict[str, Any]) -> dict[str, Any]:
    scores, rows = record.get("accuracy", {}), record.get("rows", {})
    return {
        **{name: record.get(name) for name in _COLUMNS},
        "val": scores.get("val"),
        "test": scores.get("test"),
        "remote_share": rows.get("remote", 0) / max(1, sum(rows.values())),
        "sent_bytes": sum(record.get("bytes", {}).values()),
    }


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
