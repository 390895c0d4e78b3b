"""Scorers: how likely an edge between two embedded vertices is, or each class of it. Their parameters are part of the
model's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.errors import ConfigError
from leapmpi.nn.tensors import operations
from leapmpi.registry import Member, Registry

_NUMBERS = 1 << 18
"""Numbers of pairs of rows that are scored at a time: as many as a core's cache holds."""


class Scorer(nn.Module):
    """One way to score pairs of embeddings; higher is likelier."""

    relations = 0
    """Number of relations with a vector of their own; 0 where scores do not depend on the relation. With them, each
    method takes relations int64[pairs], or those of the end that comes with them, as its last argument."""

    candidates_at_once = 0.0
    """Distinct candidates, for each negative of an edge, up to which `all_pairs` is faster than single pairs."""

    def for_sources(self) -> tuple[Scorer, bool]:
        """Return the scorer of candidates in place of sources, and whether it reads them as sources.

        Another scorer may read edges backwards, candidates as destinations. It then scores the true edges, too.
        """
        return self, True

    @abstractmethod
    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Score float[pairs, D] twice -> float[pairs], or float[pairs, classes] of classes.

        Row by row, so that it matters not which rank scores a pair.
        """

    @abstractmethod
    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        """Score float[k, D], float[n, D] -> float[k, n]: every source with every destination, as `forward`."""

    def all_sources(self, source: Tensor, destination: Tensor) -> Tensor:
        """Score float[n, D], float[k, D] -> float[k, n]: every destination with every source, as `forward`."""
        return every_pair(lambda ends, others: self(others, ends), destination, source)


def checked(scorer: Scorer, scores: Any, *shape: int) -> Tensor:
    """Return the `scores` that `scorer` returned. Raises ConfigError unless they are real numbers of this `shape`.

    A last length of -1 stands for one score, or for one of each class.
    """
    named = f"link.scorer: {type(scorer).__name__} returned"
    wanted = f"real numbers of shape {[length for length in shape if length >= 0]}"
    if not isinstance(scores, Tensor):
        raise ConfigError(f"{named} {type(scores).__name__} and not {wanted}")
    found = (*scores.shape[:1], -1) if shape[-1] < 0 and scores.ndim in (1, 2) else scores.shape
    if tuple(found) != shape or not scores.is_floating_point():
        kind = str(scores.dtype).removeprefix("torch.")
        raise ConfigError(f"{named} {kind} of shape {list(scores.shape)} and not {wanted}")
    return scores


def every_pair(score: Callable[[Tensor, Tensor], Tensor], rows: Tensor, others: Tensor) -> Tensor:
    """Score each of `rows` (float[k, D]) with each of `others` (float[n, D]) by `score` of pairs: float[k, n]."""
    # One row at a time would take as many calls as there are rows; all at once would leave the cache.
    step, found = max(1, _NUMBERS // max(1, others.numel())), []
    for some in rows.split(step):
        pairs = some[:, None].expand(-1, len(others), -1), others.expand(len(some), -1, -1)
        found.append(score(*(each.flatten(0, 1) for each in pairs)).unflatten(0, (len(some), len(others))))
    return torch.cat(found)


@dataclass(frozen=True)
class ScorerMember(Member):
    """A scorer: build(width) -> Scorer of embeddings of `width` columns.

    One that scores classes takes build(width, classes); `classes` 0 gives one score. One that reads relations takes
    build(width, relations=R); 0 is a plain graph.
    """

    build: Callable[..., Scorer]
    scores_classes: bool = False
    reads_relations: bool = False


SCORERS = Registry("scorer", "leapmpi.nn.scorers", ScorerMember)


def build_scorer(name: str, width: int, classes: int = 0, relations: int = 0) -> Scorer:
    """Build the scorer called `name`, of embeddings of `width` columns, and of `classes` if these are scored.

    relations: their number in a typed graph. Raises ConfigError for an unknown one, or one that does not score classes.
    """
    member = SCORERS.load(name)
    if not classes:
        return member.build(width, relations=relations) if relations and member.reads_relations else member.build(width)
    if not member.scores_classes:
        fitting = [each for each in SCORERS.names() if SCORERS.load(each).scores_classes]
        raise ConfigError(
            f"link.scorer: {name} gives a pair one score, not one of each class; use {' or '.join(fitting)}"
        )
    return member.build(width, classes)


def relations_for(scorer: Scorer, relations: np.ndarray | None, device: torch.device) -> list[Tensor]:
    """Return the last argument of `scorer` for pairs of these relations (int64[pairs]), if it takes one."""
    return [] if relations is None or not scorer.relations else [torch.from_numpy(relations).to(device)]


class _TakeRows(Function):
    """Rows by number. Gradients of a row add up in order of position, by one thread: the same in every run."""

    @staticmethod
    def forward(ctx, rows: Tensor, numbers: Tensor) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.rows = len(rows)
        return rows[numbers]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (numbers,) = ctx.saved_tensors
        return sums_by_row(grad.contiguous(), numbers, ctx.rows), None


def sums_by_row(values: Tensor, numbers: Tensor, rows: int) -> Tensor:
    """Add up `values` (float[k, D]) by their number (int64[k]), in order: float[rows, D]."""
    order = torch.argsort(numbers, stable=True)
    bounds = torch.searchsorted(numbers[order], torch.arange(rows + 1, device=numbers.device))
    return operations(values.device).edge_sums(bounds, order, values)


def take_rows(rows: Tensor, numbers: Tensor) -> Tensor:
    """Take rows[numbers]: float[k, D] from float[n, D] and int64[k]. Differentiable, the same in every run."""
    return _TakeRows.apply(rows, numbers)
