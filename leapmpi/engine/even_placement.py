"""Strategies that assign roots evenly to the ranks, and those with an exchange mode of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.placement import Placement
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.plan.planner import plan_pull
from leapmpi.plan.schedule import Schedule


class EvenPlacement(Placement):
    """Equal shares of the shuffled batch for all ranks, one time step."""

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int, time_steps: int | None = None) -> Schedule:
        """Return contiguous slices of the batch, which is in random order already."""
        return plan_pull(batch, self.ctx.ranks, epoch=epoch, iteration=iteration)


def one_time_step(config: StrategyConfig, ranks: int) -> int:
    """Return 1. Raises ConfigError when another number, or a setting of leap's, is given."""
    if config.time_steps not in ("auto", "1") and not (ranks == 1 and config.time_steps == "N"):
        raise ConfigError(
            f"strategy.time_steps: {config.name} has one time step, not {config.time_steps}; leave it out or use leap"
        )
    if config.memory_limit:
        raise ConfigError(f"strategy.memory_limit: {config.name} assigns roots evenly; leave it out or use leap")
    return 1


def looks_up_all_ranks(config: StrategyConfig) -> str:
    """Explain why strategies of a fixed mode read the lists of vertices of all ranks."""
    return f"--strategy {config.name} looks up vertices of all ranks; choose leap or pull"


def fixed_mode(
    name: str, mode_of: Callable[[RankContext], type[ExchangeMode]]
) -> Callable[[RankContext, StrategyConfig], tuple[str, ExchangeMode]]:
    """Return the function that makes a strategy's own exchange mode, which records call `name`.

    It raises ConfigError where `--remote` names another, or the model does not suit it.
    """

    def make(ctx: RankContext, config: StrategyConfig) -> tuple[str, ExchangeMode]:
        if config.remote != "auto":
            raise ConfigError(
                f"strategy.remote: {config.name} has its own way to compute the first layer; leave out {config.remote}"
            )
        mode = mode_of(ctx)
        if reason := mode.refusal(ctx.model.layers[0]):
            raise ConfigError(f"strategy: {config.name} cannot train this model: {reason}; use leap or pull")
        if ctx.sampler.weighted and any("weight" in layer.edge_data for layer in ctx.model.layers):
            raise ConfigError(
                f"strategy: {config.name} sends edges without weights, which this sampler gives them; "
                "use leap or pull, or another --sampler"
            )
        return name, mode(ctx)

    return make
