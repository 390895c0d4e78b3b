"""Weights of versions whose models had a bias before each batch normalisation, brought to models without them.

Such a bias moves the mean of a batch, and the running mean with it, and changes no output. Without it the running mean
is less by as much, so that evaluation gives the same scores. `gin` and `deepgcn` had them inside their MLPs, `deepgcn`
also in the outputs of its layers, which add up from layer to layer. `embedding` had a bias of no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.nn.layer import Layer

if TYPE_CHECKING:
    from leapmpi.nn.model import Model

_MEAN = ".running_mean"


def without_idle_biases(model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return `arrays` by name without the idle biases, which the running means among them take over.

    Arrays without running means, such as an optimizer's moments, lose the biases alone. Other arrays stay as they are.
    """
    of_mlps, of_layers = _idle(model)
    arrays = {name: array for name, array in arrays.items() if name not in of_layers or array.size}
    dropped = {name for name, shape in (of_mlps | of_layers).items() if name in arrays and arrays[name].shape == shape}
    found = {name: array for name, array in arrays.items() if name not in dropped}
    for name in dropped & of_mlps.keys():
        mean = _norm_of(name) + _MEAN
        if mean in found:
            found[mean] = found[mean] - arrays[name]
    if dropped & of_layers.keys():
        _lower_sums(model, arrays, dropped, found)
    return found


def _idle(model: Model) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return names and shapes of biases that `model` would have before batch norms: of MLPs, and of layers."""
    means = {name: tuple(each.shape) for name, each in model.statistics().items() if name.endswith(_MEAN)}
    of_mlps = {name.removesuffix(_MEAN).replace(".norms.", ".biases."): shape for name, shape in means.items()
               if ".mlp.norms." in name}  # fmt: skip
    layers = ((name, each) for name, each in model.named_modules() if isinstance(each, Layer))
    return of_mlps, {
        f"{name}.bias": (each.out_dim,) for name, each in layers if "bias" not in dict(each.named_parameters())
    }


def _norm_of(bias: str) -> str:
    """Return the name of the normalisation that follows the bias of an MLP."""
    return bias.replace(".biases.", ".norms.")


def _lower_sums(
    model: Model, arrays: Mapping[str, np.ndarray], dropped: set[str], found: dict[str, np.ndarray]
) -> None:
    """Take from the running means in `found` the dropped biases of all layers before them, and of all from the head."""
    width = model.layers[0].out_dim
    names = (f"layers.{number}.bias" for number in range(len(model.layers)))
    sums = list(accumulate(arrays[name] if name in dropped else np.zeros(width) for name in names))
    shifts = {f"layers.{number}.norm{_MEAN}": each for number, each in enumerate(sums, start=1)}
    of_head = f"head.norm{_MEAN}"
    if of_head in found:
        # Rows of all layers side by side, or one row as wide as a layer.
        shifts[of_head] = np.concatenate(sums) if len(found[of_head]) == len(sums) * width else sums[-1]
    for name in shifts.keys() & found.keys():
        if found[name].shape == shifts[name].shape:
            found[name] = (found[name] - shifts[name]).astype(found[name].dtype)
