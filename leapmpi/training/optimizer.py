"""The optimizer step on the flat parameters: learning rate over time, clipping, Adam, AdamW or SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.config.sections import TrainConfig
from leapmpi.features.learned_rows import EPSILON, FAST, SLOW, LearnedRows
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.norms import batch_norms
from leapmpi.nn.parameters import ParameterLayout


def learning_rate(config: TrainConfig, iteration: int, iterations_per_epoch: int) -> float:
    """Return the learning rate of global `iteration` (from 0): linear warm-up, then constant or a cosine down to
    zero.
    """
    warmup = config.warmup_epochs * iterations_per_epoch
    if iteration < warmup:
        return config.lr * (iteration + 1) / (warmup + 1)
    if config.lr_schedule == "constant":
        return config.lr
    total = config.epochs * iterations_per_epoch
    progress = min(1.0, (iteration - warmup) / max(1.0, total - warmup))
    return config.lr * 0.5 * (1 + math.cos(math.pi * progress))


class Optimizer:
    """One update of all parameters from their reduced gradients; every rank computes the same.

    The rules work element by element, so each treats all tensors as one flat array. They are those of torch.optim,
    whose own classes load torch's compiler, seconds and a temporary folder on every rank, when the first one is made.
    """

    def __init__(
        self,
        config: TrainConfig,
        parameters: ParameterLayout,
        iterations_per_epoch: int,
        learned: LearnedRows | None = None,
        communicator: Communicator | None = None,
    ) -> None:
        """Prepare for updates of `parameters`, and of `learned` rows, which `communicator` collects."""
        self.config = config
        self.parameters = parameters
        self.learned, self.communicator = learned, communicator
        self.iterations_per_epoch = iterations_per_epoch
        self.last_rate = 0.0
        # Tensors like `parameters.values`: the moments of Adam, or the velocity, once there is one.
        self._tensors: dict[str, torch.Tensor] = {}
        self._steps = 0
        if config.optimizer != "sgd":
            self._tensors = {name: torch.zeros_like(parameters.values) for name in ("first", "second")}
            self._root = torch.zeros_like(parameters.values) if on_host(parameters.values.device) else None

    def step(self, iteration: int) -> None:
        """Update the parameters at global `iteration`, and statistics; gradients may be overwritten. Collective."""
        # Scale gradients whose norm over all parameters and learned rows exceeds the limit.
        limit = self.config.clip_norm
        if limit and (norm := self._gradient_norm()) > limit:
            self.parameters.gradients.mul_(limit / norm)
            if self.learned:
                self.learned.gradients *= limit / norm
        self.last_rate = learning_rate(self.config, iteration, self.iterations_per_epoch)
        (self._descend if self.config.optimizer == "sgd" else self._adam)(self.last_rate)
        if self.learned:
            self.learned.step(self.last_rate, self.config.weight_decay, self.config.optimizer == "adamw")
        for normalise in batch_norms(self.parameters.model).values():
            normalise.move()

    def _gradient_norm(self) -> float:
        """Return the Euclidean norm of all gradients. Collective."""
        norm = self.parameters.gradient_norm()
        if self.learned is None:
            return norm
        assert self.communicator is not None, "rows are learned on the ranks of a job"
        return math.hypot(norm, math.sqrt(self.learned.squared_norm(self.communicator)))

    def _descend(self, rate: float) -> None:
        """Update by stochastic gradient descent with momentum, as torch.optim.SGD does."""
        config, direction = self.config, self.parameters.gradients
        if config.weight_decay:
            direction.add_(self.parameters.values, alpha=config.weight_decay)
        if config.momentum:
            if "velocity" in self._tensors:
                self._tensors["velocity"].mul_(config.momentum).add_(direction)
            else:
                self._tensors["velocity"] = direction.clone()
            direction = self._tensors["velocity"]
        self.parameters.values.add_(direction, alpha=-rate)

    def _adam(self, rate: float) -> None:
        """Update by Adam (Kingma and Ba 2015, algorithm 1), or AdamW with decoupled decay (Loshchilov and Hutter
        2019).
        """
        self._steps += 1
        if self._root is None:
            self._fused_adam(rate)
            return
        decay, values, gradients = self.config.weight_decay, self.parameters.values, self.parameters.gradients
        # AdamW shrinks weights beside the step; Adam adds the decay to the gradient, where moments see it.
        if decay and self.config.optimizer == "adamw":
            values.mul_(1 - rate * decay)
        elif decay:
            gradients.add_(values, alpha=decay)
        first, second = self._tensors["first"], self._tensors["second"]
        # All in place: temporary arrays would be as large as the model.
        first.lerp_(gradients, 1 - FAST)
        second.mul_(SLOW).addcmul_(gradients, gradients, value=1 - SLOW)
        torch.sqrt(second, out=self._root)
        # Corrections of the bias towards the zeros at the start (section 3).
        self._root.div_((1 - SLOW**self._steps) ** 0.5).add_(EPSILON)
        values.addcdiv_(first, self._root, value=-rate / (1 - FAST**self._steps))

    def _fused_adam(self, rate: float) -> None:
        """Update as `_adam` does, up to rounding, in one launch of torch's."""
        values, first, second = self.parameters.values, self._tensors["first"], self._tensors["second"]
        steps = torch.full((), self._steps, dtype=torch.float32, device=values.device)
        fused = torch._fused_adamw_ if self.config.optimizer == "adamw" else torch._fused_adam_
        fused(
            [values], [self.parameters.gradients], [first], [second], [], [steps],
            lr=rate, beta1=FAST, beta2=SLOW, weight_decay=self.config.weight_decay, eps=EPSILON,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return what the next step depends on besides the parameters: tensors like `parameters.values`, and
        numbers.
        """
        return self._tensors, {"steps": self._steps, "last_rate": self.last_rate}

    def restore(self, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, float]) -> None:
        """Take up what `state` gave to an earlier start."""
        values = self.parameters.values
        self._tensors = {name: tensor.to(values, copy=True) for name, tensor in tensors.items()}
        self._steps, self.last_rate = int(numbers["steps"]), numbers["last_rate"]
