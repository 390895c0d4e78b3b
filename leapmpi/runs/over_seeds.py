"""Mean and deviation of the scores of runs that differ in nothing but their seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from leapmpi.config.sections import flattened
from leapmpi.errors import LeapmpiError
from leapmpi.runs.run import Run
from leapmpi.runs.text import fitted, score_text

_SEEDS = ("train.seed", "model.seed")
_NOT_OF_THE_MODEL = ("run.", "strategy.vary")
"""Settings that name places, or several models of one job."""


def mean_and_deviation(scores: Sequence[float]) -> dict[str, float]:
    """Return the `mean` of some scores and their sample `deviation`, 0 for a single one."""
    return {"mean": statistics.mean(scores), "deviation": statistics.stdev(scores) if len(scores) > 1 else 0.0}


def over_seeds(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one entry for each set of settings that finished runs of different seeds share.

    `settings` names those that differ between entries; `runs` counts; `metric`; `exact` says which scores they are;
    `val` and `test` hold `mean` and `deviation`, if all runs were scored on that split. Runs whose settings cannot be
    read are left out.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        try:
            values = flattened(run.config.to_values())
        except LeapmpiError:
            continue
        kept = {key: str(each) for key, each in values.items() if key not in _SEEDS}
        kept = {key: each for key, each in kept.items() if not key.startswith(_NOT_OF_THE_MODEL)}
        groups.setdefault((*sorted(kept.items()), run.summary.get("metric")), []).append(run)
    seeds = {key: {(run.config.train.seed, run.config.model.seed) for run in each} for key, each in groups.items()}
    groups = {key: members for key, members in groups.items() if len(seeds[key]) > 1}
    return [_entry(dict(key[:-1]), [dict(each[:-1]) for each in groups], members) for key, members in groups.items()]


def _entry(own: Mapping[str, str], others: Sequence[Mapping[str, str]], members: Sequence[Run]) -> dict[str, Any]:
    """Return the entry of the runs `members`, which have the settings `own`."""
    differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
    exact = all(run.summary.get("exact") for run in members)
    scores = [run.summary["exact" if exact else "best"] for run in members]
    entry: dict[str, Any] = {
        "settings": ", ".join(f"{key}={own[key]}" for key in differing),
        "runs": len(members),
        "metric": members[0].summary.get("metric"),
        "exact": exact,
    }
    for split in ("val", "test"):
        known = [each.get(split) for each in scores]
        if None not in known:
            entry[split] = mean_and_deviation([each for each in known if each is not None])
    return entry


def seed_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Format `over_seeds` as fitted text, below a heading; '' without entries."""
    if not entries:
        return ""
    lines = [["settings", "runs", "metric", "val", "test"]]
    for each in entries:
        metric = f"{each['metric']}{', exact' * each['exact']}"
        scores = [spread_text(each[split]) if split in each else "-" for split in ("val", "test")]
        lines.append([each["settings"] or "all alike", str(each["runs"]), metric, *scores])
    return f"mean and deviation over seeds\n{fitted(lines)}"


def spread_text(found: Mapping[str, float]) -> str:
    """Format what `mean_and_deviation` returns: '0.8120 ± 0.0130'."""
    return f"{score_text(found['mean'])} ± {score_text(found['deviation'])}"
