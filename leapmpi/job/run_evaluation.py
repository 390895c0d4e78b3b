"""Score the saved weights of runs. The command `evaluate` calls this module."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from leapmpi.config.schema import Config
from leapmpi.engine.own_model import changed_code
from leapmpi.evaluation.evaluator_choice import evaluator_of
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs import schemas
from leapmpi.runs.run import Run
from leapmpi.runs.weights import read_weights, weights_place
from leapmpi.sampling.edge_lookup import reads_times
from leapmpi.session.assigned_weights import assign
from leapmpi.session.session import Session, in_session
from leapmpi.session.setup import open_for_training, with_new_model

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")


def evaluate(
    models: Sequence[tuple[Config, Run]],
    which: str = "best",
    comm: Comm | None = None,
    metrics: Sequence[str] = (),
    by_class: bool = False,
) -> list[dict[str, Any]]:
    """Score the saved weights (`which`: best, final, or a file) of runs on val and test. Collective.

    Each run has the config it is scored by; all must name the same dataset, sampler and fan-outs. Returns {"metric",
    "epoch" (from 1), "val", "test"} for each; a split without vertices has None. With `metrics`, also {"metrics":
    {NAME: {"val", "test"}}}; the first one takes the place of the config's. With `by_class` also {"classes": {"val",
    "test"}}: the report of scoring/class_report.py on each class, label or target, and {"class_names"} if known.

    Raises DataError when weights belong to another kind of dataset.
    """
    return in_session(models[0][0], comm, lambda session: _evaluate(models, which, session, metrics, by_class))


def _evaluate(
    models: Sequence[tuple[Config, Run]], which: str, session: Session, metrics: Sequence[str], by_class: bool
) -> list[dict[str, Any]]:
    world = session.world
    files = world.on_all(lambda: [read_weights(weights_place(run.path, which), schemas.WEIGHTS) for _, run in models])

    # Evaluation draws as it does while training: node-wise, unless it must not see later edges.
    draws = {} if reads_times(models[0][0]) else {"sampling.sampler": "node-wise", "sampling.options": ()}
    plain = models[0][0].replaced({**draws, "train.class_weights": ""})
    # It leaves nothing to be chosen by the rates of the machine.
    loaded = session.load(plain, world.on_all(lambda: open_for_training(plain)), MachineRates())
    outcomes: list[dict[str, Any]] = []
    for (config, run), (arrays, about) in zip(models, files, strict=True):
        if outcomes:
            loaded = with_new_model(config, loaded)
        world.on_all(partial(assign, config, run, loaded, arrays, about))
        task = loaded.ctx.task
        evaluator = world.on_all(partial(evaluator_of, config, loaded))
        chosen = world.on_all(partial(evaluator.choose, metrics or [evaluator.metric.name]))
        with session.phases("evaluate"):
            found = evaluator.full_report(chosen, by_class)
        name, scores = next(iter(found["metrics"].items()))
        further: dict[str, Any] = {key: each for key, each in found.items() if key != "metrics" or len(metrics) > 1}
        named = "edge_class_names" if task.reads_edge_labels else "class_names"
        if by_class and (class_names := loaded.dataset.attributes.get(named)):
            further["class_names"] = list(map(str, json.loads(str(class_names))))
        outcomes.append({"metric": name, "epoch": about["epoch"] + 1, **scores, **further})
    if world.rank == 0 and files[0][1]["graph_uuid"] != loaded.dataset.graph_uuid:
        log.warning("note: %s holds another graph than the one the run was trained on", models[0][0].data)
    if world.rank == 0:
        for sentence in {
            each for (config, _), (_, about) in zip(models, files, strict=True) for each in changed_code(config, about)
        }:
            log.warning("note: %s", sentence)
    return outcomes
