"""A block that was drawn on a device: the host gets copies of its arrays when it reads them, which is seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import Block

if TYPE_CHECKING:
    from torch import Tensor


class DeviceBlock(Block):
    """A Block with `src` on the host, and the other arrays on the device, in `tensors`."""

    tensors: BlockTensors

    @classmethod
    def of(cls, src: np.ndarray, tensors: BlockTensors) -> DeviceBlock:
        """The block of `tensors`, whose sources are `src` int64[n_src]."""
        block = object.__new__(cls)
        weight = None if tensors.weight is None else tensors.weight.cpu().numpy()
        vars(block).update(hop=tensors.hop, n_dst=tensors.n_dst, src=src, weight=weight, tensors=tensors)
        return block

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        copied = vars(self).get("indices")
        return len(self.tensors.edges.indices if copied is None else copied)

    def __getattr__(self, name: str) -> Any:
        """An array that has not been read yet, copied to the host."""
        # What Python looks for by itself is not here, nor is a field while the object is being made.
        if name not in _ARRAYS or "tensors" not in vars(self):
            raise AttributeError(name)
        array = _ARRAYS[name](self.tensors).cpu().numpy()
        vars(self)[name] = array
        return array


def _indices(tensors: BlockTensors) -> Tensor:
    return tensors.edges.indices.int()


_ARRAYS = {
    "indptr": lambda tensors: tensors.edges.indptr,
    "indices": _indices,
    "src_original": lambda tensors: tensors.known_original,
    "src_degree": lambda tensors: tensors.known_degree,
}
"""By field of Block, the tensor on the device that has its values."""
