"""`pull`: model-centric training, the baseline that LeapGNN calls DGL.

Roots are dealt to ranks at random; each rank pulls every distinct raw row its blocks read and does not have.
"""

from __future__ import annotations

import numpy as np

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.strategy import Strategy
from leapmpi.errors import ConfigError
from leapmpi.plan.planner import plan_pull
from leapmpi.plan.schedule import Schedule


class Pull(Strategy):
    """Equal shares of the shuffled batch for all ranks, one time step."""

    roots_at_home = False

    @staticmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """Always 1. Raises ConfigError when another number, or a setting of leap's, is asked for."""
        if config.time_steps not in ("auto", "1") and not (ranks == 1 and config.time_steps == "N"):
            raise ConfigError(
                f"strategy.time_steps: {config.name} has one time step, not {config.time_steps}; "
                "leave it out or use leap"
            )
        for setting, given in (("memory_limit", config.memory_limit), ("balance", config.balance != "off")):
            if given:
                raise ConfigError(f"strategy.{setting}: {config.name} deals roots evenly; leave it out or use leap")
        if config.migrate != "ring":
            raise ConfigError(
                f"strategy.migrate: {config.name} leaves no choice whether models travel; leave it out or use leap"
            )
        return 1

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """Contiguous slices of the batch, which is in random order already."""
        return plan_pull(batch, self.ctx.communicator.size, epoch=epoch, iteration=iteration)


STRATEGY = Pull
