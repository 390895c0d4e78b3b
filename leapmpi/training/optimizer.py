"""The optimizer step on the flat parameters: learning rate over time, clipping, Adam, AdamW or SGD."""

from __future__ import annotations

import math

import torch

from leapmpi.config import TrainConfig
from leapmpi.training.parameters import ParameterLayout


def learning_rate(config: TrainConfig, iteration: int, iterations_per_epoch: int) -> float:
    """The learning rate of global `iteration` (from 0): linear warm-up, then constant or a cosine down to zero."""
    warmup = config.warmup_epochs * iterations_per_epoch
    if iteration < warmup:
        return config.lr * (iteration + 1) / (warmup + 1)
    if config.lr_schedule == "constant":
        return config.lr
    total = config.epochs * iterations_per_epoch
    progress = min(1.0, (iteration - warmup) / max(1.0, total - warmup))
    return config.lr * 0.5 * (1 + math.cos(math.pi * progress))


class Optimizer:
    """One update of all parameters from their reduced gradients; every rank computes the same."""

    def __init__(self, config: TrainConfig, parameters: ParameterLayout, iterations_per_epoch: int) -> None:
        self.config = config
        self.parameters = parameters
        self.iterations_per_epoch = iterations_per_epoch
        # All three rules work element by element, so one flat parameter serves for all tensors.
        self._flat = torch.nn.Parameter(parameters.values, requires_grad=False)
        self._flat.grad = parameters.gradients
        self._rule = _rule(config, self._flat)
        self.last_rate = 0.0

    def step(self, iteration: int) -> float:
        """Update the parameters at global `iteration`; returns the gradient's norm before clipping."""
        gradients = self.parameters.gradients
        norm = float(torch.linalg.vector_norm(gradients))
        if self.config.clip_norm and norm > self.config.clip_norm:
            gradients.mul_(self.config.clip_norm / norm)
        self.last_rate = learning_rate(self.config, iteration, self.iterations_per_epoch)
        for group in self._rule.param_groups:
            group["lr"] = self.last_rate
        self._rule.step()
        return norm


def _rule(config: TrainConfig, flat: torch.nn.Parameter) -> torch.optim.Optimizer:
    if config.optimizer == "sgd":
        return torch.optim.SGD([flat], lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind([flat], lr=config.lr, weight_decay=config.weight_decay)
