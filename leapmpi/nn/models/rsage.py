"""GraphSAGE for typed graphs: a mean and a matrix per relation, one matrix for own rows per type (relation_layer.py).

The self matrices of the relations that end at a type are one matrix written several times; here it is one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leapmpi.config.options import ModelMember
from leapmpi.nn.model import Model, stack
from leapmpi.nn.typed.relation_layer import Options, RelationLayer

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema


def build(config: ModelConfig, layers: int, in_dim: int, out_dim: int, *, schema: TypedSchema) -> Model:
    """Build an R-SAGE of `layers` layers; `in_dim` is the width of the input layer."""
    return stack(partial(RelationLayer, schema=schema), config, layers, in_dim, out_dim)


MEMBER = ModelMember(build, Options, typed=True)
