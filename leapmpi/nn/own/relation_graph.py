"""A block of a typed graph in the form that modules for typed graphs read: edges of each relation by numbers in types.

Rows of a type keep the order of the block's sources, so those of its destinations come first in every block.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import torch
from torch import Tensor

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.errors import ConfigError
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.tensors import BlockTensors

EdgeType = tuple[str, str, str]
"""Source type, name and destination type of a relation, as modules name it."""


def edge_types(types: GraphTypes) -> list[EdgeType]:
    """Return the relations as modules name them."""
    return [(each.source, each.name, each.destination) for each in types.relations]


class RelationGraph:
    """The edges of one relation of a block, from `n_src` rows of one type to `n_dst` of one type."""

    edge_weight = edge_attr = None

    def __init__(self, edge_index: Tensor, kinds: tuple[int, int], n_src: int, n_dst: int) -> None:
        self.edge_index, self.kinds = edge_index, kinds
        """int64[2, edges], sources first; numbers of the types of both ends."""
        self.n_src, self.n_dst = n_src, n_dst

    def normalised(self, self_loop: float, weighted: bool) -> NoReturn:
        """Raise ConfigError: a block does not hold the degrees of its sources by relation."""
        raise ConfigError(
            "a layer with normalize=True reads degrees by relation in the whole graph, which samples of typed graphs "
            "do not hold; use a layer of means, such as SAGEConv, or normalize=False"
        )


class TypedBlockGraph(BlockGraph):
    """The graph of one block by relation; `kinds` int64[n_src] are the types of its sources."""

    def __init__(self, block: BlockTensors, dtype: torch.dtype, types: GraphTypes, kinds: Tensor) -> None:
        super().__init__(block, dtype)
        self.types, self.names = types, [each.name for each in types.vertices]
        number, counts = torch.empty_like(kinds), []
        for t in range(len(types.vertices)):
            places = (kinds == t).nonzero().flatten()
            number[places] = torch.arange(len(places), device=kinds.device)
            counts.append((len(places), int((places < block.n_dst).sum())))
        self._number, self.counts = number, counts
        """By type: sources and destinations."""

    @cached_property
    def relations(self) -> dict[EdgeType, RelationGraph]:
        """The graph of every relation of the schema, without edges where none are drawn."""
        edges, relation = self.block.edges, self.block.relation
        assert relation is not None, "blocks of typed graphs hold relations"
        pairs = torch.stack((self._number[edges.indices.long()], self._number[edges.numbers]))
        order = torch.argsort(relation, stable=True)
        names, ends = edge_types(self.types), self.types.ends.tolist()
        counts = torch.bincount(relation.long(), minlength=len(names)).tolist()
        return {
            name: RelationGraph(chosen, (s, d), self.counts[s][0], self.counts[d][1])
            for name, (s, d), chosen in zip(names, ends, pairs[:, order].split(counts, dim=1), strict=True)
        }

    @cached_property
    def edge_index_dict(self) -> dict[EdgeType, Tensor]:
        """The edges of each relation, int64[2, edges]: the value of a module's `edge_index_dict`."""
        return {name: each.edge_index for name, each in self.relations.items()}
