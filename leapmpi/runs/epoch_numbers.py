"""Epoch numbers: from 0 in the program, from 1 in the records of a run.

Files of schema 1 counted from 0, and checkpoints still do.
"""

from __future__ import annotations

from typing import Any

FROM_ZERO = 1
"""Schema of files and records that count epochs from 0. Later schemas count from 1."""


def up_to_date(values: dict[str, Any], schema: int) -> dict[str, Any]:
    """Return `values` of a record or a summary in the newest `schema`, with epochs from 1."""
    old = values.get("schema", FROM_ZERO) == FROM_ZERO
    return {**renumbered(values), "schema": schema} if old else values


def renumbered(values: Any, by: int = 1) -> Any:
    """Return a copy of plain `values` with `by` added to each whole number under a key `epoch`, at any depth."""
    if isinstance(values, dict):
        return {key: _number(each, by) if key == "epoch" else renumbered(each, by) for key, each in values.items()}
    # Lists hold either objects or numbers.
    if isinstance(values, list) and values and isinstance(values[0], dict):
        return [renumbered(each, by) for each in values]
    return values


def _number(value: Any, by: int) -> Any:
    return value + by if isinstance(value, int) and not isinstance(value, bool) else value
