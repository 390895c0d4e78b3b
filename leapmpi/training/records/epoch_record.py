"""The record of an epoch: what metrics.jsonl holds, and the line for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.runs.tables.text import size_text
from leapmpi.system.phase_timers import PHASES, PhaseTimers


def mean_and_max(seconds: np.ndarray) -> dict[str, dict[str, float]]:
    """Mean and maximum over the ranks, by phase, of float64[ranks, phases]."""
    return {
        phase: {"mean": float(column.mean()), "max": float(column.max())}
        for phase, column in zip(PHASES, seconds.T, strict=True)
    }


def work_ahead(phases: PhaseTimers, communicator: Communicator) -> dict[str, Any]:
    """Seconds of work ahead of training since the epoch, or this start, began, by phase. Collective.

    `hidden` says how many of them were hidden: spent while training did something else than wait.
    """
    spent, hidden = phases.take_ahead()
    seconds = communicator.all_gather_rows(np.array([*(spent[phase] for phase in PHASES), hidden]))
    return {"phases": mean_and_max(seconds[:, :-1]), "hidden": float(seconds[:, -1].mean())}


def epoch_line(record: dict[str, Any], epochs: int, metric: str) -> str:
    """One line for people: `epoch 3/10  loss 1.2345  accuracy val 0.8120 test 0.8010  2.31 s  ...`."""
    text = f"epoch {record['epoch'] + 1}/{epochs}  loss {record['loss']:.4f}"
    known = {split: score for split, score in record["accuracy"].items() if score is not None}
    if known:
        text += f"  {metric} " + " ".join(f"{split} {score:.4f}" for split, score in known.items())

    # Seconds, rows and bytes.
    rows = record["rows"]
    remote = rows["remote"] / max(1, sum(rows.values()))
    text += f"  {record['seconds']:.2f} s  remote rows {remote:.0%}"
    if cache := record.get("cache"):
        text += f" (cache spared {cache['hit_rate']:.0%})"
    text += f"  sent {size_text(sum(record['bytes'].values()))}"

    # Where the time went, and what ran ahead of training.
    spent = {phase: times["mean"] for phase, times in record["phases"].items() if times["mean"] >= 0.005}
    if spent:
        text += "  (" + " ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items()) + ")"
    if record.get("prefetch"):
        ahead = record["ahead"]
        text += f"  ahead {ahead_seconds(ahead):.2f} s, {ahead['hidden']:.2f} of them hidden"
    return text


def ahead_seconds(ahead: dict[str, Any]) -> float:
    """Seconds, mean over ranks, that an epoch's record says were spent ahead of training."""
    return sum(times["mean"] for times in ahead["phases"].values())
