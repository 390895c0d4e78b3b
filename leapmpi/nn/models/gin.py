"""Graph isomorphism network. Xu, Hu, Leskovec and Jegelka, "How powerful are graph neural
networks?" (ICLR 2019), equation 4.1.

The sum is that of the sampled in-neighbours, times the sampler's edge weights if it has any.

Where edges have features it is one of ReLU(h_u + W_edge e + b): Hu et al., "Strategies for pre-training graph neural
networks" (ICLR 2020), section 5 (GINE). A message is then as wide as the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.aggregate import edges_of_their_own, rows_by_edge, total
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.layer import Layer, Projection, as_row, projects_first, raw_sums
from leapmpi.nn.layer_forms import LayerTraits, RawSums, RowForm, ShareForm
from leapmpi.nn.mlp import MLP
from leapmpi.nn.model import Model, stack
from leapmpi.nn.norms import norm_of
from leapmpi.nn.rows import Rows, dense, select
from leapmpi.nn.share_forms import SUM
from leapmpi.nn.tensors import BlockTensors, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for gin."""

    learn_scalars: bool = setting(False, "learn eps, by which a destination's own row counts for more")
    mlp_layers: int = setting(2, "layers of the MLP in each layer", least=1)


class GINLayer(Layer, traits=LayerTraits(reads_names=False, sums_ahead=True)):
    """act(MLP((1 + eps) h_v + sum of h_u)); the MLP's first product may be taken before the sum."""

    input_weights = ("mlp.first",)
    Options = Options

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, edge_dim: int = 0
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        inner = [config.hidden] * (self.options.mlp_layers - 1)
        self.mlp = MLP([in_dim, *inner, out_dim], lambda width: norm_of(config.norm, width, number))
        self.eps = nn.Parameter(torch.zeros(1)) if self.options.learn_scalars else 0.0
        self.edge = self.edge_bias = None
        if edge_dim:
            self.edge_data = ("weight", "edge_features")
            self.linear = self.projects = False
            self.edge = Projection(edge_dim, in_dim)
            self.edge_bias = nn.Parameter(torch.zeros(in_dim))

    @property
    def rows(self) -> RowForm:
        width = len(self.mlp.first.weight) if self.edge is None else self.in_dim
        return RowForm(width, self.project, self.aggregate)

    @property
    def shares(self) -> ShareForm | None:
        raw_share = self.raw_share if self.traits.sums_ahead else None
        return ShareForm(SUM, self.rows.width, self.partial, raw_share=raw_share)

    @property
    def sums(self) -> RawSums:
        """Sums without the destination's own row where epsilon is learned and multiplies it."""
        found = replace(raw_sums(self), share=self.raw_share)
        if not isinstance(self.eps, Tensor):
            return found
        return replace(found, needs_own=True, holds_own=False, compute=total, output=self._from_sums)

    def project(self, x: Rows) -> Tensor:
        return self.mlp.first(x) if self.edge is None else dense(x)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        sums = total(block, z) if self.edge is None else self.sum_with_features(block, dense(z))
        return sums + self.counted(dense(z[: block.n_dst]))

    def sum_with_features(self, block: BlockTensors, z: Tensor) -> Tensor:
        """Sum ReLU(h_u + W_edge e + b) over each destination's edges: float[n_dst, in]."""
        assert self.edge is not None, "the model was built with edge_dim"
        assert block.edge_features is not None, "the exchange mode has fetched them"
        added = self.edge(block.edge_features.to(z.dtype)) + self.edge_bias
        by_edge = replace(block, edges=edges_of_their_own(block.edges))
        return total(by_edge, F.relu(rows_by_edge(block.edges, z) + added))

    def counted(self, own: Tensor) -> Tensor:
        """Return (1 + eps) times the destinations' rows."""
        return (1 + as_row(self.eps, own.shape[1])) * own

    def raw_share(self, block: PartialBlock, rows: Rows) -> Tensor:
        """Sum the terms of `rows`, and of destinations that are owned here if epsilon is not learned."""
        sums = total(block, rows)
        return sums if isinstance(self.eps, Tensor) else self._with_own(block, rows, sums)

    def _with_own(self, block: PartialBlock, z: Rows, sums: Tensor) -> Tensor:
        """Add to `sums` the own rows of destinations that are owned here."""
        destinations, local_rows = block.local
        return sums.index_add(0, destinations, self.counted(dense(select(z, local_rows))))

    def _from_sums(self, sums: Tensor, own: Rows | None) -> Tensor:
        if own is not None:
            sums = sums + self.counted(dense(own))
        return self.finish(None, self.project(sums), own)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Sum this rank's terms, with those of destinations that are owned here."""
        rows = self.prefix(x, block.src_original, key)
        first = projects_first(self, block, rows)
        z = self.project(rows) if first else rows
        sums = self._with_own(block, z, total(block, z))
        return sums if first else self.project(sums)

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Apply the rest of the MLP, then bias and activation as in every layer."""
        if self.edge is not None:
            neighbours = self.mlp.first(neighbours)
        return super().finish(own, self.mlp.after_first(neighbours), x_dst)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0) -> Model:
    """Build a GIN of `layers` layers, which read `edge_dim` features of edges."""
    return stack(partial(GINLayer, edge_dim=edge_dim), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, reads_edge_features=True, reads=("hidden", "norm"))
