"""Relational graph convolution. Schlichtkrull et al., "Modeling Relational Data with GCNs" (ESWC 2018), section 2.

The means of equation 2 by relation, with one matrix for own rows per type (relation_layer.py). Matrices of relations
are free, sums over common bases (equation 3) or block-diagonal (equation 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.nn.model import Model, stack
from leapmpi.nn.typed.relation_attention import block_diagonal
from leapmpi.nn.typed.relation_layer import Options as RelationOptions
from leapmpi.nn.typed.relation_layer import RelationLayer

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema


@dataclass(frozen=True)
class Options(RelationOptions):
    """Settings of `--model-option` for rgcn, besides those of all models of relations."""

    bases: int = setting(0, "matrices of which those of all relations are sums; 0: each has its own", least=0)
    blocks: int = setting(0, "diagonal blocks of the matrices of relations, whose widths it divides; 0: full", least=0)


class RGCNLayer(RelationLayer):
    """Matrices of relations that are free, sums over bases, or block-diagonal."""

    Options = Options

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        relations, bases, blocks = len(self.types.relations), self.options.bases, self.options.blocks
        self.coefficients: Tensor | None = None
        if bases and blocks:
            raise ConfigError("model.options: matrices are sums over bases or block-diagonal; give bases or blocks")
        if bases:
            self.coefficients = nn.Parameter(torch.empty(relations, bases))
            self.fans = {**self.fans, "coefficients": (bases, relations)}
        if blocks and (in_dim % blocks or out_dim % blocks):
            raise ConfigError(
                f"model.options: blocks={blocks} does not divide the widths of layer {number} ({in_dim} and {out_dim})"
            )
        # One matrix for each relation, or for each base that relations share.
        matrices, parts = bases or relations, blocks or 1
        shape = (matrices, blocks, out_dim // parts, in_dim // parts) if blocks else (matrices, out_dim, in_dim)
        self.neighbour = nn.Parameter(torch.empty(shape))
        self.fans = {**self.fans, "neighbour": (in_dim // parts, out_dim // parts)}

    def weights(self) -> Tensor:
        if self.coefficients is not None:
            flat = self.coefficients @ self.neighbour.flatten(1)
            return flat.view(-1, self.out_dim, self.in_dim)
        if self.options.blocks:
            return block_diagonal(self.neighbour)
        return self.neighbour


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build an R-GCN of `layers` layers; `in_dim` is the width of the input layer.

    Raises ConfigError for bases with blocks, and for blocks that do not divide the widths of a layer.
    """
    return stack(partial(RGCNLayer, schema=schema), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, typed=True)
