"""Graph attention. Velickovic et al. (ICLR 2018), equations 1-6: the destination attends to itself as well.

Hidden layers put their heads side by side (heads x width = hidden), the last layer averages them.

Features of edges enter the attention, as with PyG's `edge_dim`: an edge's score is a^T [W h_i || W h_j || W_e e_ij].
The edge of a destination to itself has none, a term of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember, parse_options
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.nn.aggregate import (
    edge_softmax,
    edges_of_their_own,
    rows_by_edge,
    softmax_share,
    weighted_sum,
)
from leapmpi.nn.dropout import DropoutKey, drop_attention, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Layer, Projection, source_rows
from leapmpi.nn.layer_forms import LayerTraits, RowForm, ShareForm
from leapmpi.nn.model import Model, stack
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import attention
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

SLOPE = 0.2
"""Of LeakyReLU on negative scores."""


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for gat, and for models whose attention extends it."""

    heads: int = setting(4, "attention heads, which divide --hidden", least=1)
    attention_dropout: float = setting(0.0, "share of attention weights dropped in training", least=0, below=1)


class GATLayer(Layer, traits=LayerTraits(reads_names=False)):
    """act(sum of shares x W h_u), one share per head."""

    linear = False
    Options = Options

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, edge_dim: int = 0
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.heads, self.attention_dropout = self.options.heads, self.options.attention_dropout
        width = out_dim if last else out_dim // self.heads
        self.neighbour = Projection(in_dim, self.heads * width, fans=(in_dim, width))
        self.attend_source = nn.Parameter(torch.empty(self.heads, width))
        self.attend_target = nn.Parameter(torch.empty(self.heads, width))
        fans = {"attend_source": (width, 1), "attend_target": (width, 1)}
        # Attention is a sum of terms of source, destination and edge, so each has a vector of its own.
        self.edge = self.attend_edge = None
        if edge_dim:
            self.edge_data = ("weight", "edge_features")
            self.edge = nn.Parameter(torch.empty(self.heads * width, edge_dim))
            self.attend_edge = nn.Parameter(torch.empty(self.heads, width))
            fans |= {"edge": (edge_dim, width), "attend_edge": (width, 1)}
        self.fans = fans

    @property
    def rows(self) -> RowForm:
        """Projected rows, all heads side by side, in the last layer too."""
        return RowForm(self.attend_source.numel(), self.project, self.aggregate)

    @property
    def shares(self) -> ShareForm | None:
        """Means by the softmax over an owner's edges and the logarithms of its sums; none with features of edges.

        Destinations send first what scores read of them.
        """
        if self.edge is not None:
            return None
        heads, width = self.heads, self.rows.source_width
        return ShareForm(
            attention(heads), heads + width, self.partial, lambda _, rows: (None, rows[:, heads:]),
            sent_width=self.target_width, project_sent=lambda rows, _: self.targets(rows),
        )  # fmt: skip

    @property
    def target_width(self) -> int:
        """Numbers of a destination that scores read."""
        return self.heads

    def project(self, x: Rows) -> Tensor:
        return self.neighbour(x)

    def targets(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """Compute what scores read of destinations, float[k, target_width]; with `rows` (int64[k]) those of x[rows].

        Here these are scores themselves, products with one row of weights for each head.
        """
        weight = self.neighbour.weight.unflatten(0, (self.heads, -1))
        return product(x, torch.einsum("hwf,hw->hf", weight, self.attend_target), rows)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the share of this rank's rows in the attention of each destination, float[n_dst, heads + width]."""
        assert block.sent is not None, "the exchange mode has brought what scores read of destinations"
        rows, (local, own) = self.prefix(x, block.src_original, key), block.local
        target = block.sent.index_copy(0, local, self.targets(rows, own))
        edges, names = block.edges_with_self, (block.edges_with_self, block.src_original)
        if key is not None and self.attention_dropout:
            assert block.dst_original is not None, "the exchange mode has looked them up"
            count = block.n_dst
            # Masks read names of destinations from the front of the list, so those of sources follow them.
            named = Edges(edges.indptr, edges.indices + count, edges.sources + count)
            names = named, torch.cat([block.dst_original, block.src_original])
        weight = block.weight
        if weight is not None:
            weight = block.values_with_self(weight.new_ones(len(local)), weight).to(target.dtype)
        return torch.cat(self.attention_share(edges, source_rows(self, rows), target, names, key, weight), dim=1)

    def scores(self, z: Tensor) -> Tensor:
        """Return scores float[rows, 2 heads]: dot products of a row's slice of `z`, as a source, then as a target.

        Both at once for all rows: a product with a sparse matrix of few columns is cheaper than slicing `z`.
        """
        each = torch.eye(self.heads, dtype=z.dtype, device=z.device).unsqueeze(2)
        return product(z, torch.cat([each * self.attend_source, each * self.attend_target]).flatten(1))

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        edges, z = block.edges_with_self, dense(z)
        source, target = self.scores(z).split(self.heads, dim=1)
        target = target[: block.n_dst]
        if self.edge is None:
            share = edge_softmax(edges, source, target, SLOPE)
        else:
            share = edge_softmax(*self._scores_of_edges(block, source), target, SLOPE)
        if block.weight is not None:
            share = reweighted(share, block)
        rate = self.attention_dropout
        share = drop_attention(share, edges, block.mask_names(key, rate), with_seed(key, self.seed), self.number, rate)
        return weighted_sum(edges, z, share)

    def edge_scores(self, edges: Edges, z: Tensor, target: Tensor) -> Tensor:
        """Compute scores float[edges, heads] of rows `z` for destinations with `target`, float[n_dst, target_width]."""
        source = self.scores(z)[:, : self.heads]
        return F.leaky_relu(rows_by_edge(edges, source) + target.repeat_interleave(edges.counts, dim=0), SLOPE)

    def attention_share(
        self,
        edges: Edges,
        z: Tensor,
        target: Tensor,
        named: tuple[Edges, Tensor],
        key: DropoutKey | None,
        weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the share of some edges, from rows `z`, in the attention of destinations.

        target: as of `edge_scores`. named: the same edges between vertices that have the original ids int64 that
        follow, destinations first. weight: float[edges], those of a sampler, which multiply exponentials. Returns the
        logarithm of the sum of exponentials of scores, float[n_dst, heads], -inf without edges; and the mean by these
        exponentials, float[n_dst, width]. Both are differentiable.
        """
        score = self.edge_scores(edges, z, target)
        if weight is not None:
            # A factor of exponentials is a term of their scores, which does not overflow.
            score = score + weight.log().unsqueeze(1)
        share, logarithm = softmax_share(edges, score)
        rate, number = self.attention_dropout, self.number
        dropped = drop_attention(share, *named, with_seed(key, self.seed), number, rate)
        return logarithm, weighted_sum(edges, z, dropped)

    def _scores_of_edges(self, block: BlockTensors, source: Tensor) -> tuple[Edges, Tensor]:
        """Return edges with a source each, and scores of source and features: float[edges_with_self, heads]."""
        assert self.edge is not None, "the model was built with edge_dim"
        assert self.attend_edge is not None, "the model was built with edge_dim"
        assert block.edge_features is not None, "the exchange mode has fetched them"
        edges = block.edges_with_self

        # A score of an edge's features is a product with W_e^T a; that of its source is copied.
        folded = torch.einsum("hwf,hw->hf", self.edge.unflatten(0, (self.heads, -1)), self.attend_edge)
        of_features = product(block.edge_features.to(source.dtype), folded)
        of_features = block.values_with_self(source.new_zeros(block.n_dst, self.heads), of_features)
        return edges_of_their_own(edges), rows_by_edge(edges, source) + of_features

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Average the heads in the last layer, then as in every layer."""
        if self.last:
            neighbours = neighbours.unflatten(1, (self.heads, -1)).mean(1)
        return super().finish(own, neighbours, x_dst)

    def activation(self, h: Tensor) -> Tensor:
        return F.elu(h)


def reweighted(share: Tensor, block: BlockTensors) -> Tensor:
    """Estimate attention over all in-neighbours from those sampled: float[edges_with_self, heads].

    With p_e the share of edge e among the sampled, it is w_e p_e / sum of w p over the destination's edges: numerator
    and denominator of the softmax are estimated by weighted sums, and the destination itself counts once.
    """
    assert block.weight is not None, "the sampler weights its edges"
    edges = block.edges_with_self
    weight = block.values_with_self(share.new_ones(block.n_dst), block.weight.to(share.dtype))
    share = share * weight.unsqueeze(1)
    total = weighted_sum(edges, share.new_ones(edges.sources, share.shape[1]), share)
    return share / total.repeat_interleave(edges.counts, dim=0)


def check_heads(config: ModelConfig, hidden_layers: int, declared: type = Options) -> None:
    """Raise ConfigError when the heads, one of the options `declared`, do not divide the width of a hidden layer."""
    heads = parse_options(declared, config.options, config.name, "model").heads
    if (hidden_layers or config.jumping != "none") and config.hidden % heads:
        raise ConfigError(f"model.hidden ({config.hidden}) must be a multiple of --model-option heads ({heads})")


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0) -> Model:
    """Build a GAT of `layers` layers, which read `edge_dim` features of edges.

    Raises ConfigError when the heads do not divide the hidden width.
    """
    check_heads(config, layers - 1)
    return stack(partial(GATLayer, edge_dim=edge_dim), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, reads_edge_features=True, reads=())
