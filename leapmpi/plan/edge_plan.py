"""Plans of a batch of edges and their negatives: a Schedule of end vertices, and the scoring rank of each edge.

The ends of a time step's edges are the roots of its micro-batches, each once. An edge and its negatives are scored by
the rank that embeds its source. Embeddings of other ends are sent there, once per rank that needs them. A strategy that
distributes roots (`EvenPlacement`) distributes edges instead: each rank embeds all ends of its own, and nothing is
sent.

Time steps cut the edges of a batch into equal slices. A step needs only the embeddings of its own edges, so memory is
that of a slice. Ends of several slices are embedded several times, which changes no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from leapmpi.plan.distinct_vertices import DistinctVertices, distinct
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.block import indptr_of


@dataclass(frozen=True, eq=False)
class EdgeStep:
    """Pairs scored by one rank in one time step.

    Ends are numbered: roots of the rank's micro-batch in their order, then ends with received embeddings.
    """

    source: np.ndarray
    """int64[pairs]: number of each scored pair's source."""
    destination: np.ndarray
    """int64[pairs]: number of each scored pair's destination."""
    targets: np.ndarray
    """bool[pairs]: whether the pair is an edge, not a negative; or int64[pairs]: its class."""
    relations: np.ndarray | None
    """int64[pairs]: relations of the pairs in a typed graph."""
    sent: np.ndarray
    """int64: roots with embeddings for other ranks, in order of rank."""
    send_counts: np.ndarray
    """int64[ranks]."""
    receive_counts: np.ndarray
    """int64[ranks]."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """One time step: its pairs int64[p, 2], their targets, and the ranks that embed their ends.

    cells: by rank, the roots it embeds, ascending. scored_by: int64[p], the rank of each pair. relations: int64[p].
    """

    pairs: np.ndarray
    targets: np.ndarray
    cells: list[np.ndarray]
    scored_by: np.ndarray
    relations: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class EdgePlan:
    """Plan of one iteration over edges: the schedule of their ends, and the pairs to score."""

    schedule: Schedule
    edges: np.ndarray
    """int64[B, 2]: edges of the batch, over all ranks; int64[B, 3], with relations, in a typed graph."""
    negatives: int
    """Number of negatives of each edge."""
    steps: list[_Placed]
    travels: bool
    """Whether embeddings cross ranks; False if edges are distributed."""
    sources: int = 0
    """Number of those negatives of each edge, the last ones, that replace its source."""
    times: np.ndarray | None = None
    """Numbers[B]: times of the edges, if draws read them and owners had to send them."""

    @property
    def pair_weight(self) -> float:
        """Weight of a scored pair in the batch's loss, the mean over all pairs."""
        return 1.0 / max(1, len(self.edges) * (1 + self.negatives))

    def of_rank(self, rank: int) -> list[EdgeStep]:
        """Return the pairs scored by `rank`, by time step."""
        return [_step_of(each, rank, self.schedule.ranks) for each in self.steps]


def plan_edges(
    edges: np.ndarray,
    negatives: np.ndarray,
    time_steps: int,
    ranks: int,
    place: Callable[[np.ndarray], Schedule] | None,
    *,
    epoch: int = 0,
    iteration: int = 0,
    labels: np.ndarray | None = None,
    relations: np.ndarray | None = None,
    sources: np.ndarray | None = None,
) -> EdgePlan:
    """Plan `edges` int64[B, 2] and their `negatives` int64[B, K]. Pure.

    labels: int64[B], classes of edges; without negatives then. place: returns the Schedule of distinct roots in one
    time step, which decides where ends are embedded; None: edges are distributed over the `ranks`. relations: int64[B],
    those of typed edges; sources: int64[B, J], negatives in place of their sources.
    """
    bounds = np.arange(time_steps + 1) * len(edges) // time_steps
    sources = negatives[:, :0] if sources is None else sources
    steps = []
    for first, end in pairwise(bounds.tolist()):
        pairs, positive = _pairs(edges[first:end], negatives[first:end], sources[first:end])
        targets = positive if labels is None else labels[first:end]
        step = (
            _evenly(pairs, positive, targets, ranks) if place is None else _placed_by(pairs, positive, targets, place)
        )
        if relations is not None:
            step = replace(step, relations=relations[first:end][np.cumsum(positive) - 1])
        steps.append(step)

    # A schedule orders cells by rank, then step.
    cells = [step.cells[rank] for rank in range(ranks) for step in steps]
    indptr = indptr_of(np.array([len(cell) for cell in cells]))
    model = (np.arange(ranks)[:, None] + np.arange(time_steps)).reshape(-1) % ranks
    schedule = Schedule(epoch, iteration, ranks, time_steps, np.concatenate(cells), indptr, model)
    count = negatives.shape[1] + sources.shape[1]
    named = edges if relations is None else np.column_stack([edges, relations])
    return EdgePlan(schedule, named, count, steps, place is not None, sources.shape[1])


def _pairs(edges: np.ndarray, negatives: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs to score, each edge before its negatives: int64[p, 2], and bool[p], which are edges.

    Negatives of destinations come first, then those of `sources`.
    """
    replaced = negatives.shape[1]
    count = 1 + replaced + sources.shape[1]
    pairs = np.repeat(edges[:, None], count, axis=1)
    pairs[:, 1 : 1 + replaced, 1], pairs[:, 1 + replaced :, 0] = negatives, sources
    positive = np.zeros((len(edges), count), bool)
    positive[:, 0] = True
    return pairs.reshape(-1, 2), positive.reshape(-1)


def _placed_by(
    pairs: np.ndarray, positive: np.ndarray, targets: np.ndarray, place: Callable[[np.ndarray], Schedule]
) -> _Placed:
    """Place ends by `place`, and score an edge with its negatives on the rank of its source."""
    vertices = distinct(pairs)
    schedule = place(vertices)
    cells = [np.sort(schedule.rank_roots(rank)) for rank in range(schedule.ranks)]
    embedded_by = np.empty(len(vertices), np.int64)
    for rank, cell in enumerate(cells):
        embedded_by[np.searchsorted(vertices, cell)] = rank
    of_edges = embedded_by[np.searchsorted(vertices, pairs[positive, 0])]
    return _Placed(pairs, targets, cells, of_edges[np.cumsum(positive) - 1])


def _evenly(pairs: np.ndarray, positive: np.ndarray, targets: np.ndarray, ranks: int) -> _Placed:
    """Distribute equal shares of the edges over the ranks; each rank embeds all ends of its own."""
    edge = np.cumsum(positive) - 1
    bounds = np.arange(ranks + 1) * int(positive.sum()) // ranks
    scored_by = np.searchsorted(bounds, edge, side="right") - 1
    return _Placed(pairs, targets, [distinct(pairs[scored_by == rank]) for rank in range(ranks)], scored_by)


def _step_of(placed: _Placed, rank: int, ranks: int) -> EdgeStep:
    """Return the share of `rank` in a time step."""
    own = placed.cells[rank]
    mine = placed.scored_by == rank
    # One rank scores all, or most: a slice is copied faster than pairs that are picked.
    mine = slice(None) if mine.all() else np.flatnonzero(mine)
    pairs = placed.pairs[mine]

    # Both sides sort exchanged ends by rank and id, so no ids are sent.
    missing = np.setdiff1d(distinct(pairs), own, assume_unique=True)
    arriving = [np.intersect1d(missing, cell, assume_unique=True) for cell in placed.cells]
    leaving = []
    for other in range(ranks):
        theirs = placed.pairs[placed.scored_by == other] if other != rank else np.empty(0, np.int64)
        needed = np.setdiff1d(distinct(theirs), placed.cells[other], assume_unique=True)
        leaving.append(np.intersect1d(needed, own, assume_unique=True))

    # Number the ends: positions among own roots, then in the order of arrival.
    numbers = DistinctVertices(np.concatenate([own, *arriving])).numbers(pairs)
    source, destination = numbers.T.copy()
    return EdgeStep(
        source=source,
        destination=destination,
        targets=placed.targets[mine],
        relations=None if placed.relations is None else placed.relations[mine],
        sent=np.searchsorted(own, np.concatenate(leaving)),
        send_counts=np.array([len(each) for each in leaving]),
        receive_counts=np.array([len(each) for each in arriving]),
    )
