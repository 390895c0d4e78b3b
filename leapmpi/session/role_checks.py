"""Settings that do not go with --prepare-ranks, refused before anything is loaded."""

from __future__ import annotations

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.disaggregated.share_preparation import sums_suffice
from leapmpi.errors import ConfigError, DataError, counted
from leapmpi.nn.model import model_of
from leapmpi.plan.roles import Roles


def by_role(config: Config) -> Config:
    """Return `config` as ranks with roles train by it, where `auto` is leap; itself where they have none. Local.

    `--remote auto` fetches raw rows.
    """
    strategy = config.strategy
    if not strategy.prepare_ranks:
        return config
    name, remote = "leap" if strategy.name == "auto" else strategy.name, strategy.remote
    remote = "raw" if remote == "auto" else remote
    return config.replaced({"strategy.name": name, "strategy.remote": remote}, "--prepare-ranks")


def _sums_travel(config: Config, dataset: Dataset) -> bool:
    """Return whether ranks that prepare can add up for each other, and those that compute need no more."""
    model = model_of(config, dataset)
    return model.layers[0].sums.offers_shares and sums_suffice(model)


def check_roles(config: Config, dataset: Dataset, ranks: int) -> None:
    """Raise ConfigError for settings that do not go with --prepare-ranks, DataError for too few parts. Local."""
    roles = Roles(ranks, config.strategy.prepare_ranks)
    if config.strategy.remote == "sums" and not _sums_travel(config, dataset):
        raise ConfigError(
            "strategy.remote: with --prepare-ranks what is sent is made of raw rows; use raw, or a model whose sums do"
        )
    if roles.shares > dataset.parts:
        role = f"{roles.preparing} ranks prepare" if roles.preparing == roles.shares else f"{roles.shares} compute"
        raise DataError(
            f"{role} but the dataset has {counted(dataset.parts, 'part')}; partition the graph again "
            f"with --parts {roles.shares}, or give fewer ranks that role"
        )
