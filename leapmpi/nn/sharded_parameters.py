"""A ParameterLayout whose first layer is split over the ranks: each holds the weights of its columns of the features.

The weights of a rank get their whole gradient there, so they are neither sent nor reduced; the optimizer's state
follows them. Whole weights are put together for scores, digests and files, which are those of any other strategy.
"""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout


class SplitLayout(ParameterLayout):
    """The state of this rank's share of `whole`, whose first layer reads columns bounds[rank] to bounds[rank + 1].

    `bounds` is int64[ranks + 1]. In the flat state the split weights come first, then those every rank holds.
    """

    def __init__(self, whole: Model, communicator: Communicator, bounds: np.ndarray) -> None:
        share = deepcopy(whole)
        share.layers[0].keep_columns(*(int(bound) for bound in bounds[communicator.rank : communicator.rank + 2]))
        shapes = {name: each.shape for name, each in whole.named_parameters()}
        self.split = [name for name, each in share.named_parameters() if each.shape != shapes[name]]
        super().__init__(share, self.split)
        self.communicator, self.bounds, self._whole = communicator, bounds, whole
        self.split_count = sum(math.prod(self.shapes[name]) for name in self.split)

    @property
    def shared_gradients(self) -> torch.Tensor:
        """Those of the parameters that every rank holds."""
        return self.gradients[self.split_count :]

    @property
    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of the whole model."""
        return {name: tuple(each.shape) for name, each in self._whole.named_parameters()}

    def by_name(self, flat: torch.Tensor | None = None) -> dict[str, np.ndarray]:
        """Split parameters put together, the others as they are here. Collective."""
        held = self._cut(self.values if flat is None else flat)
        return {name: self._joined(held[name]) if name in self.split else held[name] for name in self.whole_shapes}

    def gradient_norm(self) -> float:
        """Squares of the split weights' gradients are added up over ranks, in their order. Collective."""
        split, shared = (
            float(torch.linalg.vector_norm(part)) ** 2 for part in self.gradients.tensor_split([self.split_count])
        )
        return math.sqrt(float(self.communicator.all_gather_rows(np.array([split])).sum()) + shared)

    def whole_model(self) -> Model:
        """The whole model, with the weights of all ranks. Collective."""
        arrays = self.by_name()
        with torch.no_grad():
            for name, parameter in self._whole.named_parameters():
                parameter.copy_(torch.from_numpy(arrays[name]))
        return self._whole

    def _joined(self, part: np.ndarray) -> np.ndarray:
        """The columns of all ranks, side by side, of one weight (out, columns of this rank). Collective."""
        widths = np.diff(self.bounds)
        padded = np.zeros((len(part), int(widths.max())), part.dtype)
        padded[:, : part.shape[1]] = part
        parts = self.communicator.all_gather_rows(padded, "parameters")
        return np.concatenate([each[:, :width] for each, width in zip(parts, widths, strict=True)], axis=1)

    def _held(self, name: str, array: np.ndarray) -> np.ndarray:
        rank = self.communicator.rank
        return array[:, self.bounds[rank] : self.bounds[rank + 1]] if name in self.split else array
