"""Plans of a batch of edges and their negatives: a Schedule of end vertices, and the scoring rank of each edge.

The ends of a time step's edges are the roots of its micro-batches, each once. An edge and its negatives are scored by
the rank that embeds its source. Embeddings of other ends are sent there, once per rank that needs them. A strategy that
distributes roots (`EvenPlacement`) distributes edges instead: each rank embeds all ends of its own, and nothing is
sent.

Time steps cut the edges of a batch into equal slices. A step needs only the embeddings of its own edges, so memory is
that of a slice. Ends of several slices are embedded several times, which changes no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from leapmpi.plan.distinct_vertices import DistinctVertices, distinct
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.replaced_ends import ReplacedEnds, Rows


@dataclass(frozen=True, eq=False)
class EdgeStep:
    """Edges scored by one rank in one time step, with their negatives.

    Ends are numbered: roots of the rank's micro-batch in their order, then ends with received embeddings.
    """

    source: np.ndarray
    """int64[edges]: number of each scored edge's source."""
    destination: np.ndarray
    """int64[edges]: number of each scored edge's destination."""
    replaced: Sequence[ReplacedEnds]
    """Numbers in place of destinations, then of sources if both ends have negatives."""
    labels: np.ndarray | None
    """int64[edges]: their classes, if they have some."""
    relations: np.ndarray | None
    """int64[edges]: relations of the edges in a typed graph."""
    sent: np.ndarray
    """int64: roots with embeddings for other ranks, in order of rank."""
    send_counts: np.ndarray
    """int64[ranks]."""
    receive_counts: np.ndarray
    """int64[ranks]."""


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges int64[e, 2] with vertices in place of their ends; labels and relations, int64[e], where they have some."""

    ends: np.ndarray
    replaced: Sequence[ReplacedEnds]
    labels: np.ndarray | None = None
    relations: np.ndarray | None = None

    def of(self, rows: Rows) -> _Edges:
        """Return those of the edges `rows` alone. Pure."""
        labels, relations = (None if each is None else each[rows] for each in (self.labels, self.relations))
        return _Edges(self.ends[rows], [each.of(rows) for each in self.replaced], labels, relations)

    def vertices(self) -> np.ndarray:
        """Return the vertices that their scores read: int64[n], distinct and ascending."""
        return distinct(np.concatenate([self.ends.reshape(-1), *(each.vertices() for each in self.replaced)]))


@dataclass(frozen=True, eq=False)
class _Placed:
    """One time step: its edges, and the ranks that embed their ends.

    cells: by rank, the roots it embeds, ascending. scored_by: int64[e], the rank of each edge.
    """

    edges: _Edges
    cells: list[np.ndarray]
    scored_by: np.ndarray

    def of_rank(self, rank: int) -> _Edges:
        """Return the edges that `rank` scores."""
        scored = self.scored_by == rank
        # One rank scores all, or most: a slice is copied faster than edges that are picked.
        return self.edges.of(slice(None) if scored.all() else np.flatnonzero(scored))

    @cached_property
    def needed(self) -> list[np.ndarray]:
        """By rank, the vertices int64 that it scores and does not embed. Forecasts read them once for all ranks."""
        each_rank = enumerate(self.cells)
        return [np.setdiff1d(self.of_rank(rank).vertices(), cell, assume_unique=True) for rank, cell in each_rank]


@dataclass(frozen=True, eq=False)
class EdgePlan:
    """Plan of one iteration over edges: the schedule of their ends, and the edges to score."""

    schedule: Schedule
    edges: np.ndarray
    """int64[B, 2]: edges of the batch, over all ranks; int64[B, 3], with relations, in a typed graph."""
    steps: list[_Placed]
    travels: bool
    """Whether embeddings cross ranks; False if edges are distributed."""
    times: np.ndarray | None = None
    """Numbers[B]: times of the edges, if draws read them and owners had to send them."""

    def of_rank(self, rank: int) -> list[EdgeStep]:
        """Return the edges scored by `rank`, by time step."""
        return [_step_of(each, rank) for each in self.steps]


def plan_edges(
    edges: np.ndarray,
    replaced: Sequence[ReplacedEnds],
    time_steps: int,
    ranks: int,
    place: Callable[[np.ndarray], Schedule] | None,
    *,
    epoch: int = 0,
    iteration: int = 0,
    labels: np.ndarray | None = None,
    relations: np.ndarray | None = None,
) -> EdgePlan:
    """Plan `edges` int64[B, 2] with the vertices `replaced` in place of destinations, then of sources. Pure.

    labels: int64[B], classes of edges. place: returns the Schedule of distinct roots in one time step, which decides
    where ends are embedded; None: edges are distributed over the `ranks`. relations: int64[B], those of typed edges.
    """
    bounds = np.arange(time_steps + 1) * len(edges) // time_steps
    batch = _Edges(edges, replaced, labels, relations)
    parts = [batch.of(slice(first, end)) for first, end in pairwise(bounds.tolist())]
    steps = [_evenly(part, ranks) if place is None else _placed_by(part, place) for part in parts]

    # A schedule orders cells by rank, then step.
    cells = [step.cells[rank] for rank in range(ranks) for step in steps]
    indptr = indptr_of(np.array([len(cell) for cell in cells]))
    model = (np.arange(ranks)[:, None] + np.arange(time_steps)).reshape(-1) % ranks
    schedule = Schedule(epoch, iteration, ranks, time_steps, np.concatenate(cells), indptr, model)
    named = edges if relations is None else np.column_stack([edges, relations])
    return EdgePlan(schedule, named, steps, place is not None)


def _placed_by(edges: _Edges, place: Callable[[np.ndarray], Schedule]) -> _Placed:
    """Place ends by `place`, and score an edge with its negatives on the rank of its source."""
    vertices = edges.vertices()
    schedule = place(vertices)
    cells = [np.sort(schedule.rank_roots(rank)) for rank in range(schedule.ranks)]
    embedded_by = np.empty(len(vertices), np.int64)
    for rank, cell in enumerate(cells):
        embedded_by[np.searchsorted(vertices, cell)] = rank
    return _Placed(edges, cells, embedded_by[np.searchsorted(vertices, edges.ends[:, 0])])


def _evenly(edges: _Edges, ranks: int) -> _Placed:
    """Distribute equal shares of the edges over the ranks; each rank embeds all ends of its own."""
    count = len(edges.ends)
    bounds = np.arange(ranks + 1) * count // ranks
    scored_by = np.searchsorted(bounds, np.arange(count), side="right") - 1
    cells = [edges.of(slice(first, end)).vertices() for first, end in pairwise(bounds.tolist())]
    return _Placed(edges, cells, scored_by)


def _step_of(placed: _Placed, rank: int) -> EdgeStep:
    """Return the share of `rank` in a time step."""
    own, needed = placed.cells[rank], placed.needed
    # Both sides sort exchanged ends by rank and id, so no ids are sent.
    arriving = [np.intersect1d(needed[rank], cell, assume_unique=True) for cell in placed.cells]
    leaving = [np.intersect1d(each, own, assume_unique=True) for each in needed]

    # Number the ends: positions among own roots, then in the order of arrival.
    mine, numbers = placed.of_rank(rank), DistinctVertices(np.concatenate([own, *arriving])).numbers
    source, destination = numbers(mine.ends).T.copy()
    return EdgeStep(
        source=source,
        destination=destination,
        replaced=[each.numbered(numbers) for each in mine.replaced],
        labels=mine.labels,
        relations=mine.relations,
        sent=np.searchsorted(own, np.concatenate(leaving)),
        send_counts=np.array([len(each) for each in leaving]),
        receive_counts=np.array([len(each) for each in arriving]),
    )
