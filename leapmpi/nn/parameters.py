"""ParameterLayout: all parameters and their gradients in one flat buffer, so that one message moves a model.

The module's parameters are views into the buffer; the optimizer, the ring, the reduction, the digest and the files
all work on it as a whole. Here every rank holds all parameters; leapmpi/nn/sharded_parameters.py splits some of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from leapmpi.errors import DataError


class ParameterLayout:
    """The flat state of a model: `state` = `values` then `gradients`, each of `count` numbers.

    `first` names the parameters that come first in it. Where a method says collective, it is so for layouts that split.
    """

    def __init__(self, model: torch.nn.Module, first: Sequence[str] = ()) -> None:
        named = dict(model.named_parameters())
        parameters = {name: named[name] for name in (*first, *(name for name in named if name not in first))}
        self.model = model
        first = next(iter(parameters.values()))
        self.shapes = {name: tuple(each.shape) for name, each in parameters.items()}
        self.count = sum(each.numel() for each in parameters.values())
        self.state = torch.zeros(2 * self.count, dtype=first.dtype, device=first.device)
        self.values, self.gradients = self.state[: self.count], self.state[self.count :]
        begin = 0
        for parameter in parameters.values():
            place = slice(begin, begin + parameter.numel())
            self.values[place] = parameter.detach().reshape(-1)
            parameter.data = self.values[place].view(parameter.shape)
            parameter.grad = self.gradients[place].view(parameter.shape)
            begin += parameter.numel()

    @property
    def shared_gradients(self) -> torch.Tensor:
        """The gradients, flat, of which every rank computes a share: those to be summed over ranks. A view."""
        return self.gradients

    @property
    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of all ranks together."""
        return self.shapes

    def by_name(self, flat: torch.Tensor | None = None) -> dict[str, np.ndarray]:
        """Copies of the parameters of all ranks as numpy arrays, by name. Collective.

        With `flat`, any other `count` numbers laid out like `values`, such as gradients or an optimizer's moments.
        """
        return self._cut(self.values if flat is None else flat)

    def assign(self, arrays: Mapping[str, np.ndarray], origin: str, flat: torch.Tensor | None = None) -> None:
        """Set the parameters, or `flat` laid out like them, from what `by_name` gave. Local.

        Raises DataError, naming `origin`, when names or shapes differ.
        """
        found, wanted = {name: tuple(array.shape) for name, array in arrays.items()}, self.whole_shapes
        if found != wanted:
            odd = sorted(set(found.items()) ^ set(wanted.items()))[0]
            raise DataError(f"{origin}: the weights belong to another model (first difference: {odd[0]} {odd[1]})")
        held = np.concatenate([self._held(name, arrays[name]).reshape(-1) for name in self.shapes])
        (self.values if flat is None else flat).copy_(torch.from_numpy(held))

    def digest(self) -> str:
        """blake2b-128 over the little-endian bytes of all parameters, hexadecimal. Collective."""
        return digest(self.by_name())

    def gradient_norm(self) -> float:
        """The Euclidean norm of the gradients of all parameters, once they are reduced. Collective."""
        return float(torch.linalg.vector_norm(self.gradients))

    def whole_model(self) -> torch.nn.Module:
        """A model with all parameters as they are now, to score with. Collective."""
        return self.model

    def _cut(self, flat: torch.Tensor) -> dict[str, np.ndarray]:
        """Copies of what this rank holds, by name."""
        held, begin, arrays = flat.detach().cpu().numpy(), 0, {}
        for name, shape in self.shapes.items():
            size = int(np.prod(shape, dtype=np.int64))
            arrays[name] = held[begin : begin + size].reshape(shape).copy()
            begin += size
        return arrays

    def _held(self, name: str, array: np.ndarray) -> np.ndarray:
        """What this rank holds of the whole parameter `name`."""
        del name
        return array


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """blake2b-128 over names and little-endian bytes of `arrays`, hexadecimal."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        state.update(name.encode())
        state.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return state.hexdigest()
