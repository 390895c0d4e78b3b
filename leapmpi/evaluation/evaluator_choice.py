"""The evaluator of a loaded dataset, by task and roles."""

from __future__ import annotations

from leapmpi.config.schema import Config
from leapmpi.evaluation.edge_class_evaluation import EdgeClassEvaluator
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.evaluation.link_evaluation import LinkEvaluator
from leapmpi.evaluation.remote_evaluation import RemoteEvaluator
from leapmpi.exchange.context import Loaded
from leapmpi.session.role_loading import LoadedByRole


def evaluator_of(config: Config, loaded: Loaded) -> Evaluator:
    """Return what scores the splits of `loaded`. Local. Raises ConfigError for settings that do not fit."""
    if isinstance(loaded, LoadedByRole):
        return RemoteEvaluator(config, loaded)
    kind: type[Evaluator] = Evaluator
    if loaded.ctx.task.roots == "edges":
        kind = EdgeClassEvaluator if loaded.ctx.task.reads_edge_labels else LinkEvaluator
    return kind(config, loaded.dataset, loaded.topology, loaded.ctx)
