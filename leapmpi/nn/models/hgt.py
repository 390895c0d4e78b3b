"""Heterogeneous graph transformer. Hu, Dong, Wang and Sun, "Heterogeneous graph transformer" (WWW 2020), section 3.

    k_u = K_type(u) h_u;   m_u = V_type(u) h_u;   q_v = Q_type(v) h_v;
    score_uv = <k_u A_r, q_v> mu_r / sqrt(D);   a_v = sum_u alpha_uv m_u M_r;
    h'_v = g Out_type(v) gelu(a_v) + (1 - g) h_v;   g = sigmoid(skip_type(v))

Equations 3 to 6, each head by its D columns; products with matrices of types have a bias. alpha is the softmax of
scores over all in-neighbours of v. The row h_v of the skip is that which the layer reads, after norm and dropout. A
product follows the last layer. A destination without in-neighbours has a_v = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.aggregate import totals
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gemm import place_product, product, sum_of_outer
from leapmpi.nn.head import Head
from leapmpi.nn.layer_forms import LayerTraits, ShareForm
from leapmpi.nn.model import Model, hidden_layers
from leapmpi.nn.models.gat import check_heads
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import attention
from leapmpi.nn.tensors import BlockTensors, PartialBlock
from leapmpi.nn.typed.relation_attention import ReadEdges, block_diagonal
from leapmpi.nn.typed.relation_products import own_rows, relation_messages, relation_scores
from leapmpi.nn.typed.relation_sums import by_kind
from leapmpi.nn.typed.typed_layer import TypedLayer
from leapmpi.nn.typed_schema import TypedSchema, place_table

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for hgt."""

    heads: int = setting(4, "attention heads, which divide --hidden", least=1)


class HGTLayer(TypedLayer, traits=LayerTraits()):
    """Attention whose keys, values and queries depend on types, and whose scores and messages on relations."""

    linear = False
    Options = Options
    source_of: Tensor
    """int64[R']: the place of the type at which each relation begins, among those of sources."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        assert in_dim == out_dim, "rows of all layers are as wide as hidden ones"
        # The skip takes the place of a residual.
        self.residual, self.heads = None, self.options.heads
        sources, ends = len(self.types.sources), len(self.types.destinations)
        relations, width = len(self.types.relations), out_dim // self.heads
        self.key, self.value = (nn.Parameter(torch.empty(sources, out_dim, in_dim)) for _ in range(2))
        self.query, self.output = (nn.Parameter(torch.empty(ends, out_dim, in_dim)) for _ in range(2))
        self.attend, self.message = (nn.Parameter(torch.empty(relations, self.heads, width, width)) for _ in range(2))
        of_types, of_relations = ("key", "value", "query", "output"), ("attend", "message")
        self.fans = dict.fromkeys(of_types, (in_dim, out_dim)) | dict.fromkeys(of_relations, (width, width))
        # Of keys and values, side by side; that of the output is `bias`.
        self.source_bias = nn.Parameter(torch.zeros(sources, 2 * out_dim))
        self.query_bias = nn.Parameter(torch.zeros(ends, out_dim))
        self.prior = nn.Parameter(torch.ones(relations, self.heads))
        self.skip = nn.Parameter(torch.ones(ends))
        places = place_table(self.types.sources, len(schema.names))
        begins = torch.from_numpy(schema.graph.ends[self.types.relations, 0])
        self.register_buffer("source_of", places[begins], persistent=False)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the output of the layer from rows after prefix: float[n_dst, out]."""
        read, z = ReadEdges.of(block, self.place_of), dense(z)
        (own, z), names = own_rows(z, torch.arange(block.n_dst, device=z.device)), block.dst_original
        score, z = self.scores(read, z, self.queries(own, names))
        share = read.softmax_across(score)
        return self.updated(own, self.messages(read, z, share), self.places_of(names))

    @property
    def shares(self) -> ShareForm:
        """Means by the softmax over an owner's edges and the logarithms of its sums.

        Destinations send their queries first. A self part is the place of the destination's type, and its row.
        """
        heads = self.heads
        return ShareForm(
            attention(heads, True), heads + self.out_dim, self.partial,
            lambda sampled, rows: (rows[len(sampled) :], rows[: len(sampled), heads:]),
            sent_width=self.out_dim, project_sent=lambda rows, names: self.queries(dense(rows), names),
        )  # fmt: skip

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the share of this rank's rows in the attention of each destination; then self parts of local ones."""
        assert block.sent is not None, "the exchange mode has brought the queries of destinations"
        z, (local, rows) = dense(self.prefix(x, block.src_original, key)), block.local
        (own, z), names = own_rows(z, rows), block.src_original[rows]
        read, query = ReadEdges.of(block, self.place_of), block.sent.index_copy(0, local, self.queries(own, names))
        score, z = self.scores(read, z, query)
        share, logs = read.share_across(score)
        places = self.places_of(names).to(z.dtype).unsqueeze(1).expand(-1, self.heads)
        return torch.cat([torch.cat([logs, self.messages(read, z, share)], 1), torch.cat([places, own], 1)])

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Return the output of `aggregate`, or compute it from combined shares and self parts."""
        if own is None:
            return neighbours
        return self.updated(own[:, self.heads :], neighbours, own[:, 0].long())

    def queries(self, z: Tensor, original: Tensor) -> Tensor:
        """Compute the queries of destinations with rows `z` and `original` ids: float[rows, out]."""
        return by_type(z, self.query, self.query_bias, self.places_of(original))

    def scores(self, read: ReadEdges, z: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scores float[edges, heads] of source rows `z` for destinations with `query`, float[n_dst, out].

        Returns `z` for its other readers, too.
        """
        # <K h_u + b, A q_v> is <h_u, K^T A q_v> and a term of the group: no source needs a key.
        factor = self.prior / math.sqrt(self.out_dim // self.heads)
        attend = self.attend * factor[..., None, None]
        key, bias = self.of_sources(self.key), self.of_sources(self.source_bias[:, : self.out_dim])
        of_bias = torch.einsum("rhi,rhio->rho", bias, attend)
        terms = read.terms(query, block_diagonal(of_bias.unsqueeze(2)))
        score, z = relation_scores(read, z, query, key.transpose(2, 3) @ attend)
        return score + terms, z

    def messages(self, read: ReadEdges, z: Tensor, share: Tensor) -> Tensor:
        """Sum rows by `share` (float[edges, heads]), and multiply the sums by their relation: float[n_dst, out]."""
        value, bias = self.of_sources(self.value), self.of_sources(self.source_bias[:, self.out_dim :])
        message = self.message.transpose(2, 3)
        found = relation_messages(read, z, share, message @ value)

        # The bias of values counts as often as the shares of its relation add up to.
        table = share.new_zeros(len(found) * len(message), self.heads)
        table = table.index_copy(0, read.cells(len(message)), totals(read.groups.edges, share))
        of_bias = block_diagonal(torch.einsum("rhoi,rhi->rho", message, bias).unsqueeze(2)).flatten(0, 1)
        return found + product(table.view(len(found), len(of_bias)), of_bias.t())

    def of_sources(self, parameter: Tensor) -> Tensor:
        """Return a parameter of source types, float[types, out, ...], by relation and head: [relations, heads, ...]."""
        return parameter.index_select(0, self.source_of).unflatten(1, (self.heads, -1))

    def updated(self, own: Tensor, messages: Tensor, places: Tensor) -> Tensor:
        """Update rows `own` of destinations by their `messages`, float[n_dst, out] each; `places` of their types."""
        found = by_type(F.gelu(messages), self.output, self.bias, places)
        gate = self.skip.sigmoid().index_select(0, places).unsqueeze(1)
        return gate * found + (1 - gate) * own


class _ByType(Function):
    """Products of rows in their places; `order` int64[m] are the rows of all types, in turn as `bounds` says."""

    @staticmethod
    def forward(ctx, x, weights, order, bounds) -> Tensor:
        x = x.contiguous()
        fills = x.new_empty if len(order) == len(x) else x.new_zeros
        out = fills((len(x), weights.shape[1]))
        for weight, rows in zip(weights, _rows_of_types(order, bounds), strict=True):
            place_product(out, rows, x, weight, rows)
        ctx.save_for_backward(x, weights, order)
        ctx.bounds = bounds
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, weights, order), grad = ctx.saved_tensors, grad.contiguous()
        of_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        of_weights = torch.zeros_like(weights) if ctx.needs_input_grad[1] else None
        for number, rows in enumerate(_rows_of_types(order, ctx.bounds)):
            if of_weights is not None:
                of_weights[number] = sum_of_outer(grad.index_select(0, rows), x, rows)
            if of_x is not None:
                place_product(of_x, rows, grad, weights[number].t(), rows)
        return of_x, of_weights, None, None


def _rows_of_types(order: Tensor, bounds: Sequence[int]) -> list[Tensor]:
    """Return the rows of each type, of all in turn."""
    return [order[first:end] for first, end in pairwise(bounds)]


def by_type(x: Tensor, weights: Tensor, bias: Tensor, places: Tensor) -> Tensor:
    """Multiply rows by the matrix of their type, and add its bias: float[n, out]; 0 for types without a place.

    x: float[n, in]; weights: float[types, out, in]; bias: float[types, out]; places: int64[n], -1 for none.
    """
    order, bounds = by_kind(places, len(weights))
    found = _ByType.apply(x, weights, order[bounds[1] :], [each - bounds[1] for each in bounds[1:]])
    return found + F.pad(bias, (0, 0, 1, 0)).index_select(0, places + 1)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build an HGT of `layers` layers; `in_dim` is the width of the input layer, that of hidden rows.

    Raises ConfigError when the heads do not divide the hidden width.
    """
    check_heads(config, layers, Options)
    found = hidden_layers(partial(HGTLayer, schema=schema), config, layers, in_dim)
    return Model(found, Head(config, layers, out_dim))


MEMBER = ModelMember(build, Options, typed=True, reads=("hidden",), has=("residual",))
