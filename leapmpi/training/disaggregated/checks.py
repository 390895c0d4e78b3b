"""Settings with which some ranks cannot prepare what others compute with, told before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.disaggregated.preparation_engine import sums_suffice
from leapmpi.errors import ConfigError, DataError
from leapmpi.nn.model import model_of
from leapmpi.nn.task import task_of
from leapmpi.plan.roles import Roles

STRATEGIES = ("leap", "pull")
"""Those whose mini-batches are complete before the weights are known."""


def by_role(config: Config, dataset: Dataset) -> Config:
    """`config` as ranks with roles train `dataset`, where `auto` is leap; itself where they have none. Local.

    `--remote auto` fetches raw rows.
    """
    strategy = config.strategy
    if not strategy.prepare_ranks:
        return config
    name, remote = "leap" if strategy.name == "auto" else strategy.name, strategy.remote
    remote = "raw" if remote == "auto" else remote
    return config.replaced({"strategy.name": name, "strategy.remote": remote}, "--prepare-ranks")


def _sums_travel(config: Config, dataset: Dataset) -> bool:
    """Whether ranks that prepare can add up for each other, and those that compute need no more."""
    model = model_of(config, dataset)
    return model.layers[0].offers_sum_shares and sums_suffice(model)


def check_roles(config: Config, dataset: Dataset, ranks: int) -> None:
    """Raise ConfigError for settings that do not go with --prepare-ranks, DataError for too few parts. Local."""
    roles = Roles(ranks, config.strategy.prepare_ranks)
    for key, why in _refused(config, dataset):
        raise ConfigError(f"{key} with --prepare-ranks {roles.preparing}: {why}")
    if roles.shares > dataset.parts:
        role = f"{roles.preparing} ranks prepare" if roles.preparing == roles.shares else f"{roles.shares} compute"
        raise DataError(
            f"{role} but the dataset has {dataset.parts} part{'s' * (dataset.parts > 1)}; partition the graph again "
            f"with --parts {roles.shares}, or give fewer ranks that role"
        )


def _refused(config: Config, dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Settings that cannot be, by dotted key, and why."""
    strategy, leave = config.strategy, "leave it out"
    if strategy.name not in ("auto", *STRATEGIES):
        yield "strategy.name", f"{strategy.name} exchanges what depends on weights; use leap or pull"
    if strategy.remote == "sums" and not _sums_travel(config, dataset):
        yield (
            "strategy.remote",
            "what is sent is made of raw rows; use raw, or a model whose sums do",
        )
    if strategy.remote not in ("auto", "raw", "sums"):
        yield "strategy.remote", f"preparation ranks have no current weights for {strategy.remote} rows; {leave}"
    if strategy.time_steps not in ("auto", "1"):
        yield "strategy.time_steps", f"models stay where they are; {leave}"
    for key, given, why in (
        ("memory_limit", bool(strategy.memory_limit), "an iteration has one time step"),
        ("tune", strategy.tune, "an iteration has one time step"),
        ("vary", bool(strategy.vary), "one model is trained"),
        ("cache", strategy.cache > 0, "preparation ranks keep no copies of rows"),
        ("wire_dtype", strategy.wire_dtype != "native", "rows are sent as they are"),
    ):
        if given:
            yield f"strategy.{key}", f"{why}; {leave}"
    if config.model.norm == "batch":
        yield "model.norm", "batch normalisation needs to know which rank counts a vertex; use --norm layer"
    if config.run.topology == "sharded":
        yield "run.topology", "every node of preparation ranks holds a copy; use node"
    if task_of(config, dataset).roots == "edges":
        yield "train.task", "edges are trained where they lie; train vertices"
    if not dataset.feature_dim:
        yield "model.missing_features", "rows are learned where they lie; use a dataset with features"
