"""Graph convolution with symmetric normalisation. Kipf and Welling (ICLR 2017), equation 2.

Degrees are those of the whole graph, and a sampled sum is scaled up by degree / sampled count: it estimates the
sum over all neighbours without bias, and equals it when all are taken. The self-loop is an edge of its own.

Weights of edges stand in A, so that degrees are sums of weights, still of the whole graph; the self-loop weighs 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leapmpi.config.options import ModelMember
from leapmpi.nn.kernels import csr_torch
from leapmpi.nn.layer import Projection
from leapmpi.nn.layer_forms import LayerTraits
from leapmpi.nn.model import Model, stack
from leapmpi.nn.sum_layer import ShareTerms, SumLayer
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


def symmetric_weight(block: BlockTensors, dtype: torch.dtype) -> Tensor:
    """Weigh edges_with_self: (deg v / sampled v) / sqrt((deg v + 1)(deg u + 1)) for u -> v, 1 / (deg v + 1) for v.

    With weights of edges, deg under the root is their sum, and the numerator is multiplied by the edge's.
    """
    degree = block.src_degree if block.weights is None else block.weights.src_sum
    # Whole numbers are added before they are rounded.
    root = torch.add(degree, 1, out=degree.new_empty(len(degree), dtype=dtype)).rsqrt_()
    kernels = csr_torch.edge_kernels(root.device)
    if kernels and block.weights is None:
        return kernels.symmetric_weight(block.edges.indptr, block.edges.indices, root, block.dst_degree, block.weight)
    own, counts, edges = root[: block.n_dst], block.edges.counts, len(block.edges.indices)
    in_neighbours = block.plain_share(dtype) * block.dst_degree.repeat_interleave(counts, output_size=edges)
    if block.edge_weight is not None:
        in_neighbours = in_neighbours * block.edge_weight
    others = own.repeat_interleave(counts, output_size=edges) * root[block.edges.indices] * in_neighbours
    return block.values_with_self(own * own, others)


class GCNLayer(SumLayer, traits=LayerTraits(sums_ahead=True, plain_sums=True)):
    """act(D^-1/2 (A + I) D^-1/2 X W + b)."""

    edge_data = ("weight", "edge_weight")

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.neighbour = Projection(in_dim, out_dim)

    def edge_sums(self, block: BlockTensors, dtype: torch.dtype) -> tuple[Edges, Tensor]:
        return block.edges_with_self, symmetric_weight(block, dtype)

    def share_terms(self, block: PartialBlock, dtype: torch.dtype) -> ShareTerms:
        """Return the terms of the normalised sums, and the weight of the destination's own row."""
        root = (block.src_degree + 1 if block.weights is None else block.weights.src_sum + 1).to(dtype).rsqrt()
        degree = block.dst_degree.to(dtype)
        norm = degree if block.weights is None else block.weights.dst_sum.to(dtype)
        target = degree * (norm + 1).rsqrt()
        weight = block.plain_share(dtype) * target.repeat_interleave(block.edges.counts) * root[block.edges.indices]
        if block.edge_weight is not None:
            weight = weight * block.edge_weight
        return ShareTerms(weight, root[block.local[1]].square())


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int) -> Model:
    """Stack the layers of a GCN."""
    return stack(GCNLayer, config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, reads=())
