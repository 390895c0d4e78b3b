"""GraphSAGE for typed graphs: a mean and a matrix per relation, one matrix for own rows per type (relation_layer.py).

The self matrices of the relations that end at a type are one matrix written several times; here it is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.config.options import ModelMember
from leapmpi.config.setting import setting
from leapmpi.nn.model import Model, stack
from leapmpi.nn.relation_layer import MEAN_OF_RELATIONS, SUM_OF_RELATIONS, RelationLayer

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema


@dataclass(frozen=True)
class Options:
    relations: str = setting(
        SUM_OF_RELATIONS,
        "how relations that end at a type are combined; a mean divides by those of the schema",
        choices=(SUM_OF_RELATIONS, MEAN_OF_RELATIONS),
    )


class RSAGELayer(RelationLayer):
    """A matrix of its own for each relation."""

    Options = Options

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        self.neighbour = nn.Parameter(torch.empty(len(self.types.relations), out_dim, in_dim))
        self.fans = {**self.fans, "neighbour": (in_dim, out_dim)}

    def weights(self) -> Tensor:
        return self.neighbour


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build an R-SAGE of `layers` layers; `in_dim` is the width of the input layer."""
    return stack(partial(RSAGELayer, schema=schema), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, typed=True)
