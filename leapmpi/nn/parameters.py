"""ParameterLayout: all parameters and their gradients in one flat buffer, so that one message moves a model.

The module's parameters are views of the buffer; the optimizer, the ring, the all-reduce, the digest and the files use
it as a whole. Here every rank holds all parameters; sharded_parameters.py splits some of them over the ranks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from leapmpi.errors import DataError
from leapmpi.nn.idle_biases import without_idle_biases

if TYPE_CHECKING:
    from leapmpi.nn.model import Model


class ParameterLayout:
    """The flat state of a model: `state` = `values` then `gradients`, each of `count` numbers of the model's dtype.

    Parameters have the order of the module, but those named in `first` come first. Methods marked "Collective." are so
    for sharded parameters, and every rank must call them.
    """

    def __init__(self, model: Model, first: Sequence[str] = ()) -> None:
        self.model = model
        named = dict(model.named_parameters())
        parameters = {name: named[name] for name in (*first, *(name for name in named if name not in first))}
        self.shapes = {name: tuple(each.shape) for name, each in parameters.items()}
        self.count = sum(each.numel() for each in parameters.values())

        # Of rows that learn alone, with a scorer that has no weights, there are no parameters.
        any_tensor = next(chain(parameters.values(), model.buffers()))
        self.state = torch.zeros(2 * self.count, dtype=any_tensor.dtype, device=any_tensor.device)
        self.values = self.state[: self.count]
        self.gradients = self.state[self.count :]

        # Move each parameter into the buffer, and make it and its gradient views.
        begin = 0
        for parameter in parameters.values():
            place = slice(begin, begin + parameter.numel())
            self.values[place] = parameter.detach().reshape(-1)
            parameter.data = self.values[place].view(parameter.shape)
            parameter.grad = self.gradients[place].view(parameter.shape)
            begin += parameter.numel()

    @property
    def shared_gradients(self) -> torch.Tensor:
        """The gradients to sum over ranks, since every rank computes a share of them: a flat view, float[count]."""
        return self.gradients

    @property
    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of the whole model, over all ranks."""
        return self.shapes

    def by_name(self, flat: torch.Tensor | None = None) -> dict[str, np.ndarray]:
        """Copy the parameters of the whole model and its statistics to numpy arrays, by name. Collective.

        With `flat`, of other `count` numbers that are laid out like `values`, such as an optimizer's moments.
        """
        return self._arrays(flat) | (self._statistics() if flat is None else {})

    def assign(self, arrays: Mapping[str, np.ndarray], origin: str, flat: torch.Tensor | None = None) -> None:
        """Set the parameters, or `flat` laid out like them, from the result of `by_name`. No communication.

        Weights of earlier versions may have biases before batch normalisations. Raises DataError, naming `origin`,
        when names or shapes differ.
        """
        arrays = without_idle_biases(self.model, arrays)
        self.check_shapes(arrays, origin, statistics=flat is None)
        if self.shapes:
            shards = np.concatenate([self._shard(name, arrays[name]).reshape(-1) for name in self.shapes])
            (self.values if flat is None else flat).copy_(torch.from_numpy(shards))
        if flat is None:
            for name, held in self.model.statistics().items():
                held.copy_(torch.from_numpy(arrays[name]))

    def check_shapes(self, arrays: Mapping[str, np.ndarray], origin: str, statistics: bool = True) -> None:
        """Raise DataError, naming `origin`, unless `arrays` have the names and shapes of the result of `by_name`.

        Without `statistics`, of one for other numbers than those of the model.
        """
        found = {name: tuple(array.shape) for name, array in arrays.items()}
        expected = self.whole_shapes | (
            {name: tuple(each.shape) for name, each in self.model.statistics().items()} if statistics else {}
        )
        if found != expected:
            odd = sorted(set(found.items()) ^ set(expected.items()))[0]
            raise DataError(f"{origin}: the weights belong to another model (first difference: {odd[0]} {odd[1]})")

    def digest(self) -> str:
        """`digest` of all parameters. Collective."""
        return digest(self.by_name())

    def gradient_norm(self) -> float:
        """Return the Euclidean norm of the gradients of all parameters, after the all-reduce. Collective."""
        return float(torch.linalg.vector_norm(self.gradients))

    def whole_model(self) -> Model:
        """Return a model with the current values of all parameters, for evaluation. Collective."""
        return self.model

    def _arrays(self, flat: torch.Tensor | None) -> dict[str, np.ndarray]:
        """Return the result of `by_name` for the parameters of this rank."""
        numbers = (self.values if flat is None else flat).detach().cpu()
        parts = numbers.split([math.prod(shape) for shape in self.shapes.values()])
        return {
            name: part.numpy().reshape(shape).copy()
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def _statistics(self) -> dict[str, np.ndarray]:
        """Copy what batch normalisation keeps, the same on all ranks."""
        return {name: each.detach().cpu().numpy().copy() for name, each in self.model.statistics().items()}

    def _shard(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return this rank's part of the parameter `name`; `array` is the whole."""
        return array


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return blake2b-128 over the names and little-endian bytes of `arrays`, in their order, hexadecimal."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        state.update(name.encode())
        state.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return state.hexdigest()
