"""A block in the form that PyTorch Geometric's layers read: edges as two rows of numbers, sources first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from leapmpi.nn.tensors import BlockTensors


class BlockGraph:
    """The graph of one block: `n_src` sources; the first `n_dst` are the destinations.

    It unpacks, and is indexed, as (edge_index, e_id, size), like the items of `adjs` in block-wise code: edge_index
    int64[2, edges], e_id None, size (n_src, n_dst).
    """

    def __init__(self, block: BlockTensors, dtype: torch.dtype) -> None:
        self.block, self.dtype = block, dtype
        self.n_src, self.n_dst = block.n_src, block.n_dst
        self.size = (block.n_src, block.n_dst)

    def __iter__(self) -> Iterator[object]:
        return iter((self.edge_index, None, self.size))

    def __getitem__(self, place: int) -> object:
        return (self.edge_index, None, self.size)[place]

    def __len__(self) -> int:
        return 3

    @cached_property
    def edge_index(self) -> Tensor:
        """int64[2, edges]: sources, then destinations, in order of the latter."""
        edges = self.block.edges
        target = torch.arange(self.n_dst, device=edges.indices.device).repeat_interleave(edges.counts)
        return torch.stack((edges.indices.long(), target))

    @cached_property
    def edge_weight(self) -> Tensor | None:
        """float[edges]: the value of a layer's `edge_weight`, weights of the dataset's edges times the sampler's.

        None without any.
        """
        found = [each.to(self.dtype) for each in (self.block.edge_weight, self.block.weight) if each is not None]
        return torch.stack(found).prod(0) if found else None

    @cached_property
    def edge_attr(self) -> Tensor | None:
        """float[edges, width]: the value of a layer's `edge_attr`, features of edges; None without any."""
        rows = self.block.edge_features
        return None if rows is None else rows.to(self.dtype)

    @property
    def src_degree(self) -> Tensor:
        """int64[n_src]: in-degrees in the whole graph."""
        return self.block.src_degree

    def normalised(self, self_loop: float, weighted: bool) -> tuple[Tensor, Tensor]:
        """Normalise symmetrically by degrees in the whole graph: edge_index int64[2, e] and weights float[e].

        With s = `self_loop`, an edge u -> v weighs (deg v / sampled v) / sqrt((deg v + s) (deg u + s)). If s > 0, edges
        of weight s / (deg v + s) from each destination to itself follow. This is Kipf and Welling (ICLR 2017), section
        2, with each sampled edge standing for those not drawn. If `weighted`, edges of the dataset count by their
        weights, and deg is the sum of these.
        """
        block = self.block
        weights = block.weights if weighted else None
        degree = block.src_degree.to(self.dtype)
        norm = (degree if weights is None else weights.src_sum.to(self.dtype)) + self_loop
        root = torch.where(norm > 0, norm.rsqrt(), 0)
        source, target = self.edge_index
        # Each drawn edge stands for as many as its destination did not draw.
        weight = root[source] * root[target] * block.plain_share(self.dtype) * degree[target]
        if weights is not None:
            weight = weight * weights.edges.to(self.dtype)
        if not self_loop:
            return self.edge_index, weight
        own = torch.arange(self.n_dst, device=weight.device)
        edge_index = torch.cat((self.edge_index, torch.stack((own, own))), dim=1)
        return edge_index, torch.cat((weight, self_loop * root[: self.n_dst].square()))
