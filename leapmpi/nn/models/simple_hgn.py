"""Simple-HGN. Lv et al., "Are we really making much progress? Revisiting, benchmarking, and refining heterogeneous
graph neural networks" (KDD 2021), section 5.

    score_uv = LeakyReLU_0.2( a_source . W h_u + a_target . W h_v + a_edge . W_edge r_relation(uv) )
    alpha_uv = (1 - beta) softmax(score)_uv + beta alpha_uv of the layer below
    h'_v = ELU( sum_u alpha W h_u + residual h_v + b )

The softmax is over all in-neighbours of v and v itself, each head by its columns. A learned row r of 64 columns
stands for each relation, and one more for the edge of a vertex to itself. The first layer has no residual. The last one
averages heads, and divides rows by their length.

The residual of attention (equation 8) follows the authors' code. The attention of the layer below is mixed already,
passes no gradient, and has its dropout: a softmax is dropped out before it is mixed. The edge of a vertex to itself is
mixed too. The first layer mixes nothing. The last layer mixes as all others do, since it has as many heads. That of
the authors has one head for classes of vertices, and does not mix. Samples differ from layer to layer, so beta > 0 is
for full batches whose owners hold whole lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.nn.aggregate import rows_by_edge, softmax_of, softmax_share, weighted_sum
from leapmpi.nn.dropout import DropoutKey, drop_edges, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Projection
from leapmpi.nn.layer_forms import LayerTraits, RowForm, ShareForm
from leapmpi.nn.model import Model, stack
from leapmpi.nn.models.gat import SLOPE, check_heads
from leapmpi.nn.models.gat import Options as GATOptions
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import attention
from leapmpi.nn.tensors import BlockTensors, PartialBlock
from leapmpi.nn.typed.relation_attention import relation_of, without_pruned
from leapmpi.nn.typed.typed_layer import TypedLayer
from leapmpi.nn.typed_schema import TypedSchema, place_table

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

EDGE_WIDTH = 64
"""Columns of the learned row of a relation, as in the authors' runs."""


@dataclass(frozen=True)
class Options(GATOptions):
    """Settings of `--model-option` for simple-hgn."""

    unit_rows: bool = setting(True, "divide output rows by their length; say false to predict numbers")
    beta: float = setting(
        0.0, "share of the attention of the layer below in that of an edge; with --strategy depcomm", least=0, below=1
    )


class SimpleHGNLayer(TypedLayer, traits=LayerTraits()):
    """Attention of one matrix for all types, whose scores have a term for the relation of an edge."""

    linear = False
    Options = Options
    relation_places: Tensor
    """int64[R]: the place of each relation of the schema among those of the layer, or -1."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        self.heads, self.attention_dropout = self.options.heads, self.options.attention_dropout
        self.carries = self.options.beta > 0
        width = out_dim if last else out_dim // self.heads
        if number > 1:
            self.residual = nn.Identity() if in_dim == out_dim else Projection(in_dim, out_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.neighbour = Projection(in_dim, self.heads * width, fans=(in_dim, width))
        self.attend_source, self.attend_target = (nn.Parameter(torch.empty(self.heads, width)) for _ in range(2))
        # One row more, for edges of vertices to themselves.
        self.relation = nn.Parameter(torch.empty(len(self.types.relations) + 1, EDGE_WIDTH))
        self.edge = nn.Parameter(torch.empty(self.heads, EDGE_WIDTH, EDGE_WIDTH))
        self.attend_edge = nn.Parameter(torch.empty(self.heads, EDGE_WIDTH))
        self.fans = {
            "attend_source": (width, 1),
            "attend_target": (width, 1),
            "relation": (EDGE_WIDTH, EDGE_WIDTH),
            "edge": (EDGE_WIDTH, EDGE_WIDTH),
            "attend_edge": (EDGE_WIDTH, 1),
        }
        places = place_table(self.types.relations, len(schema.graph.relations))
        self.register_buffer("relation_places", places, persistent=False)

    @property
    def rows(self) -> RowForm:
        """Projected rows, all heads side by side, in the last layer too."""
        return RowForm(self.attend_source.numel(), self.project, self.aggregate)

    def project(self, x: Rows) -> Tensor:
        return self.neighbour(x)

    @property
    def shares(self) -> ShareForm | None:
        """Means by the softmax over an owner's edges and the logarithms of its sums; destinations send scores first.

        None with beta, which reads the whole attention of a destination.
        """
        if self.carries:
            return None
        heads, width = self.heads, self.rows.source_width
        return ShareForm(
            attention(heads), heads + width, self.partial, lambda _, rows: (None, rows[:, heads:]),
            sent_width=heads, project_sent=lambda rows, _: self.targets(self.project(rows)),
        )  # fmt: skip

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Apply the attention of destinations to their in-neighbours and themselves: float[n_dst, heads x width]."""
        z, read = dense(z), without_pruned(block, self.place_of)
        share = softmax_of(read.edges_with_self, self.scores(read, z, self.targets(z[: block.n_dst])))
        share = self.dropped(read, share, block.known_original, key)
        return weighted_sum(read.edges_with_self, z, self.mixed(block, read, share) if self.carries else share)

    def mixed(self, block: BlockTensors, read: BlockTensors, share: Tensor) -> Tensor:
        """Mix the `share` of each edge of `read`, float[edges_with_self, heads], with that in the layer below.

        `block` has the edges that the layer does not read too. The result is left for the layer above. Raises
        ConfigError where layers are not linked.
        """
        carried, beta = block.attention, self.options.beta
        if carried is None:
            raise ConfigError(f"model.options: beta={beta:g} reads all edges in every layer; train by depcomm")
        edges = len(block.edges_with_self.indices)
        below, places = carried.take(edges), None
        if read is not block:
            known = torch.isin(relation_of(block), torch.tensor(list(self.place_of), device=share.device))
            places = block.values_with_self(known.new_ones(block.n_dst), known).nonzero().squeeze(1)
        if below is not None:
            share = (1 - beta) * share + beta * (below if places is None else below[places])
        carried.leave(share if places is None else share.new_zeros(edges, self.heads).index_copy_(0, places, share))
        return share

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the share of this rank's rows in the attention of each destination, float[n_dst, heads + width]."""
        assert block.sent is not None, "the exchange mode has brought the scores of destinations"
        z, (local, own) = self.project(self.prefix(x, block.src_original, key)), block.local
        read = without_pruned(block, self.place_of)
        score = self.scores(read, z, block.sent.index_copy(0, local, self.targets(z.index_select(0, own))))
        share, logs = softmax_share(read.edges_with_self, score)
        share = self.dropped(read, share, block.src_original, key)
        return torch.cat([logs, weighted_sum(read.edges_with_self, z, share)], dim=1)

    def targets(self, z: Tensor) -> Tensor:
        """Compute the terms of destinations in scores from projected rows: float[rows, heads]."""
        return _by_head(z, self.attend_target)

    def scores(self, block: BlockTensors | PartialBlock, z: Tensor, target: Tensor) -> Tensor:
        """Compute scores of `edges_with_self` of `block`, float[edges, heads], by the sources' projected rows `z`.

        target: `targets` of the destinations.
        """
        # One number for each relation and head, as edges read it.
        of_relation = torch.einsum("hge,re,hg->rh", self.edge, self.relation, self.attend_edge)
        edges, selves = block.edges_with_self, self._selves(block)
        of_edges = block.values_with_self(
            of_relation[-1].expand(selves, self.heads),
            of_relation.index_select(0, self.relation_places[relation_of(block)]),
        )
        source = rows_by_edge(edges, _by_head(z, self.attend_source))
        of_targets = target.repeat_interleave(edges.counts, dim=0, output_size=len(source))
        score = F.leaky_relu(source + of_targets + of_edges, SLOPE)
        if block.weight is None:
            return score
        # The destination itself counts once.
        weight = block.values_with_self(block.weight.new_ones(selves), block.weight)
        return score + weight.to(score.dtype).log().unsqueeze(1)

    def dropped(
        self, block: BlockTensors | PartialBlock, share: Tensor, sources: Tensor, key: DropoutKey | None
    ) -> Tensor:
        """Apply dropout to `share` (float[edges_with_self, heads]); `sources` int64[n_src] are original ids."""
        if key is None or not self.attention_dropout:
            return share
        assert block.dst_original is not None, "masks read them"
        places, edges = self.relation_places[relation_of(block)], block.edges_with_self
        numbers = block.values_with_self(places.new_full((self._selves(block),), len(self.relation) - 1), places)
        ends = sources[edges.indices.long()], block.dst_original[edges.numbers]
        key, rate = with_seed(key, self.seed), self.attention_dropout
        return drop_edges(share, *ends, key, self.number, rate, numbers)

    def _selves(self, block: BlockTensors | PartialBlock) -> int:
        """Count the destinations of `block` that have an edge to themselves there."""
        return len(block.edges_with_self.indices) - len(block.edges.indices)

    def biased(self, h: Tensor) -> Tensor:
        return h + self.bias

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Add the residual before the activation; average heads in the last layer."""
        h = neighbours.unflatten(1, (self.heads, -1)).mean(1) if self.last else neighbours
        h = self.biased(h if self.residual is None else h + dense(self.residual(x_dst)))
        if self.last:
            return F.normalize(h) if self.options.unit_rows else h
        return self.activation(h)

    def activation(self, h: Tensor) -> Tensor:
        return F.elu(h)


def _by_head(z: Tensor, weight: Tensor) -> Tensor:
    """Multiply each head of rows `z`, float[rows, heads x width], by its `weight`, float[heads, width]."""
    each = torch.eye(len(weight), dtype=z.dtype, device=z.device).unsqueeze(2)
    return product(z, (each * weight).flatten(1))


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build a Simple-HGN of `layers` layers; `in_dim` is the width of the input layer.

    Raises ConfigError when the heads do not divide the hidden width, or a layer lacks edges that beta would mix.
    """
    check_heads(config, layers - 1, Options)
    model = stack(partial(SimpleHGNLayer, schema=schema), config, layers, in_dim, out_dim)
    for below, layer in pairwise(schema.layers):
        if model.layers[0].carries and not set(layer.relations) <= set(below.relations):
            raise ConfigError(
                "model.options: beta mixes the attention of an edge in two layers, and --relation-fanout leaves a "
                "relation out of the lower one alone; leave it out of all hops, or leave beta out"
            )
    return model


MEMBER = ModelMember(build, Options, typed=True, reads=("hidden",), has=("residual",))
