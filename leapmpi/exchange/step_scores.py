"""Scores of a time step's pairs: pair by pair, or all candidates of an edge's end by one matrix product."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.scorer import Scorer, relations_for, take_rows
from leapmpi.plan.distinct_vertices import DistinctVertices, distinct
from leapmpi.plan.edge_plan import EdgeStep


def scores_of(scorer: Scorer, rows: Tensor, step: EdgeStep, per_edge: int, sources: int) -> Tensor:
    """Score the pairs of `step`, whose ends are `rows` (float[n, D]): float[pairs], or float[pairs, classes].

    per_edge: pairs of an edge, itself first; sources: how many of them, the last ones, replace its source.
    """
    blocks = _blocks(scorer, step, per_edge, sources)
    if blocks is None:
        ends = (take_rows(rows, _on(rows, each)) for each in (step.source, step.destination))
        return scorer(*ends, *relations_for(scorer, step.relations, rows.device))

    # Each candidate meets all edges in one product; the pairs of the step are then taken from it.
    relations = None if step.relations is None else np.ascontiguousarray(step.relations[::per_edge])
    relation = relations_for(scorer, relations, rows.device)
    source, destination = (take_rows(rows, _on(rows, each[::per_edge])) for each in (step.source, step.destination))
    found = [scorer(source, destination, *relation)[:, None]]
    for (numbers, places), replaces_source in zip(blocks, (False, True), strict=False):
        candidates = take_rows(rows, _on(rows, numbers))
        if replaces_source:
            scores = scorer.all_sources(candidates, destination, *relation)
        else:
            scores = scorer.all_pairs(source, candidates, *relation)
        found.append(scores.gather(1, _on(rows, places)))
    return torch.cat(found, dim=1).reshape(-1)


def _blocks(scorer: Scorer, step: EdgeStep, per_edge: int, sources: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return the distinct candidates of either end with their places, int64[u] and int64[edges, K].

    None where they are too many for products to be faster, or the scorer has none that are.
    """
    if not scorer.candidates_at_once or per_edge == 1 or not len(step.source):
        return None
    last, found = per_edge - sources, []
    of_ends = step.destination.reshape(-1, per_edge)[:, 1:last], step.source.reshape(-1, per_edge)[:, last:]
    for block in of_ends[: 1 + bool(sources)]:
        vertices = DistinctVertices(distinct(block))
        if len(vertices.ids) > scorer.candidates_at_once * block.shape[1]:
            return None
        found.append((vertices.ids, vertices.numbers(block)))
    return found


def _on(rows: Tensor, numbers: np.ndarray) -> Tensor:
    """Return `numbers` on the device of `rows`."""
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(rows.device)
