"""Rates for a forecast of seconds: computation measured here and the link given, or both measured by a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.engine.calibration import compute_rates
from leapmpi.engine.tuning_log import RATES
from leapmpi.errors import RunFolderError
from leapmpi.exchange.context import RankContext
from leapmpi.forecast.simulator import Forecaster
from leapmpi.plan.cost_model import Rates, link_rates
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs.run import load_run
from leapmpi.system.worker_threads import set_threads, threads


def check_link(link: str) -> None:
    """Raise ConfigError or RunFolderError if `LinkRates` would refuse `link`."""
    if _is_run(link):
        _measured_by(link)
    else:
        link_rates(link)


class LinkRates:
    """Rates of `link`: those of a run folder, or bits per second with computation measured in this process.

    Computation is timed on one thread, once per width of input rows, so that forecasts can be compared. Raises
    ConfigError for a link that is neither, RunFolderError for a run without measured rates.
    """

    def __init__(self, link: str, forecaster: Forecaster) -> None:
        self._forecaster = forecaster
        self._of_run = _measured_by(link) if _is_run(link) else None
        self._link = (0.0, 0.0) if self._of_run else link_rates(link)
        self._computing: dict[tuple[object, ...], tuple[float, float, float]] = {}

    def of_machine(self, machine: MachineRates) -> MachineRates:
        """Return `machine` with this link."""
        byte, latency = (self._of_run.byte, self._of_run.collective) if self._of_run else self._link
        return replace(machine, byte=byte, collective=latency)

    def rates(self, config: Config, ranks: int) -> Rates:
        """Return the rates of `config` on `ranks` ranks."""
        if self._of_run:
            return self._of_run
        # Timed alone, so with all lists.
        ctx = self._forecaster.job(config.replaced({"run.topology": "node"}), ranks).engines[0].ctx
        kind = (ctx.model.layers[0].in_dim, config.model, config.sampling, config.train)
        if kind not in self._computing:
            self._computing[kind] = self._timed(ctx, config.train.batch_size // ranks)
        byte, latency = self._link
        return Rates(*self._computing[kind], latency, byte)

    def _timed(self, ctx: RankContext, batch: int) -> tuple[float, float, float]:
        """Measure the seconds of a row, an edge and a time step, with up to `batch` roots of rank 0."""
        begin, end = ctx.rank_offsets[:2]
        train = self._forecaster.dataset.splits.train
        roots = train[(train >= begin) & (train < end)][: max(1, batch)]
        # Use one thread, as each of many ranks of a node would.
        before = torch.get_num_threads(), threads()
        torch.set_num_threads(1)
        set_threads(1)
        try:
            return compute_rates(ctx, roots if len(roots) else np.arange(begin, begin + 1))
        finally:
            torch.set_num_threads(before[0])
            set_threads(before[1])


def _is_run(link: str) -> bool:
    return Path(link, "config.toml").exists()


def _measured_by(folder: str) -> Rates:
    for record in reversed(load_run(folder).metrics()):
        # Rates with evidence were derived from those of the machine, not measured.
        if record["event"] == "decision" and record["about"] == RATES and not record["evidence"]:
            return Rates.from_values(record["value"])
    raise RunFolderError(f"{folder}: the run measured no rates; train with --tune on several ranks")
