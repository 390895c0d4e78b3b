"""Modes whose inputs need no weights: they are here before the step begins, and no gradient travels back."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.context import RankContext
from leapmpi.engine.exchange.base import ExchangeMode
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.plan.traffic_model import Traffic


class FetchedInputsMode(ExchangeMode):
    """Base of modes that fetch, and compute the layer as a whole where it is needed."""

    @abstractmethod
    def outputs(self, minibatch: MiniBatch, number: int) -> Tensor:
        """The model's outputs for micro-batch `number`, whose inputs are here: float[roots, width]. Local."""

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        with self.ctx.phases("compute"):
            loss = self.loss(minibatch, number, self.outputs(minibatch, number), labels)
            loss.backward()
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        with self.ctx.phases("compute"):
            return self.outputs(minibatch, number)


def predict_rows(ctx: RankContext, layer: int, vertices: np.ndarray, traffic: Traffic) -> None:
    """Add to `traffic` what it takes to fetch the rows of distinct `vertices` (int64) that `layer` reads. Local."""
    rank, inputs = ctx.rank, ctx.inputs(layer)
    request = inputs.request(vertices)
    traffic.add_request(rank, request.remote_counts, inputs.id_codec.id_bytes, "features", 0)
    traffic.add_answers(rank, "features", inputs.answer_bytes(request))
    traffic.add_returns(rank, "row gradients", request.remote_counts * inputs.returned_row_bytes)
    for place, count in request.read_counts.items():
        traffic.add_rows(rank, place, count)
