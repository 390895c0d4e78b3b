"""GNN-FiLM. Brockschmidt, "GNN-FiLM" (ICML 2020), section 2.3.

    h_v' = LayerNorm(sum over u of ReLU(gamma_v * W h_u + beta_v) + ReLU(gamma'_v * W' h_v + beta'_v))

gamma and beta are products of the destination's row, without bias; gamma is not one plus a product. Self-loops are an
edge type of their own, with weights of their own. The sum is that of the sampled in-neighbours; `mean` may take its
place. A product makes the output of the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gemm import product
from leapmpi.nn.head import Head
from leapmpi.nn.layer import Layer, Projection
from leapmpi.nn.layer_forms import LayerTraits, PairForm, RowForm, ShareForm
from leapmpi.nn.messages import modulated_sum
from leapmpi.nn.model import Model, hidden_layers
from leapmpi.nn.norms import norm_of
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import SEPARATE_SUM
from leapmpi.nn.tensors import BlockTensors, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for film."""

    aggregate: str = setting("sum", "how messages are combined", choices=("sum", "mean"))


class FiLMLayer(Layer, traits=LayerTraits(reads_names=False)):
    """Messages modulated by their destination, and the destination's own, normalised."""

    linear = False
    Options = Options

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.by_mean = self.options.aggregate == "mean"
        self.norm = None
        self.neighbour, self.own = (Projection(in_dim, out_dim) for _ in range(2))
        self.film, self.own_film = (Projection(in_dim, 2 * out_dim, fans=(in_dim, out_dim)) for _ in range(2))
        self.output_norm = norm_of(config.norm, out_dim, number, with_bias=False, auto="layer")

    @property
    def rows(self) -> RowForm:
        pair = PairForm(self.out_dim, 3 * self.out_dim, self.neighbour, self.project_own, self.join)
        return RowForm(6 * self.out_dim, self.project, self.aggregate, pair)

    @property
    def shares(self) -> ShareForm | None:
        """Sums, for which destinations send gamma and beta first."""
        width = self.out_dim
        sent = 2 * width
        return ShareForm(
            SEPARATE_SUM, width, self.partial, sent_width=sent, project_sent=lambda rows, _: self.film(rows)
        )

    def project_own(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """Compute gamma and beta for what the rows get, and what they give to themselves."""
        # One product, so that wide rows are read once.
        projections, width = (self.film, self.own, self.own_film), self.out_dim
        products = product(x, torch.cat([each.weight for each in projections]), rows)
        film, own, own_film = products.split([2 * width, width, 2 * width], dim=1)
        return torch.cat([film, modulated(own, own_film)], dim=1)

    def project(self, x: Rows) -> Tensor:
        """Return all products side by side, float[n, 6 out]: linear in rows, so p3 may add up shares of columns."""
        return torch.cat([each(x) for each in (self.neighbour, self.film, self.own, self.own_film)], dim=1)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Sum this rank's messages to each destination; then follow what local destinations give to themselves."""
        assert block.sent is not None, "the exchange mode has brought gamma and beta"
        rows, local = self.prefix(x, block.src_original, key), block.local[1]
        gamma, beta = block.sent.chunk(2, dim=1)
        z = self.neighbour(rows)
        sums = modulated_sum(block.edges, z, gamma, beta, self.weight(block, z.dtype))
        return torch.cat([sums, modulated(self.own(rows, local), self.own_film(rows, local))])

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        width, z = self.out_dim, dense(z)
        film, own, own_film = z[: block.n_dst, width:].split([2 * width, width, 2 * width], dim=1)
        return self.join(block, z[:, :width].contiguous(), torch.cat([film, modulated(own, own_film)], dim=1), key)

    def join(self, block: BlockTensors, z: Tensor, own: Tensor, key: DropoutKey | None) -> Tensor:
        """Combine `z` (float[n_src, out]) with `own` (float[n_dst, 3 out]): gamma, beta and own message."""
        gamma, beta, message = own.chunk(3, dim=1)
        return modulated_sum(block.edges, z, gamma, beta, self.weight(block, z.dtype)) + message

    def weight(self, block: BlockTensors | PartialBlock, dtype: torch.dtype) -> Tensor:
        """Return the weight of each message: float[edges]."""
        if self.by_mean:
            return block.share(dtype)
        ones = torch.ones(len(block.edges.indices), dtype=dtype, device=block.edges.indices.device)
        return ones if block.weight is None else block.weight.to(dtype)

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Apply the output norm; there is no further activation."""
        h = neighbours if own is None else own + neighbours
        h = (h if self.output_norm is None else self.output_norm(h)) + self.bias
        return h if self.residual is None else h + dense(self.residual(x_dst))


def modulated(z: Tensor, film: Tensor) -> Tensor:
    """Return ReLU(gamma z + beta), for z float[rows, width] and film float[rows, 2 width], gamma before beta."""
    gamma, beta = film.chunk(2, dim=1)
    return F.relu(gamma * z + beta)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int) -> Model:
    """Build a GNN-FiLM of `layers` layers. Raises ConfigError for an unknown aggregate."""
    return Model(hidden_layers(FiLMLayer, config, layers, in_dim), Head(config, layers, out_dim))


MEMBER = ModelMember(build, Options, reads=("hidden", "norm"), has=("norm",))
