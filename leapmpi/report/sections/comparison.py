"""Section that compares runs: speed-ups with bootstrap intervals over warm epochs, with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.report.figures import BarFigure
from leapmpi.report.markup import note, table
from leapmpi.report.numbers import BYTES, SCORE, SECONDS, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

_DRAWS = 2000
_SEED = 0
_LEAST_EPOCHS = 3
"""Fewest warm epochs of both runs for an interval."""


@dataclass(frozen=True)
class SpeedUp:
    """Ratio of epoch times, first run over this run, with its 95 % interval if there is one."""

    ratio: float
    low: float | None
    high: float | None

    def text(self) -> str:
        """Format as '1.82 (1.75 to 1.90)'."""
        if self.low is None or self.high is None:
            return f"{self.ratio:.2f} (too few warm epochs for an interval)"
        doubt = ", no clear difference" if self.low <= 1 <= self.high else ""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}{doubt})"


def speed_up(first: Sequence[float], other: Sequence[float]) -> SpeedUp | None:
    """Return the ratio of median epoch seconds, `first` over `other`; None if one is empty or zero.

    The interval is that of the percentile bootstrap (Efron and Tibshirani, 1993, section 13.3). Both sides are
    resampled with replacement 2,000 times, with a fixed seed.
    """
    if not len(first) or not len(other) or not np.median(other) > 0:
        return None
    ratio = float(np.median(first) / np.median(other))
    if min(len(first), len(other)) < _LEAST_EPOCHS:
        return SpeedUp(ratio, None, None)
    generator = np.random.default_rng(_SEED)
    a, b = (np.array(each)[generator.integers(len(each), size=(_DRAWS, len(each)))] for each in (first, other))
    ratios = np.median(a, axis=1) / np.median(b, axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return SpeedUp(ratio, float(low), float(high))


def warm_seconds(run: RunData) -> list[float]:
    """Return the seconds of the warm epochs of a run."""
    return [each["seconds"] for each in run.warm if "seconds" in each]


def section(runs: Sequence[RunData]) -> Section:
    """Return several runs side by side: seconds, speed-up over the first, bytes, scores."""
    rows = [["run", "strategy", "ranks", "s/epoch", "speed-up over the first (95 %)", "bytes an epoch", "val", "test"]]
    first = warm_seconds(runs[0])
    ratios = []
    for run in runs:
        found = speed_up(first, warm_seconds(run))
        # A run without warm epochs keeps its place in the figure, without a bar.
        ratios.append(np.nan if found is None else found.ratio)
        text = "1" if run is runs[0] else "-" if found is None else found.text()
        strategy = run.ended.get("strategy") or (run.config.strategy.name if run.config else "-")
        sent = run.median("bytes")
        cells = [strategy, str(run.size), shown(run.epoch_seconds, SECONDS), text]
        cells += [
            shown(sum(sent.values()), BYTES) if sent else "-",
            shown(run.best.get("val"), SCORE),
            shown(run.best.get("test"), SCORE),
        ]
        rows.append([run.label, *cells])
    meaning = (
        "Speed-up: median seconds of the first run's warm epochs over those of this run; in brackets the 95 % "
        "interval of a bootstrap over epochs. It covers variation within these runs, not how a machine varies "
        "from day to day: compare only runs of one sitting (leapmpi bench)."
    )
    figure = BarFigure(
        "speed-up",
        "Speed-up over the first run",
        [r.label for r in runs],
        [("speed-up", ratios)],
        "",
        "run",
        measure="times as fast",
    )
    return Section("Comparison", [table(rows, 2), note(meaning)], [figure])
