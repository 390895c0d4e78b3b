"""The evaluator: scores of the splits of a loaded dataset, whatever is scored and wherever."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leapmpi.config.schema import Config
from leapmpi.evaluation.edge_class_scoring import EdgeClassScoring
from leapmpi.evaluation.link_scoring import LinkScoring
from leapmpi.evaluation.place import AllRanks, PreparingRanks
from leapmpi.evaluation.scoring import Scores, Scoring
from leapmpi.evaluation.vertex_scoring import VertexScoring
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.nn.model import Model
from leapmpi.nn.task import Task
from leapmpi.scoring.metric import Metric, choose_metric
from leapmpi.session.role_loading import LoadedByRole


class Evaluator:
    """Scores splits. Draws depend on the split and the seed, not on the epoch.

    `scoring` says what is scored: vertices, links or classes of edges. `place` says where: on all ranks, or on those
    that prepare; its `around` makes a context for each batch or chunk, which all ranks enter together.
    """

    def __init__(self, config: Config, loaded: Loaded) -> None:
        """Raise ConfigError for settings that do not fit. Local."""
        ctx: RankContext = loaded.ctx
        self.place = AllRanks()
        if isinstance(loaded, LoadedByRole):
            ctx, self.place = loaded.of_role, PreparingRanks(loaded)
        self.metric = choose_metric(config.evaluate.metric, ctx.task)
        kind = scoring_kind(ctx.task)
        self.scoring: Scoring = kind(config, loaded.dataset, loaded.topology, ctx, self.place.round)
        self._task = ctx.task

    @property
    def whole_sizes(self) -> dict[str, int]:
        """Number of roots of each split, scored or not."""
        return self.scoring.whole_sizes

    @property
    def details(self) -> dict[str, dict[str, float]]:
        """Further figures of the last evaluation, by split, if there are any."""
        return self.scoring.details

    def size(self, split: str) -> int:
        """Return how many roots of `split` are scored. Local."""
        return self.scoring.size(split)

    def dry_run(self) -> None:
        """Compile the kernels of an evaluation. Collective."""
        self.place.run_here(self.scoring.dry_run)

    def scores(self) -> Scores:
        """Return the metric on each split, the same on all ranks; None where it is empty or undefined. Collective."""

        def scores() -> Scores:
            self.scoring.outputs.use_whole_model()
            return self.scoring.scores(self.metric)

        return self.place.run(scores, with_weights=True)

    def scores_of(self, models: Sequence[Model], remote: str) -> list[Scores]:
        """Return the scores of each of `models`, with inputs fetched by the mode `remote`. Collective."""
        return self.scoring.scores_of(models, remote, self.metric)

    def trivial_scores(self) -> dict[str, float | str | None]:
        """Return the scores of a model that has learned nothing, and its `answer` in words. Collective."""
        return self.place.run(lambda: self.scoring.trivial_scores(self.metric))

    def take_breakdown(self) -> dict[str, dict]:
        """Take the last scores of one model apart by class, degree and part, by split; once. Collective."""
        return self.place.run(self.scoring.take_breakdown)

    def choose(self, names: Sequence[str]) -> list[Metric]:
        """Return the metrics called `names`. Raises ConfigError for one that does not fit. Local."""
        return [choose_metric(name, self._task) for name in names]

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Return `metrics`, the score of each on each split, and `classes` or `figures`. Collective.

        Raises ConfigError for `by_class` where there are no classes.
        """
        self.scoring.outputs.use_whole_model()
        return self.scoring.full_report(metrics, by_class)


def scoring_kind(task: Task) -> Callable[..., Scoring]:
    """Return the class that scores the roots of `task`."""
    if task.roots == "vertices":
        return VertexScoring
    return EdgeClassScoring if task.reads_edge_labels else LinkScoring
