"""Base of scorers with a learned vector for each relation, as in models of knowledge graphs.

The vector makes a query of one end, which is then compared with rows of the other end: one query serves all candidates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from leapmpi.errors import ConfigError
from leapmpi.nn.kernels.distances import Distance, distances
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Weighted
from leapmpi.nn.scorer import Scorer, take_rows

_NUMBERS = 1 << 24
"""Numbers of differences that are held at a time."""


class RelationScorer(Scorer, Weighted):
    """Scorer by queries; `relation` float[relations, columns] holds the vectors, one for all edges of a plain graph."""

    candidates_at_once = 32.0

    def __init__(self, width: int, columns: int, relations: int) -> None:
        super().__init__()
        self.relations = relations
        self.relation = nn.Parameter(torch.empty(max(1, relations), columns))
        self.fans = {"relation": (width, width)}

    @abstractmethod
    def query_of_source(self, source: Tensor, vector: Tensor) -> Tensor:
        """Return what destinations are compared with, float[k, D], for sources and the vectors of their relations."""

    @abstractmethod
    def query_of_destination(self, destination: Tensor, vector: Tensor) -> Tensor:
        """Return what sources are compared with, float[k, D]."""

    def compare(self, query: Tensor, rows: Tensor) -> Tensor:
        """Score float[k, D] twice -> float[k]: by default the inner product."""
        return (query * rows).sum(dim=1)

    def compare_all(self, query: Tensor, rows: Tensor) -> Tensor:
        """Score float[k, D], float[n, D] -> float[k, n]."""
        return query @ rows.T

    def forward(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.compare(self.query_of_source(source, self._vectors(relation)), destination)

    def all_pairs(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.compare_all(self.query_of_source(source, self._vectors(relation)), destination)

    def all_sources(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.compare_all(self.query_of_destination(destination, self._vectors(relation)), source)

    def _vectors(self, relation: Tensor | None) -> Tensor:
        return self.relation if relation is None else take_rows(self.relation, relation)


class DistanceScorer(RelationScorer):
    """Base of scorers by distance: a learned margin minus the distance of query and row."""

    candidates_at_once = 1.0

    kind: Distance
    """The same distance of all pairs of rows, on the host."""

    def __init__(self, width: int, columns: int, relations: int) -> None:
        super().__init__(width, columns, relations)
        self.margin = nn.Parameter(torch.ones(1))

    @abstractmethod
    def distance(self, difference: Tensor) -> Tensor:
        """Return the length of each difference, float[..., D] -> float[...]."""

    def compare(self, query: Tensor, rows: Tensor) -> Tensor:
        return self.margin - self.distance(query - rows)

    def compare_all(self, query: Tensor, rows: Tensor) -> Tensor:
        if on_host(rows.device):
            return self.margin - distances(query, rows, self.kind)
        step = max(1, _NUMBERS // max(1, rows.numel()))
        found = [self.margin - self.distance(each[:, None] - rows) for each in query.split(step)]
        return torch.cat(found) if found else query.new_empty((0, len(rows)))


class ReciprocalScorer(Scorer):
    """Two scorers of one kind: of relations, and of the same relations read from destination to source.

    Candidates in place of a source are destinations of the reversed relation, with a vector of its own. Lacroix et al.,
    "Canonical Tensor Decomposition for Knowledge Base Completion" (ICML 2018), section 4.
    """

    candidates_at_once = RelationScorer.candidates_at_once

    def __init__(self, build: Callable[[], RelationScorer]) -> None:
        """Raise ConfigError for a plain graph."""
        super().__init__()
        self.ahead, self.back = build(), build()
        self.relations = self.ahead.relations
        if not self.relations:
            raise ConfigError("link.scorer: a plain graph has no relations to reverse; give one without reciprocal")

    def for_sources(self) -> tuple[Scorer, bool]:
        return self.back, False

    def forward(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.ahead(source, destination, relation)

    def all_pairs(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.ahead.all_pairs(source, destination, relation)

    def all_sources(self, source: Tensor, destination: Tensor, relation: Tensor | None = None) -> Tensor:
        return self.ahead.all_sources(source, destination, relation)


def complex_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply complex rows: the first half of the columns is the real part, the second the imaginary one."""
    (x, y), (u, v) = a.chunk(2, dim=1), b.chunk(2, dim=1)
    return torch.cat([x * u - y * v, x * v + y * u], dim=1)


def conjugate(a: Tensor) -> Tensor:
    """Return the complex conjugate of rows as above."""
    x, y = a.chunk(2, dim=1)
    return torch.cat([x, -y], dim=1)


def check_even(width: int, name: str) -> None:
    """Raise ConfigError unless `width` columns make complex numbers."""
    if width % 2:
        raise ConfigError(f"link.scorer: {name} reads pairs of columns, and --hidden is {width}; give an even number")
