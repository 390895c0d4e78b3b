"""DeeperGCN. Li, Xiong, Thabet and Ghanem, "DeeperGCN: all you need to train deeper GCNs" (2020), sections 3.2 to 3.4.

A message is ReLU(x_u) + 1e-7, with W_edge e + b added to x_u where edges have features e. Messages are combined by a
softmax for each channel, a power mean, the mean, the maximum or the sum, and the destination's row is added before an
MLP. The features are encoded by one product; each later layer adds its input to its output, and reads it normalised,
through ReLU and dropout (res+). Normalisation is by layer; `--norm batch` gives the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import ModelMember, parse_options
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.nn.aggregate import edges_of_their_own, maximum, mean, rows_by_edge, total
from leapmpi.nn.dropout import DropoutKey, drop_features, with_seed
from leapmpi.nn.head import Head
from leapmpi.nn.layer import Layer, Projection, as_row
from leapmpi.nn.layer_forms import LayerTraits, ShareForm
from leapmpi.nn.messages import softmax_mean
from leapmpi.nn.mlp import MLP
from leapmpi.nn.model import Model, hidden_layers
from leapmpi.nn.norms import BATCH, norm_of
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import MAXIMUM, SEPARATE_SUM, SOFTMAX
from leapmpi.nn.tensors import BlockTensors, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for deepgcn."""

    aggregate: str = setting(
        "softmax_sg",
        "how messages are combined; in softmax_sg the weights of the softmax pass no gradient",
        choices=("softmax_sg", "softmax", "power", "mean", "max", "sum"),
    )
    temperature: float = setting(
        0.0, "t of the softmax, or the exponent of the power mean; 0: 0.1 for softmax_sg, else 1", least=0
    )
    learn_scalars: bool = setting(False, "learn the temperature and the scale of messages")
    mlp_layers: int = setting(1, "layers of the MLP in each layer", least=1)
    message_norm: bool = setting(False, "scale what is combined to the length of the destination's row")


def idle_options(config: ModelConfig) -> dict[str, str]:
    """Return the options that the aggregate of `config` does not read, and why."""
    options = parse_options(Options, config.options, config.name, "model")
    kind = options.aggregate
    why = {}
    if kind in ("mean", "max", "sum"):
        why["temperature"] = f"aggregate={kind} has no temperature"
    if kind not in ("softmax", "power") and not options.message_norm:
        why["learn-scalars"] = f"aggregate={kind} without message-norm has nothing to learn by it"
    return why


EPSILON = 1e-7
"""Added to messages, so that powers have gradients; also the least that a power mean takes and gives."""
MOST = 10.0
"""The most that a power mean takes and gives."""
_MARGIN = 1000
"""Units of rounding by which a mean may leave these bounds. The mean of messages at a bound is there but for rounding,
which may not decide whether it has a gradient (R2)."""


class GENLayer(Layer, traits=LayerTraits(reads_names=False)):
    """h_v + MLP(x_v + combined messages), with x = dropout(ReLU(norm(h))); the first is fed by the encoder instead."""

    linear = False
    input_weights = ("encoder",)
    Options = Options

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, edge_dim: int = 0
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        self.kind = self.options.aggregate
        # The layer adds its own input; a residual of the base class would add it twice.
        self.residual, first, norm = None, number == 1, partial(norm_of, config.norm, auto="layer")
        # All that reads the output is normalised; a maximum over layers keeps what some of them have more than others.
        self.with_bias = config.norm != BATCH or (config.jumping == "max" and not first)
        if not self.with_bias:
            del self.bias
        self.adds_input, self.multiplied = not first, "sources" if first else "destinations"
        self.encoder = Projection(in_dim, out_dim) if first else None
        self.encoder_bias = nn.Parameter(torch.zeros(out_dim)) if first else None
        self.norm = None if first else norm(out_dim, number - 1)
        inner = [2 * out_dim] * (self.options.mlp_layers - 1)
        self.mlp = MLP([out_dim, *inner, out_dim], partial(norm, after=number))

        self.edge = Projection(edge_dim, out_dim) if edge_dim else None
        self.edge_bias = nn.Parameter(torch.zeros(out_dim)) if edge_dim else None

        # Single numbers, which may be learned.
        learns = self.options.learn_scalars
        t = self.options.temperature or (0.1 if self.kind == "softmax_sg" else 1.0)
        read = self.kind in ("softmax", "softmax_sg", "power")
        # In float64, from which the model is rounded: rounded to float32 first, 0.1 is another number.
        self.temperature = (
            nn.Parameter(torch.tensor([t], dtype=torch.float64)) if learns and read and self.kind != "softmax_sg" else t
        )
        self.scale = (nn.Parameter(torch.ones(1)) if learns else 1.0) if self.options.message_norm else None

    @property
    def edge_data(self) -> tuple[str, ...]:  # type: ignore[override]
        """A maximum has no use for weights."""
        read = () if self.kind == "max" else ("weight",)
        return read if self.edge is None else (*read, "edge_features")

    @property
    def shares(self) -> ShareForm | None:
        layout = {"softmax": SOFTMAX, "softmax_sg": SOFTMAX, "max": MAXIMUM}.get(self.kind, SEPARATE_SUM)

        def parts(sampled: Tensor, rows: Tensor) -> tuple[None, Tensor]:
            own, combined = layout.parts(rows, len(sampled))
            assert own is not None, "self parts are rows of their own"
            return None, self.joined(own, self.root(combined, sampled) if self.kind == "power" else combined)

        return ShareForm(layout, self.out_dim, self.partial, parts)

    def prefix(self, x: Rows, vertices: Tensor, key: DropoutKey | None) -> Rows:
        if self.encoder is None:
            x = F.relu(dense(x) if self.norm is None else self.norm(dense(x)))
        return drop_features(x, vertices, with_seed(key, self.seed), self.number, self.dropout, self.first_column)

    def project(self, x: Rows) -> Tensor:
        """Apply the encoder's product, whose shares of columns add up; in later layers return the rows themselves."""
        return dense(x) if self.encoder is None else self.encoder(x)

    def nodes(self, z: Tensor) -> Tensor:
        """Return the rows x of messages, from projected rows."""
        return z if self.encoder_bias is None else z + self.encoder_bias

    def messages(self, x: Tensor, of_edges: Tensor | None = None) -> Tensor:
        """Return messages of rows plus `of_edges` (the edges' features, as wide): float[rows, out]."""
        # Later layers have rows that went through ReLU already.
        positive = of_edges is None and self.encoder is None
        return (x if positive else F.relu(x if of_edges is None else x + of_edges)) + EPSILON

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Return x_v + combined messages. Raises ConfigError where edges have weights that a maximum cannot use."""
        x = self.nodes(dense(z))
        if self.edge is None:
            return self.joined(x[: block.n_dst], self.combined(block, self.messages(x)))
        assert block.edge_features is not None, "the exchange mode has fetched them"
        of_edges = self.edge(block.edge_features.to(x.dtype)) + self.edge_bias
        messages = self.messages(rows_by_edge(block.edges, x), of_edges)
        by_edge = replace(block, edges=edges_of_their_own(block.edges))
        return self.joined(x[: block.n_dst], self.combined(by_edge, messages))

    def combined(self, block: BlockTensors, messages: Tensor) -> Tensor:
        """Combine the messages of each destination's in-neighbours, 0 without any: float[n_dst, out]."""
        last = self.share_rows(block, messages)[-1]
        return self.root(last, block.edges.counts) if self.kind == "power" else last

    def share_rows(self, block: BlockTensors | PartialBlock, messages: Tensor) -> list[Tensor]:
        """Return the terms of messages in the aggregate, float[n_dst, out] each, one for each row of a share."""
        if self.kind == "max":
            if block.weight is not None:
                raise ConfigError("a maximum has no use for a sampler's edge weights; choose another aggregate")
            return [maximum(block.edges, messages)]
        if self.kind in ("softmax", "softmax_sg"):
            t = torch.as_tensor(self.temperature, dtype=messages.dtype, device=messages.device).view(1)
            weight = None if block.weight is None else block.weight.to(messages.dtype)
            return list(softmax_mean(block.edges, messages, t, weight, self.kind == "softmax_sg"))
        if self.kind == "power":
            return [mean(block, self.power(messages))]
        return [(mean if self.kind == "mean" else total)(block, messages)]

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute shares of this rank's messages, then rows of local destinations; maxima are -inf without an edge."""
        rows = self.nodes(self.project(self.prefix(x, block.src_original, key)))
        shares = self.share_rows(block, self.messages(rows))
        if self.kind == "max":
            shares = [shares[0].masked_fill((block.edges.counts == 0).unsqueeze(1), -torch.inf)]
        return torch.cat([*shares, rows.index_select(0, block.local[1])])

    def power(self, messages: Tensor) -> Tensor:
        """Raise messages (float[n, out]), clamped first, to the power of a power mean."""
        return messages.clamp(EPSILON, MOST) ** as_row(self.temperature, self.out_dim)

    def root(self, means: Tensor, counts: Tensor) -> Tensor:
        """Take the power mean from the mean of powers; `counts` int64[n_dst] are those of in-neighbours."""
        margin = _MARGIN * torch.finfo(means.dtype).eps
        inside = (means > EPSILON * (1 - margin)) & (means < MOST * (1 + margin))
        bounded = torch.where(inside, means, means.clamp(EPSILON, MOST))
        root = bounded ** (1 / as_row(self.temperature, self.out_dim))
        return torch.where((counts > 0).unsqueeze(1), root, 0)

    def joined(self, x_dst: Tensor, combined: Tensor) -> Tensor:
        """Add x_v to combined messages, these scaled to the length of x_v with MsgNorm (section 3.4)."""
        if self.scale is not None:
            length = torch.linalg.vector_norm(x_dst, dim=1, keepdim=True)
            combined = as_row(self.scale, self.out_dim) * length * F.normalize(combined, dim=1)
        return x_dst + combined

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Apply the MLP, and from the second layer on add the input itself."""
        h = self.mlp(neighbours if own is None else own + neighbours)
        h = h + self.bias if self.with_bias else h
        return h if self.encoder is not None or x_dst is None else h + dense(x_dst)


class GENHead(Head):
    """A product with the rows of the last layer, normalised, through ReLU and dropout."""

    def __init__(self, config: ModelConfig, layers: int, out_dim: int) -> None:
        super().__init__(config, layers, out_dim)
        self.norm = norm_of(config.norm, self.width, layers, auto="layer")
        self.dropout, self.seed, self.number = config.dropout, config.seed, layers + 1

    def prefix(self, x: Tensor, vertices: Tensor, key: DropoutKey | None) -> Tensor:
        x = F.relu(x if self.norm is None else self.norm(x))
        return dense(drop_features(x, vertices, with_seed(key, self.seed), self.number, self.dropout))


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0) -> Model:
    """Build a DeeperGCN of `layers` layers, which read `edge_dim` features of edges.

    Raises ConfigError for options that it has not.
    """
    layer = partial(GENLayer, edge_dim=edge_dim)
    return Model(hidden_layers(layer, config, layers, in_dim), GENHead(config, layers, out_dim))


MEMBER = ModelMember(
    build,
    Options,
    reads_edge_features=True,
    reads=("hidden", "dropout", "norm"),
    has=("norm", "residual"),
    idle_options=idle_options,
)
