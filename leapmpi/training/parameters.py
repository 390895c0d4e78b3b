"""ParameterLayout: all parameters and their gradients in one flat buffer, so that one message moves a model.

The module's parameters are views into the buffer; the optimizer, the ring, the reduction, the digest and the files
all work on it as a whole. Today every rank holds all parameters (replicated).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from leapmpi import __version__
from leapmpi.errors import DataError
from leapmpi.files import written_aside

WEIGHTS_FORMAT = "leapmpi-weights"
WEIGHTS_VERSION = 1


class ParameterLayout:
    """The flat state of a model: `state` = `values` then `gradients`, each of `count` numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        parameters = dict(model.named_parameters())
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

    def by_name(self) -> dict[str, np.ndarray]:
        """Copies of the parameters as numpy arrays, by name."""
        flat, begin, arrays = self.values.detach().cpu().numpy(), 0, {}
        for name, shape in self.shapes.items():
            size = int(np.prod(shape, dtype=np.int64))
            arrays[name] = flat[begin : begin + size].reshape(shape).copy()
            begin += size
        return arrays

    def assign(self, arrays: Mapping[str, np.ndarray], origin: str) -> None:
        """Set the parameters from `arrays`. Raises DataError, naming `origin`, when names or shapes differ."""
        found = {name: tuple(array.shape) for name, array in arrays.items()}
        if found != self.shapes:
            odd = sorted(set(found.items()) ^ set(self.shapes.items()))[0]
            raise DataError(f"{origin}: the weights belong to another model (first difference: {odd[0]} {odd[1]})")
        flat = np.concatenate([arrays[name].reshape(-1) for name in self.shapes])
        self.values.copy_(torch.from_numpy(flat))

    def digest(self) -> str:
        """blake2b-128 over the little-endian bytes of all parameters, hexadecimal."""
        return digest(self.by_name())


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """blake2b-128 over names and little-endian bytes of `arrays`, hexadecimal."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        state.update(name.encode())
        state.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return state.hexdigest()


def write_weights(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write weights as HDF5, whole or not at all, with `about` (plain values) as JSON."""
    with written_aside(path, overwrite=True) as aside, h5py.File(aside, "w") as file:
        file.attrs["format"] = WEIGHTS_FORMAT
        file.attrs["format_version"] = WEIGHTS_VERSION
        file.attrs["creator"] = f"leapmpi {__version__}"
        file.attrs["about"] = json.dumps(about)
        file.attrs["order"] = json.dumps(list(arrays))
        file.attrs["digest"] = digest(arrays)
        for name, array in arrays.items():
            file[f"parameters/{name}"] = array


def read_weights(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Weights and what was said about them. Raises DataError when the file is missing, foreign or damaged."""
    if not path.is_file():
        raise DataError(f"{path}: no such weights file; was the run finished?")
    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("format") != WEIGHTS_FORMAT:
                raise DataError(f"{path}: not a file of leapmpi weights")
            if file.attrs["format_version"] != WEIGHTS_VERSION:
                raise DataError(
                    f"{path}: weights format {file.attrs['format_version']} is unknown to leapmpi {__version__}; "
                    "use the leapmpi that wrote it"
                )
            arrays = {name: file["parameters"][name][()] for name in json.loads(file.attrs["order"])}
            about, expected = json.loads(file.attrs["about"]), file.attrs["digest"]
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as leapmpi weights ({error}); it may be damaged") from None
    if digest(arrays) != expected:
        raise DataError(f"{path}: the parameters do not match their digest; the file is damaged")
    return arrays, about
