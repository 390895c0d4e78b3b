"""A ParameterLayout whose first layer is split over the ranks: each holds the weights of its columns of the features.

A rank computes the whole gradient of the weights it holds, so these are neither sent nor reduced; the optimizer's state
is split like them. Whole weights are gathered for scores, digests and files, which are the same as without the split.
"""

from __future__ import annotations

import math
from copy import deepcopy
from operator import attrgetter

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.nn.layer import Layer, Projection
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout


def input_projections(layer: Layer) -> list[Projection]:
    """List the modules of `layer` that multiply its input rows."""
    if layer.input_weights is None:
        return [each for each in layer.modules() if isinstance(each, Projection)]
    return [each for name in layer.input_weights if isinstance(each := attrgetter(name)(layer), Projection)]


def keep_columns(layer: Layer, first: int, end: int) -> None:
    """Reduce `layer` to columns `first` to `end` (exclusive) of its input, with the weights for them.

    What its parts give is then this share of a sum over all columns. For layers without normalised input.
    """
    for each in input_projections(layer):
        each.weight = torch.nn.Parameter(each.weight.detach()[:, first:end].clone())
    layer.in_dim, layer.first_column = end - first, first


class ShardedParameterLayout(ParameterLayout):
    """The state of this rank's shard of `whole`, whose first layer reads columns bounds[rank] to bounds[rank + 1].

    `bounds` is int64[ranks + 1]. In the flat state the split weights come first, then those that every rank holds.
    """

    def __init__(self, whole: Model, communicator: Communicator, bounds: np.ndarray) -> None:
        # A copy of the model whose first layer has this rank's columns alone.
        shard = deepcopy(whole)
        first, end = bounds[communicator.rank : communicator.rank + 2]
        keep_columns(shard.layers[0], int(first), int(end))

        # Split are the parameters whose shapes are no longer those of the whole.
        shapes = {name: each.shape for name, each in whole.named_parameters()}
        self.split = [name for name, each in shard.named_parameters() if each.shape != shapes[name]]
        super().__init__(shard, self.split)
        self.communicator = communicator
        self.bounds = bounds
        self._whole = whole
        self.split_count = sum(math.prod(self.shapes[name]) for name in self.split)

    @property
    def shared_gradients(self) -> torch.Tensor:
        """The gradients of the parameters that every rank holds: a flat view."""
        return self.gradients[self.split_count :]

    @property
    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(each.shape) for name, each in self._whole.named_parameters()}

    def by_name(self, flat: torch.Tensor | None = None) -> dict[str, np.ndarray]:
        local = self._arrays(flat)
        whole = {name: self._gathered(local[name]) if name in self.split else local[name] for name in self.whole_shapes}
        return whole | (self._statistics() if flat is None else {})

    def gradient_norm(self) -> float:
        """Return the Euclidean norm of all gradients; squares of split ones are summed in rank order. Collective."""
        split = float(torch.linalg.vector_norm(self.gradients[: self.split_count])) ** 2
        shared = float(torch.linalg.vector_norm(self.gradients[self.split_count :])) ** 2
        return math.sqrt(float(self.communicator.all_gather_rows(np.array([split])).sum()) + shared)

    def whole_model(self) -> Model:
        arrays = self.by_name()
        with torch.no_grad():
            for name, held in [*self._whole.named_parameters(), *self._whole.statistics().items()]:
                held.copy_(torch.from_numpy(arrays[name]))
        return self._whole

    def _gathered(self, shard: np.ndarray) -> np.ndarray:
        """Gather the columns of all ranks, side by side, of one weight float[out, columns of this rank]. Collective."""
        # Ranks may hold different numbers of columns, and an all-gather needs equal ones: pad to the widest.
        widths = np.diff(self.bounds)
        padded = np.zeros((len(shard), int(widths.max())), shard.dtype)
        padded[:, : shard.shape[1]] = shard
        parts = self.communicator.all_gather_rows(padded, "parameters")
        return np.concatenate([each[:, :width] for each, width in zip(parts, widths, strict=True)], axis=1)

    def _shard(self, name: str, array: np.ndarray) -> np.ndarray:
        rank = self.communicator.rank
        return array[:, self.bounds[rank] : self.bounds[rank + 1]] if name in self.split else array
