"""The optimizer step on the flat parameters: learning rate over time, clipping, Adam, AdamW or SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from leapmpi.config.sections import TrainConfig
from leapmpi.nn.parameters import ParameterLayout


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
        self._rule = (_Descent if config.optimizer == "sgd" else _Adam)(config, parameters)
        self.last_rate = 0.0

    def step(self, iteration: int) -> None:
        """Update the parameters at global `iteration`. Collective."""
        self._clip()
        self.last_rate = learning_rate(self.config, iteration, self.iterations_per_epoch)
        self._rule.step(self.last_rate)

    def _clip(self) -> None:
        """Scale gradients whose norm over all parameters exceeds the limit."""
        limit = self.config.clip_norm
        if limit and (norm := self.parameters.gradient_norm()) > limit:
            self.parameters.gradients.mul_(limit / norm)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """What the next step depends on besides the parameters: tensors like `parameters.values`, and numbers."""
        tensors, steps = self._rule.state()
        return tensors, {"steps": steps, "last_rate": self.last_rate}

    def restore(self, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, float]) -> None:
        """Take up what `state` gave to an earlier start."""
        self.last_rate = numbers["last_rate"]
        self._rule.restore(tensors, int(numbers["steps"]))


# The rules work element by element, so each treats all tensors as one flat array. They are those of torch.optim, whose
# own classes load torch's compiler, seconds and a temporary folder on every rank, when the first one is made.


class _Descent:
    """Stochastic gradient descent with momentum, as torch.optim.SGD."""

    def __init__(self, config: TrainConfig, parameters: ParameterLayout) -> None:
        self.values, self.gradients = parameters.values, parameters.gradients
        self.momentum, self.weight_decay = config.momentum, config.weight_decay
        self.velocity: torch.Tensor | None = None

    def step(self, rate: float) -> None:
        """One update; the gradients are overwritten."""
        direction = self.gradients
        if self.weight_decay:
            direction.add_(self.values, alpha=self.weight_decay)
        if self.momentum:
            if self.velocity is None:
                self.velocity = direction.clone()
            else:
                self.velocity.mul_(self.momentum).add_(direction)
            direction = self.velocity
        self.values.add_(direction, alpha=-rate)

    def state(self) -> tuple[dict[str, torch.Tensor], int]:
        """The velocity, once there is one."""
        return {} if self.velocity is None else {"velocity": self.velocity}, 0

    def restore(self, tensors: Mapping[str, torch.Tensor], steps: int) -> None:
        """Take up a `state`."""
        del steps
        if "velocity" in tensors:
            self.velocity = tensors["velocity"].to(self.values)


class _Adam:
    """Adam (Kingma and Ba 2015, algorithm 1), and AdamW with decoupled weight decay (Loshchilov and Hutter 2019)."""

    MEMORY = (0.9, 0.999)
    EPSILON = 1e-8

    def __init__(self, config: TrainConfig, parameters: ParameterLayout) -> None:
        self.values, self.gradients = parameters.values, parameters.gradients
        self.weight_decay, self.decoupled = config.weight_decay, config.optimizer == "adamw"
        self.first, self.second, self._root = (torch.zeros_like(self.values) for _ in range(3))
        self.steps = 0

    def step(self, rate: float) -> None:
        """One update; the gradients may be overwritten."""
        if self.weight_decay and self.decoupled:
            self.values.mul_(1 - rate * self.weight_decay)
        elif self.weight_decay:
            self.gradients.add_(self.values, alpha=self.weight_decay)
        self.steps += 1
        fast, slow = self.MEMORY
        self.first.lerp_(self.gradients, 1 - fast)
        self.second.mul_(slow).addcmul_(self.gradients, self.gradients, value=1 - slow)
        torch.sqrt(self.second, out=self._root)
        self._root.div_((1 - slow**self.steps) ** 0.5).add_(self.EPSILON)
        self.values.addcdiv_(self.first, self._root, value=-rate / (1 - fast**self.steps))

    def state(self) -> tuple[dict[str, torch.Tensor], int]:
        """Both moments and the number of steps."""
        return {"first": self.first, "second": self.second}, self.steps

    def restore(self, tensors: Mapping[str, torch.Tensor], steps: int) -> None:
        """Take up a `state`."""
        self.first.copy_(tensors["first"])
        self.second.copy_(tensors["second"])
        self.steps = steps
