"""Numbers of epochs: from 0 in the program, from 1 in the records of a run, as for people.

Files of schema 1 counted from 0. Checkpoints, which are the program's own, do so still.
"""

from __future__ import annotations

from typing import Any

FROM_ZERO = 1
"""The schema of files and records whose epochs count from 0; those of later ones count from 1."""


def up_to_date(values: dict[str, Any], schema: int) -> dict[str, Any]:
    """`values` of a record or a summary as `schema`, the newest, has them: epochs from 1."""
    old = values.get("schema", FROM_ZERO) == FROM_ZERO
    return {**renumbered(values), "schema": schema} if old else values


def renumbered(values: Any, by: int = 1) -> Any:
    """A copy of plain `values` in which every whole number under a key `epoch`, at any depth, is larger by `by`."""
    if isinstance(values, dict):
        return {key: _number(each, by) if key == "epoch" else renumbered(each, by) for key, each in values.items()}
    # Lists hold either objects or numbers.
    if isinstance(values, list) and values and isinstance(values[0], dict):
        return [renumbered(each, by) for each in values]
    return values


def _number(value: Any, by: int) -> Any:
    return value + by if isinstance(value, int) and not isinstance(value, bool) else value
