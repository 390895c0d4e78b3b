"""GraphSAGE with the mean aggregator. Hamilton, Ying and Leskovec (NeurIPS 2017), algorithm 1, without row scaling."""

from __future__ import annotations

from torch import Tensor

from leapmpi.nn.aggregate import mean
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.layer import Layer
from leapmpi.nn.model import Model, stack
from leapmpi.nn.projection import Projection
from leapmpi.nn.tensors import BlockTensors


class SAGELayer(Layer):
    """act(W_self h_v + W_neighbour mean of h_u + b)."""

    def __init__(self, config, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.own = Projection(in_dim, out_dim)
        self.neighbour = Projection(in_dim, out_dim)

    def project(self, x: Tensor) -> Tensor:
        """float[rows, in] -> float[rows, out]."""
        return self.neighbour(x)

    def aggregate(self, block: BlockTensors, z: Tensor, key: DropoutKey | None) -> Tensor:
        """Mean over the sampled in-neighbours."""
        return mean(block, z)

    def self_part(self, x_dst: Tensor) -> Tensor:
        """float[n_dst, in] -> float[n_dst, out]."""
        return self.own(x_dst)


def build(config, layers: int, in_dim: int, out_dim: int) -> Model:
    """A GraphSAGE of `layers` layers."""
    return stack(SAGELayer, config, layers, in_dim, out_dim)
