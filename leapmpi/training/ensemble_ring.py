"""Several models that differ visit all ranks in a ring, so that each is trained on the rows of every rank.

The home of model m is rank m mod ranks, where its optimizer stays. In an iteration all models of one home travel along:
they train on their home's roots, hop to the rank before with parameters and gradients, train there, and so on; the last
hop brings the gradients home. Blocks are sampled and rows gathered once for all models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from leapmpi.engine.context import RankContext
from leapmpi.engine.exchange.base import share_among_models
from leapmpi.engine.exchange.modes.raw import Raw
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.plan.traffic_model import Traffic
from leapmpi.training.optimizer import Optimizer

OptimizerState = tuple[dict[str, torch.Tensor], dict[str, float]]
"""Tensors like the parameters by name, and numbers."""

_KINDS = {"values": "parameters", "gradients": "gradients"}


def predict_hops(traffic: Traffic, sizes: Sequence[int]) -> None:
    """Add to `traffic` what the hops of an iteration move, given the bytes of each model's parameters. Pure."""
    ranks = traffic.ranks
    for rank in range(ranks):
        for turn in range(ranks):
            kinds = _parts(turn, ranks)
            for number in models_on(rank, turn, ranks, len(sizes)):
                traffic.add_hop(rank, 1, {_KINDS[part]: sizes[number] for part in kinds})


def models_on(rank: int, turn: int, ranks: int, models: int) -> range:
    """The models that are on `rank` after `turn` hops."""
    return range((rank + turn) % ranks, models, ranks)


def _parts(turn: int, ranks: int) -> tuple[str, ...]:
    """What travels in the hop after `turn`: the last one brings gradients home."""
    return ("gradients",) if turn == ranks - 1 else ("values", "gradients")


class EnsembleRing:
    """The models of all ranks, of which this rank has room for every one. Methods are collective.

    A model's parameters are up to date on its home, and wherever it has been since the last update.
    """

    def __init__(self, ctx: RankContext, models: Sequence[Model]) -> None:
        self.ctx, self.communicator = ctx, ctx.communicator
        self.layouts = [ParameterLayout(model) for model in models]
        pairs = zip(models, self.layouts, strict=True)
        self.modes = [Raw(replace(ctx, model=model, parameters=layout)) for model, layout in pairs]

    def step(self, minibatch: MiniBatch) -> list[float]:
        """Sum up the gradients of all models over the batch, each on its home.

        Returns this rank's share of each model's loss.
        """
        losses = [0.0] * len(self.layouts)
        for micro_batch in minibatch.micro_batches:
            share_among_models(micro_batch, self.ctx.device)
        for number in self.models_after(0):
            self.layouts[number].gradients.zero_()
        for turn in range(self.communicator.size):
            for number in self.models_after(turn):
                pairs = enumerate(minibatch.labels)
                losses[number] = sum(self.modes[number].train(minibatch, step, labels) for step, labels in pairs)
            self._hop(turn, _parts(turn, self.communicator.size))
        return losses

    def spread(self) -> None:
        """Bring the parameters of every model to every rank."""
        for turn in range(self.communicator.size - 1):
            self._hop(turn, ("values",))

    def spread_state(self, optimizers: Sequence[Optimizer | None]) -> list[OptimizerState]:
        """The state of every model's optimizer, by model, on every rank; `optimizers` holds those of this rank."""
        states = {number: optimizer.state() for number, optimizer in enumerate(optimizers) if optimizer}
        about = {number: [list(tensors), numbers] for number, (tensors, numbers) in states.items()}
        known = {int(n): each for part in self.communicator.all_gather_objects(about) for n, each in part.items()}
        flats = [
            states[n][0] if n in states else {name: torch.empty_like(layout.values) for name in known[n][0]}
            for n, layout in enumerate(self.layouts)
        ]
        for turn in range(self.communicator.size - 1):
            here, there = self.models_after(turn), self.models_after(turn + 1)
            going, coming = ([flat for n in numbers for flat in flats[n].values()] for numbers in (here, there))
            self.communicator.ring_pass(going, coming, ["parameters"] * len(going))
        return [(tensors, known[number][1]) for number, tensors in enumerate(flats)]

    def models_after(self, turn: int) -> range:
        """The models that are here after `turn` hops; after 0 those whose optimizers are on this rank."""
        return models_on(self.communicator.rank, turn, self.communicator.size, len(self.layouts))

    def _hop(self, turn: int, parts: tuple[str, ...]) -> None:
        """Pass `parts` of the models that are here after `turn` hops on, and take in those of the ones that come."""
        if self.communicator.size == 1:
            return
        going, coming = ([(n, part) for n in self.models_after(at) for part in parts] for at in (turn, turn + 1))
        sends, receives = ([getattr(self.layouts[n], part) for n, part in pairs] for pairs in (going, coming))
        with self.ctx.phases("migrate"):
            self.communicator.ring_pass(sends, receives, [_KINDS[part] for _, part in going])
