"""Several models that differ, each trained on the rows of every rank.

The home of model m is rank m mod ranks, which holds its optimizer. In an iteration every home sends its models'
parameters to all ranks. Each rank trains all models on its own roots. Gradients return to the homes and are added there
in the order of ranks. Blocks are sampled and inputs fetched once for all models. If inputs are sums of raw rows, the
first layers of all models are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.raw_sums import stacked_from_sums, stacks
from leapmpi.exchange.selection import mode_class
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.training.optimizer import Optimizer

OptimizerState = tuple[dict[str, Tensor], dict[str, float]]
"""Tensors like the parameters by name, and numbers."""


def count_models(communicator: Communicator, sizes: Sequence[int]) -> None:
    """Count what models move in an iteration, given the bytes of each one's parameters. Local: nothing is sent."""
    ranks = range(communicator.size)
    by_owner = np.array([sum(sizes[number] for number in models_of(rank, len(ranks), len(sizes))) for rank in ranks])
    communicator.count("parameters", np.full(len(ranks), by_owner[communicator.rank]), 1)
    communicator.count("gradients", by_owner, 1)


def models_of(rank: int, ranks: int, models: int) -> range:
    """Return the models whose home is `rank`."""
    return range(rank, models, ranks)


class EnsembleModels:
    """All models, each with memory on every rank. Methods are collective unless said otherwise.

    A model's parameters are up to date on its home, and on all ranks from a `spread` to the next step of its optimizer.
    """

    def __init__(self, ctx: RankContext, models: Sequence[Model]) -> None:
        self.ctx, self.communicator = ctx, ctx.communicator
        self.layouts = [ParameterLayout(model) for model in models]
        self._layers = [model.layers[0] for model in models]
        self.use_mode("raw")

    def use_mode(self, name: str) -> None:
        """Feed all first layers by the exchange mode called `name` from now on. Local."""
        contexts = (replace(self.ctx, model=each.model, parameters=each) for each in self.layouts)
        self.modes: list[ExchangeMode] = [mode_class(name)(ctx) for ctx in contexts]
        self._stacks = name == "sums" and stacks(self._layers)

    @property
    def own_models(self) -> range:
        """The models whose optimizers are on this rank. Local."""
        return models_of(self.communicator.rank, self.communicator.size, len(self.layouts))

    def step(self, minibatch: MiniBatch) -> list[float]:
        """Sum the gradients of all models over the batch, each on its owner.

        Returns this rank's share of each model's loss.
        """
        self.spread()
        for layout in self.layouts:
            layout.gradients.zero_()
        losses = np.zeros(len(self.layouts))
        for number, (micro_batch, labels) in enumerate(zip(minibatch.micro_batches, minibatch.labels, strict=True)):
            self.modes[0].share_among_models(micro_batch)
            # Embeddings of edges' ends cross ranks model by model.
            if self._stacks and minibatch.edge_loss is None:
                losses += self._train_stacked(minibatch, number, labels)
            else:
                losses += [mode.train(minibatch, number, labels) for mode in self.modes]
        self._add_up_gradients()
        return losses.tolist()

    def spread(self) -> None:
        """Send the parameters of every model to every rank."""
        with self.ctx.phases("migrate"):
            self._spread([[layout.values] for layout in self.layouts])

    def spread_state(self, optimizers: Sequence[Optimizer | None]) -> list[OptimizerState]:
        """Return the state of every model's optimizer, by model, on every rank; `optimizers` holds those of this
        rank.
        """
        states = {number: optimizer.state() for number, optimizer in enumerate(optimizers) if optimizer}
        about = {number: [list(tensors), numbers] for number, (tensors, numbers) in states.items()}
        known = {int(n): each for part in self.communicator.all_gather_objects(about) for n, each in part.items()}
        flats = [
            states[n][0] if n in states else {name: torch.empty_like(layout.values) for name in known[n][0]}
            for n, layout in enumerate(self.layouts)
        ]
        self._spread([list(flat.values()) for flat in flats])
        return [(tensors, known[number][1]) for number, tensors in enumerate(flats)]

    def _train_stacked(self, minibatch: MiniBatch, number: int, labels: Tensor) -> list[float]:
        """Run forward and backward of micro-batch `number` for all models, whose first layers are one product.
        Local.
        """
        assert minibatch.sums is not None, "the mode is `sums`"
        with self.ctx.phases("compute"):
            sums, own = minibatch.sums.of(number)
            losses = []
            for mode, first in zip(self.modes, stacked_from_sums(self._layers, sums, own), strict=True):
                blocks = mode.tensors(minibatch.micro_batches[number])
                logits = mode.ctx.model.after(0, blocks, first, minibatch.dropout)
                losses.append(mode.loss(minibatch, number, logits, labels))
            torch.autograd.backward(losses)
        return [float(loss.detach()) for loss in losses]

    def _spread(self, tensors: Sequence[Sequence[Tensor]]) -> None:
        """Fill the flat `tensors` of each model, everywhere, with what they hold at its home."""
        communicator, by_owner = self.communicator, self._by_owner(tensors)
        if communicator.size == 1:
            return
        sizes = np.array([sum(map(len, each)) for each in by_owner])
        mine, others = by_owner.pop(communicator.rank), np.arange(communicator.size) != communicator.rank
        values = self.layouts[0].values
        sent = torch.cat([*mine, values[:0]]).repeat(communicator.size - 1)
        arrived = values.new_empty(int(sizes[others].sum()))
        communicator.exchange(sent, others * sizes[communicator.rank], arrived, others * sizes, "parameters")
        theirs = list(chain.from_iterable(by_owner))
        for tensor, part in zip(theirs, arrived.split(list(map(len, theirs))), strict=True):
            tensor.copy_(part)

    def _add_up_gradients(self) -> None:
        """Put into the gradients of each model, at its home, their sum over all ranks, added in the order of ranks."""
        communicator, by_owner = self.communicator, self._by_owner([[layout.gradients] for layout in self.layouts])
        if communicator.size == 1:
            return
        with self.ctx.phases("reduce"):
            sizes = np.array([sum(map(len, each)) for each in by_owner])
            mine, sent = by_owner[communicator.rank], torch.cat(list(chain.from_iterable(by_owner)))
            # What this rank adds itself is copied in memory.
            counts = np.full(communicator.size, sizes[communicator.rank])
            arrived = sent.new_empty(int(counts.sum()))
            communicator.exchange(sent, sizes, arrived, counts, "gradients")
            first, *others = arrived.view(communicator.size, -1)
            for each in others:
                first += each
            for tensor, part in zip(mine, first.split(list(map(len, mine))), strict=True):
                tensor.copy_(part)

    def _by_owner(self, tensors: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Return the `tensors` of all models by the ranks that are their homes."""
        size, models = self.communicator.size, len(self.layouts)
        return [[each for n in models_of(rank, size, models) for each in tensors[n]] for rank in range(size)]
