"""Scores of a time step's edges and their negatives: pair by pair, or all candidates of an end by one product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.scorer import Scorer, checked, relations_for, take_rows
from leapmpi.plan.distinct_vertices import DistinctVertices, distinct
from leapmpi.plan.edge_plan import EdgeStep
from leapmpi.sampling.replaced_ends import OwnEnds, Rows, SharedEnds

_NO_NEGATIVE = 0.25
"""An edge is no negative of itself or of another, nor is a loop in a plain graph: their score is this part of the least
number, which adds nothing to a loss."""


class Scores(NamedTuple):
    """Scores of edges with as many negatives each.

    scores: float[edges, 1 + K], an edge before its negatives; the last `sources` of them are those in place of its
    source. Of classes: float[edges, classes], without negatives.
    """

    scores: Tensor
    sources: int = 0


def scores_of(scorer: Scorer, rows: Tensor, step: EdgeStep) -> Iterator[Scores]:
    """Yield the scores of all edges of `step`, whose ends are `rows` (float[n, D]).

    Each edge is among them once, or once for each end where another scorer compares the candidates of sources.
    """
    backwards, as_sources = scorer.for_sources()
    if as_sources or len(step.replaced) < 2:
        yield from _of_step(scorer, rows, step)
        return
    # The scorer of sources reads edges backwards, so the two ends are scored apart.
    of_destinations, of_sources = step.replaced
    yield from _of_step(scorer, rows, replace(step, replaced=[of_destinations]))
    turned = replace(step, source=step.destination, destination=step.source, replaced=[of_sources])
    yield from _of_step(backwards, rows, turned)


def _of_step(scorer: Scorer, rows: Tensor, step: EdgeStep) -> Iterator[Scores]:
    """Yield the scores of `step` by one scorer."""
    shared = [each for each in step.replaced if isinstance(each, SharedEnds)]
    own = [each.ends for each in step.replaced if isinstance(each, OwnEnds)]
    if not step.replaced or not len(step.source):
        classes = not step.replaced
        edges = _of_pairs(scorer, rows, step.source, step.destination, step.relations, classes)
        yield Scores(edges[:, None] if step.replaced else edges)
    elif shared:
        yield from _shared(scorer, rows, step, shared)
    else:
        yield Scores(_own(scorer, rows, step, own), own[1].shape[1] if len(own) > 1 else 0)


def _of_pairs(
    scorer: Scorer,
    rows: Tensor,
    source: np.ndarray,
    destination: np.ndarray,
    relations: np.ndarray | None,
    classes: bool = False,
) -> Tensor:
    """Score pairs by number, with relations int64[pairs]: float[pairs], or float[pairs, classes] where `classes`."""
    ends = (take_rows(rows, _on(rows, each)) for each in (source, destination))
    found = scorer(*ends, *relations_for(scorer, relations, rows.device))
    return checked(scorer, found, len(source), -1) if classes else checked(scorer, found, len(source))


def _own(scorer: Scorer, rows: Tensor, step: EdgeStep, ends: list[np.ndarray]) -> Tensor:
    """Score edges with negatives of their own, int64[edges, K] for each end: float[edges, 1 + K]."""
    blocks = _blocks(scorer, ends)
    if blocks is None:
        count = 1 + sum(each.shape[1] for each in ends)
        pairs = [np.repeat(each[:, None], count, axis=1) for each in (step.source, step.destination)]
        pairs[1][:, 1 : 1 + ends[0].shape[1]] = ends[0]
        if len(ends) > 1:
            pairs[0][:, 1 + ends[0].shape[1] :] = ends[1]
        relations = None if step.relations is None else np.repeat(step.relations, count)
        source, destination = (each.reshape(-1) for each in pairs)
        return _of_pairs(scorer, rows, source, destination, relations).reshape(-1, count)

    # Each candidate meets all edges in one product; the negatives of each edge are then taken from it.
    numbers, places = zip(*blocks, strict=True)
    edge, *found = _products(scorer, rows, step, slice(None), numbers)
    taken = (scores.gather(1, _on(rows, each)) for scores, each in zip(found, places, strict=True))
    return torch.cat([edge, *taken], dim=1)


def _blocks(scorer: Scorer, ends: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return the distinct candidates of either end with their places, int64[u] and int64[edges, K].

    None where they are too many for products to be faster, or the scorer has none that are.
    """
    found = []
    for each in ends:
        vertices = DistinctVertices(distinct(each))
        # A product scores all edges with all candidates; with many distinct ones most scores would be thrown away.
        if len(vertices.ids) > scorer.candidates_at_once * each.shape[1]:
            return None
        found.append((vertices.ids, vertices.numbers(each)))
    return found


def _shared(scorer: Scorer, rows: Tensor, step: EdgeStep, replaced: Sequence[SharedEnds]) -> Iterator[Scores]:
    """Yield the scores of the edges that have the same candidates at each end."""
    kinds, kind = np.unique(np.stack([each.groups for each in replaced]), axis=1, return_inverse=True)
    for number, groups in enumerate(kinds.T.tolist()):
        chosen = np.flatnonzero(kind.reshape(-1) == number)
        lists = [each.lists[group] for each, group in zip(replaced, groups, strict=True)]
        edge, *found = _products(scorer, rows, step, chosen, lists)
        source, destination = step.source[chosen, None], step.destination[chosen, None]
        ends = (destination, source), (source, destination)
        for each, scores, candidates, (replaced_end, fixed) in zip(replaced, found, lists, ends, strict=False):
            own = candidates == replaced_end
            if each.known is not None:
                own |= each.known[chosen]
            if step.relations is None:
                # The edge's other end would make a loop, which plain graphs do not have.
                own |= candidates == fixed
            scores.masked_fill_(_on(rows, own), _NO_NEGATIVE * torch.finfo(scores.dtype).min)
        yield Scores(torch.cat([edge, *found], dim=1), len(lists[1]) if len(lists) > 1 else 0)


def _products(scorer: Scorer, rows: Tensor, step: EdgeStep, chosen: Rows, lists: Sequence[np.ndarray]) -> list[Tensor]:
    """Score the `chosen` edges, float[edges, 1], and each with all of `lists`, numbers in place of either end."""
    relations = None if step.relations is None else step.relations[chosen]
    relation = relations_for(scorer, relations, rows.device)
    source, destination = (take_rows(rows, _on(rows, each[chosen])) for each in (step.source, step.destination))
    found = [checked(scorer, scorer(source, destination, *relation), len(source))[:, None]]
    for numbers, replaces_source in zip(lists, (False, True), strict=False):
        candidates = take_rows(rows, _on(rows, numbers))
        if replaces_source:
            scores = scorer.all_sources(candidates, destination, *relation)
        else:
            scores = scorer.all_pairs(source, candidates, *relation)
        found.append(checked(scorer, scores, len(source), len(candidates)))
    return found


def _on(rows: Tensor, numbers: np.ndarray) -> Tensor:
    """Return `numbers` on the device of `rows`."""
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(rows.device)
