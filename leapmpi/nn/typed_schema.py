"""The part of a typed graph's schema that a model reads: types and relations of each layer, and widths of inputs.

Relations and types that cannot reach the roots are pruned, so that no parameters exist for them
(`leapmpi.dataset.graph_types.reached`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.graph_types import GraphTypes, Reached


@dataclass(frozen=True, eq=False)
class LayerTypes:
    """The types and relations of one layer, as ascending numbers of the schema.

    sources: int64[S], types whose rows it reads; destinations: int64[D], types that it computes; relations: int64[R'],
    those that it sums up; ends: int64[R'], the type at which each of them ends; ending: int64[T], how many of them end
    at each type.
    """

    sources: np.ndarray
    destinations: np.ndarray
    relations: np.ndarray
    ends: np.ndarray
    ending: np.ndarray


@dataclass(frozen=True, eq=False)
class TypedSchema:
    """Part of the schema of a typed graph that a model reads.

    bases: int64[T + 1], original ids of type t are bases[t] to bases[t + 1] (exclusive); names: those of the types;
    widths: int64[T], feature columns, 0 without features; learned: int64[T], columns of learned rows, 0 without;
    layers: from the first layer to the last; graph: the whole schema; ages: whether blocks have the ages of sources.
    """

    bases: np.ndarray
    names: tuple[str, ...]
    widths: np.ndarray
    learned: np.ndarray
    layers: tuple[LayerTypes, ...]
    graph: GraphTypes
    ages: bool = False

    @classmethod
    def of(cls, types: GraphTypes, found: Reached, learned: np.ndarray, ages: bool = False) -> TypedSchema:
        """Return the schema of a model with a layer for each hop of `found`; `learned` and `ages` as above."""
        hops = len(found.relations)
        layers = tuple(_layer(types, found, hop) for hop in reversed(range(hops)))
        widths = np.array([each.feature_dim for each in types.vertices], np.int64)
        return cls(types.bases, tuple(each.name for each in types.vertices), widths, learned, layers, types, ages)

    @property
    def columns(self) -> np.ndarray:
        """int64[T]: columns of the rows of each type, features or learned; those that nothing reads learn none."""
        return np.where(self.widths > 0, self.widths, max(1, self.learned.max()))

    def types_of(self, original: Tensor) -> Tensor:
        """Return the types int64[n] of vertices with `original` ids, int64[n]."""
        ends = torch.from_numpy(self.bases[1:-1]).to(original.device)
        return torch.bucketize(original, ends, right=True)


def _layer(types: GraphTypes, found: Reached, hop: int) -> LayerTypes:
    relations = np.flatnonzero(found.relations[hop])
    ends = types.ends[relations, 1]
    return LayerTypes(
        sources=np.flatnonzero(found.types[hop + 1]),
        destinations=np.flatnonzero(found.types[hop]),
        relations=relations,
        ends=ends,
        ending=np.bincount(ends, minlength=len(types.vertices)),
    )


def place_table(numbers: np.ndarray, size: int) -> Tensor:
    """Return int64[size]: the place of each of 0 to size - 1 among `numbers` (int64[k], distinct), or -1."""
    places = torch.full((size,), -1, dtype=torch.int64)
    places[torch.from_numpy(numbers)] = torch.arange(len(numbers))
    return places
