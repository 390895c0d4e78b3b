"""Graph attention with dynamic scores. Brody, Alon and Yahav, "How attentive are graph attention
networks?" (ICLR 2022).

The score of an edge is a . LeakyReLU(W_source h_u + W_target h_v), section 3.2, equation 7, with one weight for sources
and one for targets. All else is as in gat: the destination attends to itself, hidden layers put heads side by side,
and the last averages them. Features of edges enter under the LeakyReLU, as W_edge e; the edge of a destination to
itself has none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.nn.aggregate import edges_of_their_own, rows_by_edge, softmax_of, weighted_sum
from leapmpi.nn.dropout import DropoutKey, drop_attention, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Layer, Projection
from leapmpi.nn.layer_forms import LayerTraits, PairForm, RowForm
from leapmpi.nn.messages import pair_scores
from leapmpi.nn.model import Model, stack
from leapmpi.nn.models.gat import SLOPE, GATLayer, Options, check_heads, reweighted
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.tensors import BlockTensors, Edges

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


class GATv2Layer(GATLayer, traits=LayerTraits(reads_names=False)):
    """act(sum of shares x W_source h_u), one share per head."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, edge_dim: int = 0
    ) -> None:
        # Not that of GAT: it has two vectors of attention where this layer has one.
        Layer.__init__(self, config, number, in_dim, out_dim, last)
        self.heads, self.attention_dropout = self.options.heads, self.options.attention_dropout
        width = out_dim if last else out_dim // self.heads
        self.neighbour, self.target = (Projection(in_dim, self.heads * width, fans=(in_dim, width)) for _ in range(2))
        self.attend = nn.Parameter(torch.empty(self.heads, width))
        fans = {"attend": (width, 1)}
        self.edge = None
        if edge_dim:
            self.edge_data = ("weight", "edge_features")
            self.edge = nn.Parameter(torch.empty(self.heads * width, edge_dim))
            fans |= {"edge": (edge_dim, width)}
        self.fans = fans

    @property
    def rows(self) -> RowForm:
        """Projected rows, all heads side by side, as a source and as a target."""
        width = self.attend.numel()
        pair = PairForm(width, width, self.neighbour, self.target, self.join)
        return RowForm(2 * width, self.project, self.aggregate, pair)

    @property
    def target_width(self) -> int:
        return self.attend.numel()

    def project(self, x: Rows) -> Tensor:
        """Compute rows as sources, and as targets: float[rows, 2 heads x width]."""
        return torch.cat([self.neighbour(x), self.target(x)], dim=1)

    def targets(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        return self.target(x, rows)

    def edge_scores(self, edges: Edges, z: Tensor, target: Tensor) -> Tensor:
        return pair_scores(edges, z, target, self.attend, SLOPE)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Attend to rows of `project`; destinations use the second half: float[n_dst, heads x width]."""
        source, target = (each.contiguous() for each in dense(z).chunk(2, dim=1))
        return self.join(block, source, target[: block.n_dst], key)

    def join(self, block: BlockTensors, z: Tensor, own: Tensor, key: DropoutKey | None) -> Tensor:
        """Apply the attention of targets to sources, themselves included."""
        edges = block.edges_with_self
        if self.edge is None:
            score = pair_scores(edges, z, own, self.attend, SLOPE)
        else:
            score = pair_scores(edges_of_their_own(edges), self._with_features(block, z), own, self.attend, SLOPE)
        share = softmax_of(edges, score)
        if block.weight is not None:
            share = reweighted(share, block)
        names, rate = block.mask_names(key, self.attention_dropout), self.attention_dropout
        share = drop_attention(share, edges, names, with_seed(key, self.seed), self.number, rate)
        return weighted_sum(edges, z, share)

    def _with_features(self, block: BlockTensors, z: Tensor) -> Tensor:
        """Add an edge's features to the row of its source: float[edges_with_self, heads x width]."""
        assert self.edge is not None, "the model was built with edge_dim"
        assert block.edge_features is not None, "the exchange mode has fetched them"
        added = product(block.edge_features.to(z.dtype), self.edge)
        return rows_by_edge(block.edges_with_self, z) + block.values_with_self(
            z.new_zeros(block.n_dst, z.shape[1]), added
        )


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0) -> Model:
    """Build a GATv2 of `layers` layers, which read `edge_dim` features of edges.

    Raises ConfigError when the heads do not divide the hidden width.
    """
    check_heads(config, layers - 1)
    return stack(partial(GATv2Layer, edge_dim=edge_dim), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, reads_edge_features=True, reads=())
