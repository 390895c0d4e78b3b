"""Implementation of `leapmpi plan`: forecasts for several strategies, and a forecast compared with a finished run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.flags import parse_strategies
from leapmpi.config.schema import Config
from leapmpi.config.setting import AUTO_SIZE, parse_size
from leapmpi.dataset.topology import load_topology
from leapmpi.engine.machine import kept_for
from leapmpi.engine.placement import strategy_named
from leapmpi.engine.tuning_log import DEPENDENCIES, PARTS, RATES
from leapmpi.errors import ConfigError, DataError, RunFolderError, counted
from leapmpi.exchange.selection import MODES
from leapmpi.features.row_memory import room_of
from leapmpi.features.shards.mapped_shard import bytes_apart
from leapmpi.forecast.memory_advice import MemoryAdvice
from leapmpi.forecast.role_forecast import forecast_roles
from leapmpi.forecast.simulator import Forecaster
from leapmpi.forecast.strategy_choice import AUTO, choose
from leapmpi.nn.task import task_of
from leapmpi.plan.cost_model import Rates, link_rates
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs import schemas
from leapmpi.runs.file_names import METRICS
from leapmpi.runs.run import Run, load_run, require
from leapmpi.runs.text import size_text
from leapmpi.sampling.edge_lookup import uses_times, uses_weights
from leapmpi.sampling.sharded.list_copies import OBSERVED
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.session.chosen_split import given_memory, reads_on_one_node
from leapmpi.session.setup import open_for_training, with_batch_size
from leapmpi.session.topology_kind import SHARDED

_COMPARED = ("leap", "pull")
"""Strategies that are forecast where none are given and `--strategy auto` compares none."""

_RANKS = (2, 4)
"""Numbers of ranks where none are given and the dataset has as many parts."""

_KINDS = ("forecasts", "roles", "left_out", "too_large", "auto", "rates")

_SHARED = ("model", "sampling", "strategy", "train", "link")


def plan(
    config: Config,
    ranks: str | None = None,
    strategies: str | None = None,
    link: str | None = None,
    iterations: int = 4,
) -> dict[str, Any]:
    """Forecast all `strategies` (as in `leapmpi bench`) on all numbers of `ranks` ("2,4,8").

    ranks: by default 2 and 4, as far as the dataset has parts for them, else 1.

    Without `strategies`, those are forecast that `--strategy auto` chooses from, or leap and pull if it does not.

    Returns a dict of
    - "forecasts": one row of figures each,
    - "roles": the same for strategies with preparing ranks,
    - "left_out", "too_large": a sentence for each that is impossible, or exceeds --memory-limit,
    - "auto": the choice of `--strategy auto` on each number of ranks,
    - "rates": rates of the machine by number of ranks, and on how many nodes they were measured (0: documented),
    - "topology": its bytes by rank, with a copy per node and sharded,
    - "feature_memory": bytes of rows by rank, in memory and in files, with --feature-memory,
    - "memory_split": bytes that an iteration reads from files, with --feature-memory and --topology-memory on one node,
      and by their best split; whether a job takes that by itself.

    Raises ConfigError, and DataError if all are impossible.
    """
    rates, forecaster = _rates_of_link(link) if link else {}, _forecaster(config, iterations)
    requested = parse_strategies(strategies, config) if strategies is not None else {}
    possible = _possible_ranks(forecaster.dataset.parts, list(requested.values()) or [config])
    sizes = possible if ranks is None else parse_ranks(ranks)

    # Impossible combinations are skipped with a reason, so that they do not hide the others.
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    for size in sizes:
        kept, nodes = kept_for(size, config.run.device != "cpu")
        forecaster.machine = machine = replace(kept, **rates)
        found["rates"].append({"ranks": size, "nodes_measured": nodes, "link": link, **machine.to_values()})
        if size > forecaster.dataset.parts and not any(each.strategy.prepare_ranks for each in requested.values()):
            found["left_out"].append(
                f"{size} ranks need a dataset of at least {size} parts and this one has {forecaster.dataset.parts}: "
                f"partition the graph again with --parts {size}"
            )
            continue
        compared: Iterable[str] = ()
        if config.strategy.name == AUTO and not config.strategy.prepare_ranks and size <= forecaster.dataset.parts:
            config = with_batch_size(config, forecaster.dataset)
            choice = choose(config, forecaster.dataset, forecaster.topology, size, machine, forecaster=forecaster)
            found["auto"].append({"ranks": size, **choice.to_values()})
            compared = choice.forecasts
        configs = requested or parse_strategies(",".join(compared or _COMPARED), config)
        _forecast_all(configs, size, forecaster, machine, found)
    if not found["forecasts"] and not found["roles"]:
        raise DataError(found["left_out"][0])
    return {
        "data": config.data,
        **found,
        "topology": [_topology_bytes(config, size, forecaster) for size in sizes if size <= forecaster.dataset.parts],
        "feature_memory": _feature_memory(config, requested.values(), forecaster, sizes),
        "memory_split": _memory_split(config, forecaster, sizes),
    }


def _possible_ranks(parts: int, configs: Sequence[Config]) -> list[int]:
    """Return the numbers of ranks to forecast `configs` on where none are given."""
    # Ranks that only compute need no part, so with such ranks any number is possible.
    holding = any(not each.strategy.prepare_ranks for each in configs)
    return [size for size in _RANKS if not holding or size <= parts] or [1]


def _topology_bytes(config: Config, ranks: int, forecaster: Forecaster) -> dict[str, Any]:
    """Return bytes of the topology by rank, with a copy per node and sharded."""
    return {"ranks": ranks, **{kind: forecaster.topology_bytes(config, ranks, kind) for kind in ("node", SHARDED)}}


def _forecast_all(
    configs: Mapping[str, Config],
    ranks: int,
    forecaster: Forecaster,
    machine: MachineRates,
    found: dict[str, list[Any]],
) -> None:
    """Add to `found` the row of figures of each of `configs` on `ranks` ranks, or a sentence why there is none."""
    for label, config in configs.items():
        try:
            each = with_batch_size(config, forecaster.dataset)
            if each.strategy.prepare_ranks:
                data = forecaster.dataset, forecaster.topology
                found["roles"].append(forecast_roles(label, each, *data, ranks, machine.byte).to_values())
            else:
                found["forecasts"].append(forecaster.forecast(label, each, ranks).to_values())
            found["too_large"] += _too_large(label, each, forecaster, ranks)
        except (ConfigError, DataError) as error:
            found["left_out"].append(f"{label} on {counted(ranks, 'rank')}: {error}")


def _feature_memory(
    config: Config, configs: Iterable[Config], forecaster: Forecaster, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return bytes of feature rows in memory and in files, by rank; empty without --feature-memory.

    One entry for each number of ranks, and for each number of preparing ranks in `configs`.
    """
    dataset = forecaster.dataset
    if not config.strategy.feature_memory or not dataset.feature_dim or dataset.sparse:
        return []
    row = dataset.part(0).dense_features
    found = []
    for ranks, preparing in product(sizes, sorted({each.strategy.prepare_ranks for each in configs})):
        # With preparing ranks, these alone hold feature rows.
        holding = preparing or ranks
        if holding > dataset.parts or preparing >= ranks:
            continue
        room = room_of(forecaster.settled(config, holding)) or 0
        counts = np.diff(rank_offsets(dataset.offsets, holding)).tolist()
        held, left = zip(*(bytes_apart(rows, row.shape[1] * row.itemsize, room) for rows in counts), strict=True)
        found.append({"ranks": ranks, "preparing": preparing, "resident": list(held), "mapped": list(left)})
    return found


def _memory_split(config: Config, forecaster: Forecaster, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return, for each number of ranks, bytes read from files with the given memory for lists and rows, and with the
    best split of it; whether a job chooses that by itself. What it splits is given to rows."""
    given, dataset = given_memory(config), forecaster.dataset
    if given is None or not dataset.feature_dim or dataset.sparse:
        return []
    lists, rows = given
    sizes = [size for size in sizes if size <= dataset.parts]
    found = reads_on_one_node(with_batch_size(config, dataset), dataset, forecaster.topology, sizes)
    return [
        {
            "ranks": ranks,
            "file_bytes": reads.read(lists, rows),
            "best": vars(reads.best(lists + ranks * rows)),
            "chosen": config.run.topology_memory == AUTO_SIZE,
        }
        for ranks, reads in zip(sizes, found, strict=True)
    ]


def _too_large(label: str, config: Config, forecaster: Forecaster, ranks: int) -> list[str]:
    """Return a sentence if an iteration of `config` exceeds its --memory-limit, with settings predicted to fit."""
    strategy, given = config.strategy, config.strategy.memory_limit
    if not given or strategy.vary or strategy.prepare_ranks or task_of(config, forecaster.dataset).roots == "edges":
        return []
    advice, limit = MemoryAdvice(config, forecaster.dataset, forecaster.topology, ranks), parse_size(given, label)
    # A full batch obeys the limit itself; leap may need more time steps to fit.
    limited = config if strategy_named(strategy.name).by_layer else advice.config
    needed = advice.iteration_bytes(limited, ranks)
    if needed is None or needed <= limit:
        return []
    steps = " in one time step" if strategy.name == "leap" else ""
    why = (
        f"{label} on {counted(ranks, 'rank')}: an iteration takes about {size_text(needed)} on a rank{steps}, more than"
    )
    fits = advice.sentence(limit)
    return [f"{why} --memory-limit {given}{f'; {fits}' if fits else ''}"]


def _rates_of_link(link: str) -> dict[str, float]:
    """Return the rates of a byte and of a collective that `link` names: bits per second, or a run that measured them.

    Raises ConfigError and RunFolderError.
    """
    if not Path(link, "config.toml").exists():
        byte, latency = link_rates(link)
        return {"byte": byte, "collective": latency}
    for record in reversed(load_run(link).metrics()):
        # Rates with evidence were derived from those of the machine, not measured.
        if record["event"] == "decision" and record["about"] == RATES and not record["evidence"]:
            found = Rates.from_values(record["value"])
            return {"byte": found.byte, "collective": found.collective}
    raise RunFolderError(f"{link}: the run measured no rates; train with --time-steps measured on several ranks")


def compare(config: Config, folder: str, iterations: int = 4) -> dict[str, Any]:
    """Compare a forecast of the run in `folder` with the counts of its epochs: per epoch, over all ranks.

    The run's settings are used; `config` names the dataset. Returns {"rows", "bytes"} with figures by place and kind.
    "pairs" (bytes of an epoch between ranks, up to 512 of them), "micrograph_locality", "imbalance" and "memory" (bytes
    by rank) are predictions only.

    Raises RunFolderError if the run has no complete epoch, DataError if the dataset holds another graph.
    """
    # Take the settings from the run, and only the dataset from the command line.
    run = load_run(folder)
    values = run.config.to_values()
    settings = {name: values[name] for name in _SHARED}
    settings["run"] = {"topology_memory": values["run"]["topology_memory"]}
    config = Config.from_values({**settings, "data": config.data}, folder)
    if config.strategy.prepare_ranks:
        raise RunFolderError(
            f"{folder}: runs with --prepare-ranks cannot be compared; leapmpi plan "
            f"--strategies leap:prepare-ranks={config.strategy.prepare_ranks} predicts such runs"
        )
    forecaster = _forecaster(config, iterations)
    graph = forecaster.dataset.graph_uuid
    if run.finished and run.summary.get("graph_uuid", graph) != graph:
        raise DataError(f"{config.data} holds another graph than {folder} was trained on; give its own dataset")

    records = run.metrics()
    epochs, ranks = _counted(records, run)

    # Pin the run's own choices. A mode that belongs to one strategy is not a setting.
    last = epochs[-1]
    remote = last["remote"] if last["remote"] in MODES.names() else "auto"
    steps = {"strategy.time_steps": str(last["time_steps"]), "strategy.memory_limit": ""}
    # `auto` takes one step here; a full batch caches by the memory limit, which must stay.
    chosen = {} if last["time_steps"] == 1 else steps
    chosen |= {"strategy.remote": remote, "run.topology": SHARDED if _reads_remote_lists(last) else "node"}
    config = config.replaced({"strategy.time_steps": "auto"} | chosen)
    forecaster.machine = next(
        (MachineRates.from_values(each["value"]) for each in records if each.get("about") == DEPENDENCIES), None
    )
    found = forecaster.forecast(config.strategy.name, config, ranks)

    # Other traffic had epochs with other time steps or another topology, and those after parts were reassigned.
    same = [epoch for epoch in epochs if epoch["time_steps"] == last["time_steps"]]
    if config.run.topology_memory and _reads_remote_lists(last):
        same = _with_copies(records, same, found.iterations) or same[-1:]
    same = [epoch for epoch in same if _reads_remote_lists(epoch) == _reads_remote_lists(last)]
    reassigned = min((each["epoch"] for each in records if each.get("about") == PARTS), default=math.inf)
    same = [epoch for epoch in same if epoch["epoch"] < reassigned]
    return {
        "run": folder,
        "strategy": found.strategy,
        "ranks": found.ranks,
        "rows": _compared(found.epoch_rows, same, "rows"),
        "bytes": _compared(found.epoch_sent, same, "bytes"),
        "pairs": None if found.pairs is None else (found.pairs * found.iterations).tolist(),
        "micrograph_locality": found.micrograph_locality,
        "imbalance": found.imbalance,
        "memory": found.memory,
    }


def _counted(records: Sequence[dict[str, Any]], run: Run) -> tuple[list[dict[str, Any]], int]:
    """Return the records of complete epochs of `run` among `records`, and its ranks. Raises RunFolderError."""
    epochs = [record for record in records if record["event"] == "epoch"]
    banner = next((record for record in records if record["event"] == "banner"), None)
    # Runs of several models have no counts of their own.
    if epochs and "together" in epochs[0]:
        together = epochs[0]["together"]
        raise RunFolderError(f"{run.path} is one of {counted(together, 'model')} trained together; give the whole run")
    if not epochs or banner is None:
        raise RunFolderError(f"{run.path}: metrics.jsonl holds no complete epoch to compare with")
    for epoch in epochs:
        require(epoch, schemas.COUNTED, run.path / METRICS)
    return epochs, len(banner["ranks"])


def _with_copies(
    records: Sequence[dict[str, Any]], epochs: Sequence[dict[str, Any]], iterations: int
) -> list[dict[str, Any]]:
    """Return those of `epochs`, of so many `iterations`, in which remote lists were copied from the beginning.

    records: those of the run, in their order. Each start of the run chooses copies by its first samples.
    """
    begun = [{"epoch": 1, "iteration": 0}, *(each for each in records if each["event"] == "resumed")]
    without = {
        each["epoch"] + later for each in begun for later in range((each["iteration"] + OBSERVED) // iterations + 1)
    }
    return [epoch for epoch in epochs if epoch["epoch"] not in without]


def _reads_remote_lists(epoch: dict[str, Any]) -> bool:
    """Return whether owners sampled for other ranks in an epoch, given its record."""
    return bool(epoch["bytes"].get(KIND))


def parse_ranks(text: str) -> list[int]:
    """Parse '2,4,8' into numbers. Raises ConfigError."""
    numbers = [number.strip() for number in text.split(",") if number.strip()]
    for number in numbers:
        if not (number.isascii() and number.isdigit() and len(number) < 7 and int(number) > 0):
            raise ConfigError(f"--ranks {text}: {number!r} is not a number of ranks; give whole numbers such as 2,4,8")
    if not numbers:
        raise ConfigError("--ranks is empty; give numbers of ranks, such as 2,4,8")
    return [int(number) for number in numbers]


def _forecaster(config: Config, iterations: int) -> Forecaster:
    if iterations < 1:
        raise ConfigError(f"--iterations must be at least 1, not {iterations}")
    dataset = open_for_training(config)
    labels = task_of(config, dataset).reads_edge_labels
    carried = uses_weights(config, dataset), uses_times(config, dataset), labels
    return Forecaster(dataset, load_topology(dataset, *carried), iterations)


def _compared(predicted: dict[str, float], epochs: list[dict[str, Any]], name: str) -> dict[str, dict[str, float]]:
    """Return predicted and counted figures and their ratio; figures that are 0 on both sides are omitted.

    A counted figure is the median over `epochs` of the record's entry `name`.
    """
    table = {}
    for key, expected in predicted.items():
        counted = statistics.median(epoch[name].get(key, 0) for epoch in epochs)
        if expected or counted:
            ratio = expected / counted if counted else None
            table[key] = {"predicted": expected, "counted": counted, "ratio": ratio}
    return table
