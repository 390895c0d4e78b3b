"""A block that was drawn on a device: the host gets copies of its arrays when it reads them, which is seldom."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import LateBlock


class DeviceBlock(LateBlock):
    """A Block with `src` on the host, and the other arrays on the device, in `tensors`.

    A copy with other arrays (dataclasses.replace) is the host's alone.
    """

    tensors: BlockTensors

    def __init__(self, *arrays: Any, **fields: Any) -> None:
        super().__init__(*arrays, **fields | {"tensors": None})

    @classmethod
    def of(cls, src: np.ndarray, tensors: BlockTensors) -> DeviceBlock:
        """The block of `tensors`, whose sources are `src` int64[n_src]."""
        edges, weights = tensors.edges, tensors.weights
        there = {
            "indptr": edges.indptr,
            "src_original": tensors.known_original,
            "src_degree": tensors.known_degree,
            "weight": tensors.weight,
            "edge_numbers": tensors.edge_numbers,
        }
        if weights is not None:
            there |= {"edge_weight": weights.edges, "drawn_weight": weights.drawn, "src_weight_sum": weights.src_sum}
        late = {name: partial(_on_host, each) for name, each in there.items() if each is not None}
        late["indices"] = partial(_narrow, edges.indices)
        return cls.made_of(late, hop=tensors.hop, n_dst=tensors.n_dst, src=src, tensors=tensors)

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        copied = vars(self).get("indices")
        return len(self.tensors.edges.indices if copied is None else copied)


def _on_host(array: Tensor) -> np.ndarray:
    return array.cpu().numpy()


def _narrow(indices: Tensor) -> np.ndarray:
    """Indices are 64 bits wide on the device, and 32 here."""
    return _on_host(indices.int())
