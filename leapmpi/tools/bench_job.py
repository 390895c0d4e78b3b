"""Implementation of `leapmpi bench`: several strategies in one job, on the same data, batches and ranks.

The strategies alternate epoch by epoch, so that other load on the machine slows all of them alike.
"""

from __future__ import annotations

import logging
import statistics
import time
from typing import TYPE_CHECKING, Any

from leapmpi.config.flags import parse_strategies
from leapmpi.config.schema import Config, models_of, variations
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import Loaded
from leapmpi.job import banner
from leapmpi.runs.warm_epochs import set_ratios, warm_epochs
from leapmpi.session.role_checks import by_role
from leapmpi.session.session import Session, in_session
from leapmpi.session.setup import with_batch_size, with_new_model
from leapmpi.training.epoch_record import ahead_seconds
from leapmpi.training.trainer import Trainer
from leapmpi.training.training_components import components_of, prepare

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")


def bench(
    config: Config, strategies: str, comm: Comm | None = None, prices: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """Train each of `strategies` for config.train.epochs and return one row of figures each. Collective.

    prices: cost of an hour of a computing rank, and of a preparing rank; rows then have the `cost` of an epoch.

    Rows hold medians over warm epochs of seconds, rows, bytes and phases, with the ratio of seconds to the first
    strategy's. Without a warm epoch the ratio is None. Losses and scores are those of every epoch.
    """
    configs = parse_strategies(strategies, config)
    if config.strategy.vary:
        configs = _ensemble_and_each(configs)
    # The roles of the first strategy decide which ranks choose a GPU.
    first = next(iter(configs.values()))
    rows = in_session(first, comm, lambda session: _bench(configs, session))
    if prices:
        for row in rows:
            row["cost"] = _cost(row, prices)
    return rows


def _ensemble_and_each(configs: dict[str, Config]) -> dict[str, Config]:
    """Return one run of all models, then a separate run of each. Raises ConfigError for several strategies."""
    if len(configs) > 1:
        raise ConfigError("--strategies: with --vary give one strategy, such as leap")
    label, config = next(iter(configs.items()))
    each = variations(config)
    return {f"{label}, {len(each)} models": config, **each}


class _Held:
    """Dataset as strategies need it: loaded once for all strategies without roles, and for each one with roles."""

    def __init__(self, session: Session, dataset: Dataset) -> None:
        self._session, self._dataset = session, dataset
        self._shared: Loaded | None = None

    def by(self, config: Config) -> Loaded:
        """Return the data and a new model for a trainer of `config`. Collective."""
        if config.strategy.prepare_ranks:
            return self._session.load_by_role(by_role(config), self._dataset)
        self._shared = self._shared or self._session.load(config, self._dataset)
        return with_new_model(models_of(config)[0], self._shared)


def _cost(row: dict[str, Any], prices: tuple[float, float]) -> float:
    """Return the cost of a warm epoch of the ranks of `row`, working or waiting."""
    preparing = row["roles"]["preparing"] if row["roles"] else 0
    return row["epoch_seconds"] / 3600 * ((row["ranks"] - preparing) * prices[0] + preparing * prices[1])


def _bench(configs: dict[str, Config], session: Session) -> list[dict[str, Any]]:
    # Check all settings before anything is loaded.
    world = session.world
    datasets = [session.open(config) for config in configs.values()]
    configs = {label: with_batch_size(config, datasets[0]) for label, config in configs.items()}

    # One trainer per strategy, each with a model of its own, on the same loaded data.
    first = next(iter(configs.values()))
    held = _Held(session, datasets[0])
    begun = time.perf_counter()
    assembled = {label: components_of(by_role(config), world, held.by(config)) for label, config in configs.items()}
    trainers = {label: Trainer(each, prepare(each), begun) for label, each in assembled.items()}

    # Train, epoch by epoch in turn.
    for epoch in range(first.train.epochs):
        for label, trainer in trainers.items():
            record = trainer.epoch(epoch)
            if world.rank == 0:
                log.info(
                    f"epoch {epoch + 1}/{first.train.epochs}  {label}  {record['seconds']:.3f} s  "
                    f"loss {record['loss']:.4f}"
                )

    # Ratios come last: they need the row of sums.
    rows = [_row(label, trainer) for label, trainer in trainers.items()]
    if first.strategy.vary:
        rows.append(_sum_of(rows[1:]))
    set_ratios(rows)
    return rows


def _sum_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row of sums over separate runs, with the mean loss."""

    # Some figures are mappings by place, kind or phase.
    def total(name: str) -> dict[str, float]:
        return {key: sum(row[name][key] for row in rows) for key in rows[0][name]}

    # All other figures are those of the first run.
    return {
        **rows[0],
        "strategy": "separate runs, in sum",
        "remote": " ".join(dict.fromkeys(row["remote"] for row in rows)),
        "ignored": [],
        "epoch_seconds": sum(row["epoch_seconds"] for row in rows),
        "seconds": [sum(each) for each in zip(*(row["seconds"] for row in rows), strict=True)],
        "core_seconds": sum(row["core_seconds"] for row in rows),
        "core_hours": sum(row["core_hours"] for row in rows),
        **{name: total(name) for name in ("rows", "bytes", "phases", "ahead")},
        "loss": [statistics.fmean(each) for each in zip(*(row["loss"] for row in rows), strict=True)],
        "accuracy": [{"val": None, "test": None}],
    }


def _row(label: str, trainer: Trainer) -> dict[str, Any]:
    """Return the figures of one strategy: medians over warm epochs, losses and scores of all epochs. Collective.

    core_hours counts all cores that the ranks hold, busy or not; core_seconds counts busy ones.
    """
    epochs = trainer.epochs
    # Ranks may hold different numbers of cores, such as those that prepare.
    threads = trainer.ctx.communicator.all_gather_objects(trainer.world.threads)
    warm, is_warm = warm_epochs(epochs)

    def medians(name: str) -> dict[str, float]:
        return {key: statistics.median(epoch[name][key] for epoch in warm) for key in warm[0][name]}

    return {
        "strategy": label,
        "ranks": trainer.world.size,
        "roles": banner.roles_record(trainer),
        "busy": statistics.median(epoch["busy"] for epoch in warm) if "busy" in warm[0] else None,
        "core_hours": sum(threads) * statistics.median(epoch["seconds"] for epoch in warm) / 3600,
        "time_steps": trainer.engine.placement.time_steps,
        "remote": trainer.engine.mode_name,
        "epoch_seconds": statistics.median(epoch["seconds"] for epoch in warm),
        "warm": is_warm,
        "seconds": [epoch["seconds"] for epoch in epochs],
        "core_seconds": statistics.median(epoch["core_seconds"] for epoch in warm),
        "rows": medians("rows"),
        "bytes": medians("bytes"),
        **({"cache": medians("cache")} if "cache" in warm[0] else {}),
        "phases": {
            phase: statistics.median(epoch["phases"][phase]["mean"] for epoch in warm) for phase in warm[0]["phases"]
        },
        "prefetch": trainer.prepared.prefetch_depth,
        "ahead": {
            "seconds": statistics.median(ahead_seconds(epoch["ahead"]) for epoch in warm),
            "hidden": statistics.median(epoch["ahead"]["hidden"] for epoch in warm),
        },
        "loss": [epoch["loss"] for epoch in epochs],
        "accuracy": [epoch["accuracy"] for epoch in epochs],
        "metric": trainer.evaluator.metric.name,
        "ignored": [*trainer.feature_cache.ignored(), *banner.ignored(trainer)],
    }
