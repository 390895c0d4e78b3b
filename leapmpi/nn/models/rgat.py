"""Relational graph attention. Busbridge, Sherburn, Cavallo and Hammerla, "Relational graph attention networks" (2019).

    z^r_u = W_r h_u,   e^r_uv = LeakyReLU_0.2( a^r_source . z^r_u + a^r_target . z^r_v )
    h'_v = act( sum_r sum_u alpha^r_uv z^r_u + b[type(v)] ),  each head by its columns

alpha is the softmax of e over the in-neighbours of v within each relation (sections 2.2 and 2.3, additive), or over
those of all relations. A destination adds no term of its own. As in MLPerf's R-GAT, heads stand side by side, the
activation between layers is LeakyReLU_0.01, and a product follows the last layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.aggregate import repeated
from leapmpi.nn.dropout import DropoutKey, drop_edges, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.head import Head
from leapmpi.nn.layer_forms import LayerTraits, ShareForm
from leapmpi.nn.model import Model, hidden_layers
from leapmpi.nn.models.gat import SLOPE, check_heads
from leapmpi.nn.models.gat import Options as GATOptions
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import NORMALISED, attention
from leapmpi.nn.tensors import BlockTensors, PartialBlock
from leapmpi.nn.typed.relation_attention import ReadEdges
from leapmpi.nn.typed.relation_products import own_rows, relation_messages
from leapmpi.nn.typed.typed_layer import TypedLayer
from leapmpi.nn.typed.whole_rows import products_with_rows

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema

WITHIN, ACROSS = "within", "across"

HIDDEN_SLOPE = 0.01
"""Of LeakyReLU between layers."""


@dataclass(frozen=True)
class Options(GATOptions):
    """Settings of `--model-option` for rgat."""

    softmax: str = setting(
        WITHIN, "in-neighbours over which attention is normalised: of one relation, or of all", choices=(WITHIN, ACROSS)
    )


class RGATLayer(TypedLayer, traits=LayerTraits()):
    """act(sum over relations of shares x W_r h_u), one share per head."""

    linear = False
    Options = Options
    relations_at: Tensor
    """int64[T, slots]: the places of the relations that end at each type, then -1."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        self.heads, self.attention_dropout = self.options.heads, self.options.attention_dropout
        relations, width = len(self.types.relations), out_dim // self.heads
        self.neighbour = nn.Parameter(torch.empty(relations, self.heads, width, in_dim))
        self.attend_source = nn.Parameter(torch.empty(relations, self.heads, width))
        self.attend_target = nn.Parameter(torch.empty(relations, self.heads, width))
        self.fans = {"neighbour": (in_dim, out_dim), "attend_source": (width, 1), "attend_target": (width, 1)}

        # Relations that end at one type have slots of their own among the terms of its vertices.
        ends = self.types.ends.tolist()
        slots = [ends[:place].count(end) for place, end in enumerate(ends)]
        self.slot_of = np.full(len(schema.graph.relations), -1)
        self.slot_of[self.types.relations] = slots
        table = torch.full((len(schema.names), max(slots, default=0) + 1), -1)
        table[ends, slots] = torch.arange(relations)
        self.register_buffer("relations_at", table, persistent=False)

    @property
    def shares(self) -> ShareForm | None:
        """Across relations means by the softmax over an owner's edges, and the logarithms of its sums.

        Destinations then send their rows first, and owners of these give their bias. Within relations destinations send
        their terms of scores, and shares are normalised sums over all relations.
        """
        heads = self.heads
        if self.options.softmax == WITHIN:
            return ShareForm(
                NORMALISED, self.out_dim, self.normalised_sums, sent_width=heads, slot_of=self.slot_of,
                project_sent=self.terms_of, begin=self.begin, log_width=heads,
                reads_own=False, added=self.with_bias, added_by_edges=False,
            )  # fmt: skip
        return ShareForm(
            attention(heads, True), heads + self.out_dim, self.partial,
            lambda sampled, rows: (rows[len(sampled) :, heads:], rows[: len(sampled), heads:]),
            sent_width=self.in_dim, project_sent=lambda rows, _: self.project(rows),
        )  # fmt: skip

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the share of this rank's rows in the attention of each destination; then biases of local ones."""
        assert block.sent is not None, "the exchange mode has brought the rows of destinations"
        z, (local, own) = dense(self.prefix(x, block.src_original, key)), block.local
        read = ReadEdges.of(block, self.place_of)
        target = block.sent.index_copy(0, local, z[own])
        score, z = self.scores(read, z, lambda weights: read.terms(target, weights))
        share, logs = read.share_across(score)
        means = self.means(read, z, self.dropped(read, share, block.src_original, block.dst_original, key))
        bias = self.bias.index_select(0, self.places_of(block.src_original[own]))
        return torch.cat([torch.cat([logs, means], dim=1), F.pad(bias, (self.heads, 0))])

    def terms_of(self, rows: Rows, original: Tensor) -> Tensor:
        """Compute the terms of vertices in scores as destinations: float[rows, slots x heads], 0 where unused."""
        places, (_, of_target) = self.relations_at.index_select(0, self.schema.types_of(original)), self.attending()
        every = product(dense(rows), of_target.flatten(0, 1)).view(-1, *of_target.shape[:2])
        found = torch.gather(every, 1, places.clamp(min=0).unsqueeze(2).expand(-1, -1, self.heads))
        return (found * (places >= 0).unsqueeze(2)).flatten(1)

    def begin(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> tuple[Tensor, ...]:
        """Compute rows after prefix, softmaxes over the edges here, and the logarithms of `ShareForm.begin`."""
        assert block.sent is not None, "the exchange mode has brought the terms of destinations"
        assert block.runs is not None, "the exchange mode has found the softmaxes that are split"
        z, read = dense(self.prefix(x, block.src_original, key)), ReadEdges.of(block, self.place_of)
        groups = read.groups_of(block.runs[0])
        target = repeated(read.groups.edges, torch.empty_like(block.sent).index_copy(0, groups, block.sent))
        share, logs = read.share_within(self.scores(read, z, lambda _: target)[0])
        return z, share, logs.index_select(0, groups.index_select(0, block.runs[1]))

    def normalised_sums(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Add up the terms of these rows in the means of all relations: float[n_dst, out]."""
        assert block.runs is not None, "`begin` was called"
        (z, share, logs, totals), read = block.begun, ReadEdges.of(block, self.place_of)
        part = share.new_ones(len(read.groups.destination), self.heads)
        part = part.index_copy(0, read.groups_of(block.runs[0].index_select(0, block.runs[1])), (logs - totals).exp())
        share = share * repeated(read.groups.edges, part)
        return self.means(read, z, self.dropped(read, share, block.src_original, block.dst_original, key))

    def with_bias(self, block: BlockTensors, h: Tensor) -> Tensor:
        """Add the bias of the type of each destination to `h`, float[n_dst, out]."""
        return h + self.bias.index_select(0, self.places_of(block.dst_original))

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Add up the means of all relations by attention, and the bias of the destination's type: float[n_dst, out]."""
        read, z = ReadEdges.of(block, self.place_of), dense(z)
        own, z = own_rows(z, torch.arange(block.n_dst, device=z.device))
        score, z = self.scores(read, z, lambda weights: read.terms(own, weights))
        share = read.softmax_within(score) if self.options.softmax == WITHIN else read.softmax_across(score)
        means = self.means(read, z, self.dropped(read, share, block.known_original, block.dst_original, key))
        return self.with_bias(block, means)

    def scores(self, read: ReadEdges, z: Tensor, target: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Compute scores float[edges, heads] of source rows `z` after prefix; return `z` for its other readers, too.

        target: weights of `attending` -> the terms of the edges' destinations, float[edges, heads].
        """
        of_source, of_target = self.attending()
        runs, places = read.runs
        source, z = products_with_rows(runs, z, of_source.flatten(1).index_select(0, places))
        return F.leaky_relu(source + target(of_target), SLOPE), z

    def attending(self) -> tuple[Tensor, Tensor]:
        """Compute the weights by which rows give terms of scores, as sources and as destinations.

        float[relations, heads, in] each.
        """
        # A product with a row of weights for each head, rather than one with all of W_r.
        of_source, of_target = (
            torch.einsum("rhwf,rhw->rhf", self.neighbour, each) for each in (self.attend_source, self.attend_target)
        )
        return of_source, of_target

    def means(self, read: ReadEdges, z: Tensor, share: Tensor) -> Tensor:
        """Sum rows by `share` (float[edges, heads]), and multiply the sums by their relation: float[n_dst, out]."""
        return relation_messages(read, z, share, self.neighbour)

    def dropped(
        self, read: ReadEdges, share: Tensor, sources: Tensor, destinations: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """Apply dropout to `share`, float[edges, heads]; original ids int64 of sources and destinations."""
        if key is None or not self.attention_dropout:
            return share
        assert destinations is not None, "masks read them"
        ends = sources[read.sources], destinations[read.destinations]
        key, rate = with_seed(key, self.seed), self.attention_dropout
        return drop_edges(share, *ends, key, self.number, rate, read.relation)

    def activation(self, h: Tensor) -> Tensor:
        return h if self.number == len(self.schema.layers) else F.leaky_relu(h, HIDDEN_SLOPE)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build an R-GAT of `layers` layers; `in_dim` is the width of the input layer.

    Raises ConfigError when the heads do not divide the hidden width.
    """
    check_heads(config, layers, Options)
    found = hidden_layers(partial(RGATLayer, schema=schema), config, layers, in_dim)
    return Model(found, Head(config, layers, out_dim))


MEMBER = ModelMember(build, Options, typed=True, reads=("hidden",))
