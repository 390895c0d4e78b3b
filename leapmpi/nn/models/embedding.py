"""`embedding`: a vertex is its own row, learned or projected from features; no neighbour is read.

With `--task link` this trains knowledge graphs as such (DistMult, ComplEx, TransE, RotatE), by `--fanout 1
--relation-fanout '*=0'`, which draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leapmpi.config.options import ModelMember
from leapmpi.errors import ConfigError
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.model import Model, stack
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed.typed_layer import TypedLayer

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema


@dataclass(frozen=True)
class Options:
    """The layer has none."""


class OwnRows(TypedLayer):
    """The row of each destination, as the input layer and dropout leave it."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        # No type has a bias: it would move the origin, about which RotatE rotates and DistMult scales.
        del self.bias

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Return the rows of the destinations: float[n_dst, in]."""
        every = torch.arange(block.n_dst, device=block.dst_original.device)
        return dense(z).index_select(0, every if block.own_rows is None else block.own_rows)


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build the model of one layer. Raises ConfigError for more, or for a task that does not embed vertices."""
    if layers != 1:
        raise ConfigError("model.name: embedding reads no neighbours and has one layer; give --fanout 1")
    if in_dim != out_dim:
        raise ConfigError("model.name: embedding gives rows, not classes; use --task link, or another model")
    return stack(partial(OwnRows, schema=schema), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, typed=True)
