"""Run folders made by simulation, in the format in which training writes them: many ranks, many iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.config.schema import Config
from leapmpi.runs.degree_groups import degree_labels
from leapmpi.runs.run_folder import RunFolder, without_losses
from leapmpi.system.phase_timers import PHASES


def make_run(
    path: Path,
    ranks: int = 4,
    epochs: int = 5,
    iterations: int = 20,
    seconds: float = 2.0,
    strategy: str = "leap",
    finished: bool = True,
    by_rank: bool = True,
    **settings: Any,
) -> Path:
    """A run folder at `path` of `epochs` epochs that took about `seconds` each; returns it.

    Without `by_rank` it is as older versions wrote it: no figures by rank, no scores by class, no command.
    """
    generator = np.random.default_rng(7)
    config = Config().replaced({"data": "data", "strategy.name": strategy, "run.folder": str(path), **settings})
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.start(config)
    folder.open_log().close()
    about = {"command": "leapmpi train data", "versions": {"python": "3.12.0", "torch": "2.6"}} if by_rank else {}
    folder.record("start", version="0.1.0", config=config.to_values(), **about)
    named = config.evaluate.metric
    folder.record("banner", metric="accuracy" if named == "auto" else named, **_banner(ranks, strategy, seconds))

    records = []
    for epoch in range(epochs):
        spent = generator.gamma(9.0, seconds / 90, (ranks, len(PHASES))) * np.linspace(1.4, 0.2, len(PHASES))
        record = _epoch(generator, epoch, epochs, ranks, iterations, spent)
        if by_rank:
            record |= _by_rank(generator, ranks, spent, record)
        folder.record("epoch", **record)
        records.append(record)
    if finished:
        folder.finish(_summary(ranks, strategy, records), epochs)
    return path


def _banner(ranks: int, strategy: str, seconds: float) -> dict[str, Any]:
    facts = [
        {
            **{"host": f"node{rank // 16:03}", "node": rank // 16, "device": "cpu", "parts": [rank, rank]},
            **{"features": 1 << 28, "topology": 1 << 26, "memory": 1 << 30, "free": 64 << 30, "threads": 4},
            **{"verified": True, "process": 1000 + rank},
        }
        for rank in range(ranks)
    ]
    forecasts = {strategy: {"seconds": 0.9 * seconds, "bytes": 3e9, "remote": "raw"}}
    choice = {"strategy": strategy, "why": "", "forecasts": forecasts, "left_out": {}, "iterations": 3, "rates": "kept"}
    rates = {"multiply_add": 2.5e-11, "step": 2e-3, "collective": 5e-5, "byte": 1e-9, "measured": False}
    remote = {"chosen": "raw", "predicted_bytes": {"raw": 1000}}
    economy = {"cache": None}
    return {
        "uuid": "u" * 32,
        "ranks": facts,
        "remote": remote,
        "economy": economy,
        "strategy_choice": choice,
        "init": None,
        "code": {},
        "rates": rates,
    }


def _epoch(
    generator: np.random.Generator, epoch: int, epochs: int, ranks: int, iterations: int, spent: np.ndarray
) -> dict[str, Any]:
    losses = 0.2 + 2 * np.exp(-(epoch * iterations + np.arange(iterations)) / (epochs * iterations / 4))
    losses *= generator.normal(1, 0.05, iterations)
    score = 0.8 * (1 - np.exp(-(epoch + 1) / epochs * 4))
    phases = {
        phase: {"mean": float(column.mean()), "max": float(column.max())}
        for phase, column in zip(PHASES, spent.T, strict=True)
    }
    sizes = {"features": 2 << 30, "ids": 1 << 26, "gradients": 1 << 28, "control": 1 << 20}
    return {
        "epoch": epoch,
        "loss": float(losses.mean()),
        "losses": losses.tolist(),
        "seconds": float(spent.sum(axis=1).mean()),
        "core_seconds": float(spent.sum()),
        "phases": phases,
        "bytes": dict.fromkeys(KINDS, 0) | sizes,
        "rows": dict.fromkeys(ROWS, 0) | {"local": 8_000_000, "remote": 2_000_000},
        "ahead": {"phases": phases, "hidden": 0.4},
        "accuracy": {"val": float(score), "test": float(score - 0.01)},
        "time_steps": 1,
        "remote": "raw",
        "lr": 0.003,
        "prefetch": 2,
        "evaluation_seconds": 0.3,
        **({"trivial": {"answer": "most frequent class", "val": 0.2, "test": 0.2}} if epoch == 0 else {}),
    }


def _by_rank(generator: np.random.Generator, ranks: int, spent: np.ndarray, record: dict[str, Any]) -> dict[str, Any]:
    each = -(-ranks // 64)
    firsts = np.arange(0, ranks, each)
    sent = generator.gamma(3.0, sum(record["bytes"].values()) / ranks**2 / 3, (ranks, ranks))
    np.fill_diagonal(sent, 0)
    grouped = np.add.reduceat(np.add.reduceat(sent, firsts), firsts, axis=1).astype(np.int64)
    rows = np.add.reduceat(spent, firsts) / each
    figures = {
        "ranks": ranks,
        "each": each,
        "phases": {phase: column.round(6).tolist() for phase, column in zip(PHASES, rows.T, strict=True)},
        "sent": grouped.tolist(),
        "rows": {"local": [1000] * len(firsts)},
        "memory": [3 << 30] * len(firsts),
    }
    right, wrongly, missed = (generator.integers(50, 200, 10).tolist() for _ in range(3))
    confusion = [[a, b, int(generator.integers(1, 90))] for a in range(10) for b in range(10) if a != b or a % 2]
    groups = [[name, 100, 0.1 * place] for place, name in enumerate(degree_labels())]
    parts = [[str(part), 50, 0.5] for part in range(min(ranks, 64))]
    split = {
        "measure": "share of right answers",
        "by_degree": groups,
        "by_part": parts,
        "confusion": confusion,
        "classes": {"right": right, "wrongly": wrongly, "missed": missed},
    }
    return {"by_rank": figures, "details": {"val": split, "test": split}}


def _summary(ranks: int, strategy: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "strategy": strategy,
        "strategy_choice": None,
        "ranks": ranks,
        "graph_uuid": "g" * 32,
        "uuid": "u" * 32,
        "model": "sage",
        "code": {},
        "metric": "accuracy",
        "seconds": sum(each["seconds"] for each in records) + 5.0,
        "restarts": 0,
        "peak_memory_bytes": [(3 << 30) + rank * (1 << 22) for rank in range(ranks)],
        "parameters_digest": "d" * 32,
        "best": {"epoch": len(records) - 1, **records[-1]["accuracy"]},
        "verify": "auto",
        "epochs": without_losses(records),
    }
