"""A block that was drawn on a device: the host gets copies of its arrays when it reads them, which is seldom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.nn.tensors import BlockTensors, EdgeWeights
from leapmpi.sampling.block import Block

if TYPE_CHECKING:
    from torch import Tensor


class _Copied:
    """A field of a block: what `find` names on the device, copied to the host when it is first read."""

    def __init__(self, find: Callable[[BlockTensors], Tensor | None]) -> None:
        self._find = find

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, block: DeviceBlock | None, owner: type) -> Any:
        if block is None:
            return self
        found = self._find(block.tensors)
        array = vars(block)[self._name] = None if found is None else found.cpu().numpy()
        return array


def _carried(name: str) -> _Copied:
    def find(tensors: BlockTensors) -> Tensor | None:
        weights: EdgeWeights | None = tensors.weights
        return None if weights is None else getattr(weights, name)

    return _Copied(find)


class DeviceBlock(Block):
    """A Block with `src` on the host, and the other arrays on the device, in `tensors`.

    A copy with other arrays (dataclasses.replace) is the host's alone.
    """

    indptr: Any = _Copied(lambda tensors: tensors.edges.indptr)
    indices: Any = _Copied(lambda tensors: tensors.edges.indices.int())
    src_original: Any = _Copied(lambda tensors: tensors.known_original)
    src_degree: Any = _Copied(lambda tensors: tensors.known_degree)
    weight: Any = _Copied(lambda tensors: tensors.weight)
    edge_numbers: Any = _Copied(lambda tensors: tensors.edge_numbers)
    edge_weight: Any = _carried("edges")
    drawn_weight: Any = _carried("drawn")
    src_weight_sum: Any = _carried("src_sum")

    def __init__(self, *arrays: Any, **fields: Any) -> None:
        super().__init__(*arrays, **fields | {"tensors": None})

    @classmethod
    def of(cls, src: np.ndarray, tensors: BlockTensors) -> DeviceBlock:
        """The block of `tensors`, whose sources are `src` int64[n_src]."""
        block = object.__new__(cls)
        vars(block).update(hop=tensors.hop, n_dst=tensors.n_dst, src=src, tensors=tensors)
        return block

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        copied = vars(self).get("indices")
        return len(self.tensors.edges.indices if copied is None else copied)
