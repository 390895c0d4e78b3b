"""Base of layers of typed graphs: an input layer, norms and biases by type, the relations that a layer reads.

Rows cross ranks as the input layer leaves them, one for each source however many relations read it. Edges of relations
that a layer does not have, pruned by the schema, add nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.errors import ConfigError
from leapmpi.nn.layer import Layer
from leapmpi.nn.layer_forms import RowForm
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.typed.typed_inputs import InputLayer, TypedNormalise
from leapmpi.nn.typed_schema import TypedSchema, place_table

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


class TypedLayer(Layer):
    """Base of layers of typed graphs; sub-classes add their weights and define `aggregate`."""

    type_places: Tensor
    """int64[T]: the place of each type among those of destinations, or -1."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last)
        if config.norm == "batch":
            raise ConfigError(f"model.norm: {config.name} normalises each row by itself; give --norm layer")
        self.schema, self.types = schema, schema.layers[number - 1]
        if number == 1:
            # What its residual would add are rows of several widths.
            self.residual = None
            self.inputs = InputLayer(schema, in_dim, self.types.sources)
        if number > 1 and config.norm == "layer":
            self.norm = TypedNormalise(schema, in_dim, self.types.sources)
        self.bias = nn.Parameter(torch.zeros(len(self.types.destinations), out_dim))
        self.place_of = {r: place for place, r in enumerate(self.types.relations.tolist())}
        """The place of each relation that the layer reads, by its number in the schema."""
        places = place_table(self.types.destinations, len(schema.names))
        self.register_buffer("type_places", places, persistent=False)

    def normalised(self, x: Tensor, vertices: Tensor) -> Tensor:
        assert isinstance(self.norm, TypedNormalise), "layers of typed graphs normalise by type"
        return self.norm(x, self.schema.types_of(vertices))

    def biased(self, h: Tensor) -> Tensor:
        """Return `h`: the bias of the destination's type comes with the aggregate."""
        return h

    def places_of(self, original: Tensor) -> Tensor:
        """Return the place of the type of each vertex among those of destinations: int64[n], for ids int64[n].

        0 for types that the layer does not compute, whose rows are read by nothing.
        """
        return self.type_places[self.schema.types_of(original)].clamp(min=0)

    def project(self, x: Rows) -> Tensor:
        """Return the rows after prefix: what the input layer has made of them is what travels."""
        return dense(x)

    @property
    def rows(self) -> RowForm:
        return RowForm(self.in_dim, self.project, self.aggregate, dense=self.inputs is not None)
