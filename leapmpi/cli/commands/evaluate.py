"""`leapmpi evaluate`: score the weights of a run again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from typing import Any

from leapmpi.config.flags import add_flag, given
from leapmpi.config.parser import weights_of_run
from leapmpi.config.program_imports import program_imports
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields
from leapmpi.config.setting import names_code
from leapmpi.errors import ConfigError, RunFolderError
from leapmpi.runs.run import Run, load_run
from leapmpi.runs.text import scores_text
from leapmpi.runs.text_tables import class_table, relation_table

HELP = "score the weights of a run again"

_NOTHING = "nothing to score in val and test; import the graph again with --splits, or --split-edges for tasks of edges"

_SETTINGS = (
    *("evaluate.fanout", "evaluate.limit", "run.device"),
    *("run.threads", "run.topology", "run.log_level"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the run, and the settings that may differ from the run's."""
    parser.add_argument("data", metavar="DATA", help="dataset folder")
    parser.add_argument("folder", metavar="RUN", help="run folder")
    add_model_of_run(parser, "model K of several (default all)")
    parser.add_argument("--metric", metavar="A,B", help="metrics (default: that of the run)")
    parser.add_argument(
        "--per-class", action="store_true", help="show figures of each class, label, target or relation"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per model")
    add_settings_beside_run(parser, _SETTINGS)


def add_model_of_run(parser: argparse.ArgumentParser, chosen: str) -> None:
    """Add the flags that say which weights of a run are read; `chosen` describes the number in --model."""
    which = "weights of the best or the final epoch, or a file of weights"
    parser.add_argument("--weights", type=weights_of_run, default="best", metavar="best|final|FILE.h5", help=which)
    model = f"{chosen}, or the code of your own model: FILE.py:CLASS"
    parser.add_argument("--model", action="append", default=[], metavar="K", help=model)


def add_settings_beside_run(parser: argparse.ArgumentParser, keys: Collection[str]) -> None:
    """Add the flags of the settings `keys`, whose values are the run's unless given."""
    group = parser.add_argument_group("settings that may differ from the run's")
    for key, setting in fields():
        if key in keys:
            add_flag(group, setting, default="")


def run(arguments: argparse.Namespace) -> int:
    """Score the weights on all ranks and print on rank 0. Collective."""
    from leapmpi.comm.world import job_rank

    with program_imports():
        from leapmpi.job.run_evaluation import evaluate

    runs = chosen_runs(load_run(arguments.folder), model_number(arguments.model))
    metrics = [name.strip() for name in (arguments.metric or "").split(",") if name.strip()]
    if arguments.metric is not None and not metrics:
        raise ConfigError("--metric names no metric; give one or several, such as accuracy,f1-macro")
    # The settings of the run hold unless a flag gives another value.
    changed = {**given(arguments), "data": arguments.data, **({"evaluate.metric": metrics[0]} if metrics else {})}
    outcomes = evaluate(
        [(with_code(run, arguments.model).replaced(changed, "evaluate"), run) for run in runs.values()],
        arguments.weights,
        metrics=metrics,
        by_class=arguments.per_class,
    )
    if job_rank() == 0:
        for (number, run), outcome in zip(runs.items(), outcomes, strict=True):
            so_far = " so far" * (arguments.weights == "best" and not run.finished)
            shown = _line(f"{arguments.weights} weights{so_far}", number, outcome)
            print(_json(arguments.weights, number, outcome) if arguments.json else shown, flush=True)
    return 0


def model_number(named: list[str]) -> int | None:
    """Return the number in --model, if there is one. Raises ConfigError for a text that is neither number nor code."""
    numbers = [each for each in named if not names_code(each)]
    if any(not (each.isascii() and each.isdigit() and len(each) < 10) for each in numbers) or len(numbers) > 1:
        raise ConfigError(f"--model {' '.join(numbers)}: give the number of one model, or FILE.py:CLASS")
    return int(numbers[0]) if numbers else None


def with_code(run: Run, named: list[str]) -> Config:
    """Return the config of `run`; if its model is code, --model must name it. Raises ConfigError otherwise."""
    config, code = run.config, [each for each in named if names_code(each)]
    if not names_code(config.model.name):
        return config
    # The file may have moved since; of several, the class identifies it.
    same = [each for each in code if each.rpartition(":")[2] == config.model.name.rpartition(":")[2]]
    if not same:
        raise ConfigError(
            f"{run.path}: its model {config.model.name} is code, which runs only when the command line names it; add "
            f"--model {config.model.name}"
        )
    return config.replaced({"model.name": same[0]})


def chosen_runs(run: Run, number: int | None) -> dict[int | None, Run]:
    """Return the runs that `number` names, by number of the model: None for a run of one. Raises RunFolderError."""
    several = bool(run.config.strategy.vary)
    models: dict[int | None, Run] = dict(enumerate(run.models_so_far())) if several else {None: run}
    if not models:
        raise RunFolderError(f"{run.path} has no weights yet; {run.resume_command} continues it")
    if number is None:
        return models
    if not several:
        raise RunFolderError(f"--model {number}: {run.path} holds one model; leave --model out")
    if number not in models:
        raise RunFolderError(f"--model {number}: {run.path} holds the models 0 to {len(models) - 1}")
    return {number: models[number]}


def _json(weights: str, number: int | None, outcome: dict[str, Any]) -> str:
    named = {} if number is None else {"model": number}
    return json.dumps({"schema": 2, "weights": weights, **named, **outcome})


def _line(weights: str, number: int | None, outcome: dict[str, Any]) -> str:
    metrics = outcome.get("metrics") or {outcome["metric"]: {split: outcome[split] for split in ("val", "test")}}
    scores = "  ".join(f"{name} {scores_text(each) or _NOTHING}" for name, each in metrics.items())
    named = "" if number is None else f"model {number}  "
    lines = [f"{named}{weights} (epoch {outcome['epoch']})  {scores}"]

    # A table for each split.
    for split, found in outcome.get("classes", {}).items():
        lines += ["", split, class_table(found, outcome.get("class_names")) if found else "nothing to score"]
    for split, found in outcome.get("relations", {}).items():
        lines += ["", split, relation_table(found, list(metrics))]
    return "\n".join(lines)
