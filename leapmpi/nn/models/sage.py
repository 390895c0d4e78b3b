"""GraphSAGE with the mean or the maximum. Hamilton, Ying and Leskovec (NeurIPS 2017), algorithm 1, without row scaling.

The maximum is that of projected rows, column by column: their pooling aggregator (section 3.3) without its own bias
and non-linearity. Where edges have weights the mean is weighted by them; the maximum does not read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leapmpi.config.options import ModelMember, parse_options
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.nn.aggregate import maximum
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.layer import Projection
from leapmpi.nn.layer_forms import LayerTraits, RowForm, ShareForm
from leapmpi.nn.model import Model, stack
from leapmpi.nn.rows import Rows
from leapmpi.nn.share_forms import MAXIMUM
from leapmpi.nn.sum_layer import ShareTerms, SumLayer
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for sage."""

    aggregate: str = setting("mean", "how in-neighbours are combined", choices=("mean", "max"))


class SAGELayer(SumLayer, traits=LayerTraits(reads_names=False, sums_ahead=True, plain_sums=True)):
    """act(W_self h_v + W_neighbour mean of h_u + b)."""

    Options = Options
    edge_data: tuple[str, ...] = ("weight", "edge_weight")

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.own = Projection(in_dim, out_dim)
        self.neighbour = Projection(in_dim, out_dim)

    @property
    def own_projection(self) -> Projection | None:
        return self.own

    def edge_sums(self, block: BlockTensors, dtype: torch.dtype) -> tuple[Edges, Tensor]:
        return block.edges, block.share(dtype)

    def self_part(self, x_dst: Rows) -> Tensor:
        return self.own(x_dst)

    @property
    def rows(self) -> RowForm:
        return RowForm(2 * self.out_dim, self._both, self._from_both)

    def _both(self, rows: Rows) -> Tensor:
        """Compute what rows give to others, and to themselves: float[rows, 2 out]."""
        return torch.cat([self.neighbour(rows), self.own(rows)], dim=1)

    def _from_both(self, block: BlockTensors, z: Tensor, key: DropoutKey | None) -> Tensor:
        """Combine the first halves of in-neighbours, and add the destination's second half."""
        return self.aggregate(block, z[:, : self.out_dim].contiguous(), key) + z[: block.n_dst, self.out_dim :]

    def share_terms(self, block: PartialBlock, dtype: torch.dtype) -> ShareTerms:
        return ShareTerms(block.share(dtype))


class MaximumSAGELayer(SAGELayer, traits=LayerTraits(reads_names=False)):
    """act(W_self h_v + maximum of W_neighbour h_u + b)."""

    linear = False
    edge_data = ()

    @property
    def shares(self) -> ShareForm | None:
        """Maxima of an owner's rows, float[destinations, out]: their maximum over owners is that over all rows."""
        return ShareForm(MAXIMUM, self.out_dim, self.partial)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Take the maximum over the sampled in-neighbours, 0 without any. Raises ConfigError for weighted edges."""
        if block.weight is not None:
            raise ConfigError("a maximum has no use for a sampler's edge weights; give --model-option aggregate=mean")
        return maximum(block.edges, z)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute this rank's maxima, -inf without a neighbour here; then local destinations' self parts."""
        rows = self.prefix(x, block.src_original, key)
        largest = maximum(block.edges, self.project(rows))
        largest = largest.masked_fill((block.edges.counts == 0).unsqueeze(1), -torch.inf)
        return torch.cat([largest, self.own(rows, block.local[1])])


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int) -> Model:
    """Build a GraphSAGE of `layers` layers. Raises ConfigError for an unknown aggregate."""
    by_maximum = parse_options(Options, config.options, config.name, "model").aggregate == "max"
    return stack(MaximumSAGELayer if by_maximum else SAGELayer, config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, reads=())
