"""Rates for a forecast of seconds: computing as measured here, the link as given or as a run measured it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leapmpi.config import Config
from leapmpi.errors import RunFolderError
from leapmpi.forecast.predict import Forecaster
from leapmpi.plan.cost import Rates, link_rates
from leapmpi.run import load_run
from leapmpi.training.probe import compute_rates
from leapmpi.training.tuning import RATES


def check_link(link: str) -> None:
    """Raise ConfigError or RunFolderError when `rates_for` would refuse `link`."""
    _measured_by(link) if _is_run(link) else link_rates(link)


def rates_for(link: str, config: Config, forecaster: Forecaster, ranks: int) -> Rates:
    """The rates of `link`: a run folder's own, or bits a second with computing measured in this process, on one thread.

    Raises ConfigError for a link that is neither, RunFolderError for a run that measured nothing.
    """
    if _is_run(link):
        return _measured_by(link)
    byte, latency = link_rates(link)
    strategy = forecaster.strategies(config, ranks)[0]
    begin, end = strategy.at.rank_offsets[:2]
    train = forecaster.dataset.splits.train
    roots = train[(train >= begin) & (train < end)][: max(1, config.train.batch_size // ranks)]
    row, edge, step = compute_rates(strategy.at, roots if len(roots) else np.arange(begin, begin + 1))
    return Rates(row, edge, step, latency, byte)


def _is_run(link: str) -> bool:
    return Path(link, "config.toml").exists()


def _measured_by(folder: str) -> Rates:
    for record in reversed(load_run(folder).metrics()):
        if record["event"] == "decision" and record["about"] == RATES:
            return Rates.from_values(record["value"])
    raise RunFolderError(f"{folder}: the run measured no rates; train with --time-steps auto on several ranks for them")
