"""`leap`: feature-centric training (LeapGNN, FAST'25): each root is trained where its features are.

At N time steps, N models visit the N ranks in a ring, taking their accumulated gradients along. At one time step each
rank trains all roots at home there; with synchronous updates the gradient is the same and no model moves.
"""

from __future__ import annotations

import numpy as np

from leapmpi.config import StrategyConfig
from leapmpi.errors import ConfigError
from leapmpi.plan.planner import plan_leap
from leapmpi.plan.schedule import Schedule
from leapmpi.strategies._iteration import Strategy


class Leap(Strategy):
    """Roots at home, in one time step or in as many as there are ranks."""

    @staticmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """1 for auto. Raises ConfigError for numbers other than 1 and the number of ranks."""
        if config.time_steps in ("auto", "1"):
            return 1
        if config.time_steps in ("N", str(ranks)):
            return ranks
        raise ConfigError(
            f"strategy.time_steps: leap on {ranks} rank{'s' * (ranks > 1)} takes auto, 1 or N (the number of ranks), "
            f"not {config.time_steps}"
        )

    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """All roots at home; at N steps the batch is cut into N models, each visiting every rank once."""
        return plan_leap(batch, self.at.rank_offsets, self.time_steps, epoch=epoch, iteration=iteration)

    def after_step(self, step: int) -> None:
        """Pass the model trained here, with the gradients gathered so far, on to the rank before. Collective."""
        del step
        if self.config.migrate != "ring":
            return
        parameters = self.at.parameters
        size = parameters.gradients.nbytes
        with self.at.phases("migrate"):
            self.at.wire.ring_hop(parameters.state, (("parameters", size), ("gradients", size)))


STRATEGY = Leap
