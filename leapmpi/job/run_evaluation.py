"""Score the saved weights of runs. The command `evaluate` calls this module."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from leapmpi.config.schema import Config
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs.run import Run
from leapmpi.sampling.edge_lookup import reads_times
from leapmpi.session.saved_model import SavedModel, notes, read_models, without_training
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
    saved = read_models(world, models, which)

    # Evaluation draws as it does while training: node-wise, unless it must not see later edges. It leaves nothing to be
    # chosen by the rates of the machine.
    plain = without_training(saved[0].config, keeps_sampler=reads_times(saved[0].config))
    loaded = session.load(plain, world.on_all(lambda: open_for_training(plain)), MachineRates())
    outcomes: list[dict[str, Any]] = []
    for model in saved:
        if outcomes:
            loaded = with_new_model(model.config, loaded)
        world.on_all(partial(model.give_to, loaded))
        evaluator = world.on_all(partial(Evaluator, model.config, loaded))
        chosen = world.on_all(partial(evaluator.choose, metrics or [evaluator.metric.name]))
        with session.phases("evaluate"):
            found = evaluator.full_report(chosen, by_class)
        outcomes.append(_outcome(model, loaded, found, len(metrics) > 1, by_class))
    if world.rank == 0:
        for note in notes(saved, loaded):
            log.warning("note: %s", note)
    return outcomes


def _outcome(
    model: SavedModel, loaded: Loaded, found: dict[str, dict], several: bool, by_class: bool
) -> dict[str, Any]:
    """Return what `evaluate` does for one model, of the report `found`, with `several` metrics or one. Local."""
    name, scores = next(iter(found["metrics"].items()))
    further: dict[str, Any] = {key: each for key, each in found.items() if key != "metrics" or several}
    named = "edge_class_names" if loaded.ctx.task.reads_edge_labels else "class_names"
    if by_class and (class_names := loaded.dataset.attributes.get(named)):
        further["class_names"] = list(map(str, json.loads(str(class_names))))
    return {"metric": name, "epoch": model.epoch, **scores, **further}
