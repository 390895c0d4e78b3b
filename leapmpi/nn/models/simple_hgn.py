"""Simple-HGN. Lv et al., "Are we really making much progress? Revisiting, benchmarking, and refining heterogeneous
graph neural networks" (KDD 2021), section 5, without its residual of attention.

    score_uv = LeakyReLU_0.2( a_source . W h_u + a_target . W h_v + a_edge . W_edge r_relation(uv) )
    h'_v = ELU( sum_u alpha W h_u + residual h_v + b )

alpha is the softmax over all in-neighbours of v and v itself, each head by its columns. A learned row r of 64 columns
stands for each relation, and one more for the edge of a vertex to itself. The first layer has no residual. The last one
averages heads, and divides rows by their length. The residual of attention (equation 8) would read scores that the same
edge has in the layer below; samples differ from layer to layer, so beta is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.aggregate import edge_softmax, edges_of_their_own, rows_by_edge, weighted_sum
from leapmpi.nn.dropout import DropoutKey, drop_edges, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Projection
from leapmpi.nn.layer_forms import LayerTraits, RowForm
from leapmpi.nn.model import Model, stack
from leapmpi.nn.models.gat import SLOPE, check_heads, reweighted
from leapmpi.nn.models.gat import Options as GATOptions
from leapmpi.nn.relation_attention import relation_of, without_pruned
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed_layer import TypedLayer
from leapmpi.nn.typed_schema import TypedSchema, places_among

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

EDGE_WIDTH = 64
"""Columns of the learned row of a relation, as in the authors' runs."""


@dataclass(frozen=True)
class Options(GATOptions):
    unit_rows: bool = setting(True, "divide output rows by their length; say false to predict numbers")


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
        places = places_among(self.types.relations, len(schema.graph.relations))
        self.register_buffer("relation_places", places, persistent=False)

    @property
    def rows(self) -> RowForm:
        """Projected rows, all heads side by side, in the last layer too."""
        return RowForm(self.attend_source.numel(), self.project, self.aggregate)

    def project(self, x: Rows) -> Tensor:
        return self.neighbour(x)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Apply the attention of destinations to their in-neighbours and themselves: float[n_dst, heads x width]."""
        z, names = dense(z), block.known_original
        block = without_pruned(block, self.place_of)
        edges, places = block.edges_with_self, self.relation_places[relation_of(block)]
        each = torch.eye(self.heads, dtype=z.dtype, device=z.device).unsqueeze(2)
        source = product(z, (each * self.attend_source).flatten(1))
        target = product(z[: block.n_dst], (each * self.attend_target).flatten(1))

        # One number for each relation and head, as edges read it.
        of_relation = torch.einsum("hge,re,hg->rh", self.edge, self.relation, self.attend_edge)
        of_self = of_relation[-1].expand(block.n_dst, self.heads)
        added = block.values_with_self(of_self, of_relation.index_select(0, places))
        share = edge_softmax(edges_of_their_own(edges), rows_by_edge(edges, source) + added, target, SLOPE)
        if block.weight is not None:
            share = reweighted(share, block)
        if key is not None and self.attention_dropout:
            numbers = block.values_with_self(places.new_full((block.n_dst,), len(of_relation) - 1), places)
            ends = names[edges.indices.long()], names[edges.numbers]
            share = drop_edges(
                share, *ends, with_seed(key, self.seed), self.number, self.attention_dropout, numbers
            )  # fmt: skip
        return weighted_sum(edges, z, share)

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


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build a Simple-HGN of `layers` layers; `in_dim` is the width of the input layer.

    Raises ConfigError when the heads do not divide the hidden width.
    """
    check_heads(config, layers - 1, Options)
    return stack(partial(SimpleHGNLayer, schema=schema), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, typed=True, reads=("hidden",), has=("residual",))
