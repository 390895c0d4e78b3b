"""`--balance-parts`: the assignment of parts to ranks from the next epoch on, by the seconds that epochs took.

Seconds that ranks computed are fitted to counts of their parts (leapmpi/plan/part_balance.py). The assignment with the
fastest slowest rank is taken where it pays. If epochs are no faster with it, the former assignment returns for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.engine import Engine
from leapmpi.engine.tuning_log import PARTS, TuningRecord
from leapmpi.nn.layer import Layer, costs
from leapmpi.plan.homes import home_of
from leapmpi.plan.part_balance import PartCounts, assigned, fitted, rank_seconds, slowness

_EPOCHS = 3
"""Number of epochs whose medians judge an assignment; the first one with it is left out."""

_CLEARLY = 0.95
"""The slowest rank must be predicted to take less than this fraction of its seconds."""

_READ_SECONDS = 2e-9
"""Seconds to read a byte of the features that move."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Medians of a few epochs with one assignment: seconds of computing float64[ranks], and of an epoch."""

    starts: np.ndarray
    seconds: np.ndarray
    epoch: float

    def to_values(self) -> dict[str, Any]:
        """Return plain values, for checkpoints."""
        return {"starts": self.starts.tolist(), "seconds": self.seconds.tolist(), "epoch": self.epoch}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Observation:
        """Return the observation whose `to_values` are given."""
        return cls(np.array(values["starts"]), np.array(values["seconds"]), values["epoch"])


@dataclass
class PartAssignment:
    """Observations and decisions about parts; the same on all ranks except for the records of `decide`, on rank 0.

    starts: int64[ranks + 1], the first part of each rank. seconds: for each epoch with this assignment, seconds of
    computing by rank, then those of the epoch.
    """

    dataset: Dataset
    topology: Topology
    starts: np.ndarray
    seconds: list[list[float]] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)
    settled: bool = False
    _segments: np.ndarray | None = None

    def decide(self, engine: Engine, epoch: int, left: int) -> np.ndarray | None:
        """Decide on a better assignment from `epoch` on, with `left` epochs to come; record it. On rank 0.

        Returns int64[ranks + 1], or None to keep the parts in place.
        """
        log = engine.tuning_log
        if log.replays:
            earlier = log.earlier(PARTS, epoch, 0)
            found = (np.array(earlier.value, np.int64), dict(earlier.evidence)) if earlier else None
        else:
            found = self._better(engine, left)
        if found is None:
            return None
        starts, evidence = found
        log.make(TuningRecord(PARTS, epoch, 0, starts.tolist(), evidence))
        return starts

    def take(self, starts: np.ndarray) -> None:
        """Note that parts are distributed by `starts` from now on. Local."""
        self.starts, self.seconds = starts, []

    def moved_bytes(self, starts: np.ndarray, row_bytes: int) -> int:
        """Count the bytes of features, rows of `row_bytes`, whose owner `starts` changes. Local."""
        offsets = self.dataset.offsets
        before, after = offsets[self.starts], offsets[starts]
        stay = np.minimum(before[1:], after[1:]) - np.maximum(before[:-1], after[:-1])
        return int(offsets[-1] - np.maximum(stay, 0).sum()) * row_bytes

    def state(self) -> dict[str, Any]:
        """Return plain values for checkpoints. Those of rank 0 hold."""
        observed = [each.to_values() for each in self.observed]
        kept = {"settled": self.settled, "seconds": self.seconds, "observed": observed}
        return {"starts": self.starts.tolist(), **kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the `state` of an earlier start, whose parts the ranks hold. Local."""
        self.seconds, self.settled = list(state["seconds"]), state["settled"]
        self.observed = [Observation.from_values(each) for each in state["observed"]]

    def _better(self, engine: Engine, left: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        """Return a distribution that pays over `left` epochs, and the evidence."""
        if self.settled or not left or len(self.seconds) <= _EPOCHS:
            return None
        *seconds, epoch = np.median(self.seconds[-_EPOCHS:], axis=0).tolist()
        now = Observation(self.starts, np.array(seconds), epoch)
        before = self.observed[-1] if self.observed else None
        self.observed.append(now)
        # One epoch is kept in place of the first one with an assignment, which is never judged.
        self.seconds = self.seconds[-1:]

        # An assignment that did not help is undone for good: trying again would move parts to and fro.
        if before and not np.array_equal(before.starts, now.starts) and now.epoch >= before.epoch:
            self.settled = True
            return before.starts, {"why": "epochs were no faster", "seconds": [before.epoch, now.epoch]}

        # All observations are fitted together: one assignment alone cannot tell a slow host from costly parts.
        counts = self._counts(engine)
        weights = fitted(
            np.concatenate([rank_seconds(counts, each.starts) for each in self.observed]),
            np.concatenate([each.seconds for each in self.observed]),
        )
        predicted = counts @ weights
        slow = slowness(
            np.stack([each.seconds for each in self.observed]),
            np.stack([rank_seconds(predicted, each.starts) for each in self.observed]),
        )
        starts = assigned(predicted, slow)
        slowest, least = (float((slow * rank_seconds(predicted, each)).max()) for each in (now.starts, starts))
        moved = self.moved_bytes(starts, engine.ctx.features.shard.row_bytes)
        price = engine.preparation.planning_seconds + _READ_SECONDS * moved
        tried = any(np.array_equal(starts, each.starts) for each in self.observed)
        if tried or least >= _CLEARLY * slowest or (slowest - least) * left <= price:
            return None
        evidence = {"weights": weights.tolist(), "predicted": [slowest, least], "seconds": now.seconds.tolist()}
        return starts, evidence | {"slowness": slow.tolist(), "price": price}

    def _counts(self, engine: Engine) -> np.ndarray:
        """Return the counts of all segments of parts, float64[P + 1, P + 1, 3]."""
        if self._segments is None:
            train, offsets = self.dataset.splits.train, self.dataset.offsets
            found = part_counts(self.topology, train, offsets, engine.ctx.model.layers)
            self._segments = found.of_segments()
        return self._segments


def part_counts(topology: Topology, train: np.ndarray, offsets: np.ndarray, layers: Sequence[Layer]) -> PartCounts:
    """Count vertices, edges and boundaries of the layers that parts compute for the training vertices `train`,
    int64[n].

    offsets: int64[P + 1], the first vertex of each part. Each layer counts by its work: vertices and edges in
    multiply-adds, rows that are read of other parts in numbers. Takes a pass over the edges for each layer.
    """
    # From the last layer down, as graphs are built: a layer computes the sources that the layer above reads.
    parts = len(offsets) - 1
    counts = PartCounts(np.zeros((parts, 2)), np.zeros((parts, parts)))
    computed = np.zeros(topology.vertices, bool)
    computed[train] = True
    for number, layer in reversed(list(enumerate(layers))):
        of_vertex, of_edge = _work(layer, number > 0)
        below = computed.copy()
        for part, (first, end) in enumerate(pairwise(offsets.tolist())):
            mine = first + np.flatnonzero(computed[first:end])
            sources = topology.in_neighbours(mine)
            counts.own[part] += len(mine) * of_vertex, len(sources) * of_edge

            # Distinct rows of other parts.
            read = np.zeros(topology.vertices, bool)
            read[sources] = True
            below |= read
            read[first:end] = False
            counts.read[part] += layer.in_dim * np.bincount(home_of(np.flatnonzero(read), offsets), minlength=parts)
        computed = below
    return counts


def _work(layer: Layer, passes_on: bool) -> tuple[int, int]:
    """Return multiply-adds of a destination of `layer` and of an edge; `passes_on` says that its input has a
    gradient.
    """
    (source, _), (_, row) = costs(layer, 1, 0, 0, passes_on), costs(layer, 0, 1, 0, passes_on)
    before, after = costs(layer, 0, 0, 1, passes_on)
    return (row, min(before, after)) if layer.linear else (source + row, before)
