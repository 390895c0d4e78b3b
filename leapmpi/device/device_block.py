"""A block that was drawn on a device: the host gets copies of its arrays when it reads them, which is seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import LateBlock

if TYPE_CHECKING:
    from torch import Tensor


class DeviceBlock(LateBlock):
    """A Block with `src` on the host, and the other arrays on the device, in `tensors`."""

    tensors: BlockTensors

    @classmethod
    def of(cls, src: np.ndarray, tensors: BlockTensors) -> DeviceBlock:
        """The block of `tensors`, whose sources are `src` int64[n_src]."""
        weight = None if tensors.weight is None else tensors.weight.cpu().numpy()
        late = {name: lambda array=array: array(tensors).cpu().numpy() for name, array in _ARRAYS.items()}
        return cls.made_of(late, hop=tensors.hop, n_dst=tensors.n_dst, src=src, weight=weight, tensors=tensors)

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        copied = vars(self).get("indices")
        return len(self.tensors.edges.indices if copied is None else copied)


def _indices(tensors: BlockTensors) -> Tensor:
    return tensors.edges.indices.int()


_ARRAYS = {
    "indptr": lambda tensors: tensors.edges.indptr,
    "indices": _indices,
    "src_original": lambda tensors: tensors.known_original,
    "src_degree": lambda tensors: tensors.known_degree,
}
"""By field of Block, the tensor on the device that has its values."""
