"""The engines of all ranks of a job in one process, and their counts of an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.training.ensemble_models import count_models

DRY_EPOCH = 1
"""Epoch of the random streams of dry runs that forecasts draw from; rows to cache are chosen by epoch 0."""


@dataclass(frozen=True, eq=False)
class VirtualJob:
    """The engine of each rank of `world`."""

    world: VirtualWorld
    engines: Sequence[Engine]

    def key(self, iteration: int) -> DrawKey:
        """Return the key of the draws of an iteration of a dry run: no run draws from its streams."""
        return DrawKey(PRESAMPLE, self.engines[0].ctx.seed, DRY_EPOCH, iteration)

    def draw(self, batch: np.ndarray, iteration: int) -> list[MiniBatch]:
        """Return the mini-batch of each rank in a dry run that trains `batch`."""
        key = self.key(iteration)
        return self.draw_planned(self.engines[0].planned(batch, key), key)

    def draw_planned(self, planned: Schedule | EdgePlan, key: DrawKey) -> list[MiniBatch]:
        """Return the mini-batch of each rank by what is `planned`, drawn with `key`. What this exchanges is counted."""
        self.world.take()
        minibatches = self.world.run(lambda rank: self.engines[rank].draw(planned, key))
        if self.engines[0].preparation.plans_once:
            # Exchanges before the first iteration belong to no iteration.
            self.world.take()
        return minibatches

    def count(self, minibatches: Sequence[MiniBatch], models: Sequence[int] = ()) -> Traffic:
        """Count the traffic and reads of an iteration that trains `minibatches`, that of their draws included.

        models: the bytes of the parameters of each of several models, which cross ranks; empty for one.
        """

        def iterate(rank: int) -> None:
            engine, minibatch = self.engines[rank], minibatches[rank]
            communicator = self.world.communicators[rank]
            if not engine.preparation.plans_once:
                engine.roots.announce(minibatch.edge_loss.plan if minibatch.edge_loss else minibatch.planned)
            engine.count(minibatch)
            if models:
                count_models(communicator, models)
            else:
                communicator.all_reduce(engine.ctx.parameters.shared_gradients)
            # Ranks agree once whether to stop.
            communicator.start_all_reduce_maximum(0)()

        for engine, minibatch in zip(self.engines, minibatches, strict=True):
            engine.preparation.predict_draws(minibatch, self.world.traffic)
        self.world.run(iterate)
        return self.world.take()
