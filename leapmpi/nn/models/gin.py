"""Graph isomorphism network. Xu, Hu, Leskovec and Jegelka, "How powerful are graph neural
networks?" (ICLR 2019), equation 4.1.

The sum is that of the sampled in-neighbours, times the sampler's edge weights if it has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.nn.aggregate import total
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.layer import Layer, Projection, as_row
from leapmpi.nn.mlp import MLP
from leapmpi.nn.model import Model, stack
from leapmpi.nn.partial_form import SUM
from leapmpi.nn.rows import Rows, dense, select
from leapmpi.nn.tensors import BlockTensors, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

READS: tuple[str, ...] = ("learn_scalars", "mlp_layers", "hidden", "norm")
"""Settings that some models read, or that a stack of one layer does not, and this one does."""


class GINLayer(Layer):
    """act(MLP((1 + eps) h_v + sum of h_u)); the MLP's first product may be taken before the sum."""

    partial_form = SUM

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        inner = [config.hidden] * ((config.mlp_layers or 2) - 1)
        self.mlp = MLP([in_dim, *inner, out_dim], config.norm == "layer")
        self.eps = nn.Parameter(torch.zeros(1)) if config.learn_scalars else 0.0

    def input_projections(self) -> list[Projection]:
        return [self.mlp.first]

    @property
    def projected_width(self) -> int:
        return len(self.mlp.first.weight)

    @property
    def partial_width(self) -> int:
        return self.projected_width

    def project(self, x: Rows) -> Tensor:
        return self.mlp.first(x)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        return total(block, z) + self.counted(dense(z[: block.n_dst]))

    def counted(self, own: Tensor) -> Tensor:
        """(1 + eps) times the destinations' rows."""
        return (1 + as_row(self.eps, own.shape[1])) * own

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """This rank's terms of the sums, the destination's own where its home is here."""
        rows = self.prefix(x, block.src_original, key)
        destinations, local_rows = block.local
        first = self.projects_first(block, rows)
        z = self.project(rows) if first else rows
        own = self.counted(dense(select(z, local_rows)))
        sums = total(block, z).index_add(0, destinations, own)
        return sums if first else self.project(sums)

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """The rest of the MLP, then as in every layer."""
        return super().finish(own, self.mlp.after_first(neighbours), x_dst)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int) -> Model:
    return stack(GINLayer, config, layers, in_dim, out_dim)
