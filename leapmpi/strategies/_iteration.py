"""One iteration of any strategy: plan, fetch, step.

A strategy decides which rank trains which root at which time step (`schedule`, pure, on rank 0) and whether models
travel between steps. Everything else - sampling, the union of rows over the whole iteration, the weighted loss, the
order of collectives - is the same for all and stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.config import StrategyConfig
from leapmpi.fetch import RowFetcher
from leapmpi.nn.loss import weighted_loss
from leapmpi.nn.tensors import to_tensors
from leapmpi.phases import Phases
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.block import Block
from leapmpi.sampling.keys import TRAIN, DrawKey
from leapmpi.training.parameters import ParameterLayout
from leapmpi.wire import Wire


@dataclass
class Surroundings:
    """What a strategy works with on this rank."""

    wire: Wire
    phases: Phases
    sampler: Any
    model: Any
    parameters: ParameterLayout
    features: RowFetcher
    labels: RowFetcher
    rank_offsets: np.ndarray
    device: Any
    seed: int

    def root_labels(self, roots: np.ndarray) -> Any:
        """Labels of distinct `roots`: int64[n], or (n, classes) when multi-label. Collective."""
        labels = self.labels.fetch(roots)
        return labels if labels.is_floating_point() else labels.reshape(-1)


@dataclass
class Cell:
    """What this rank trains in one time step: roots int64, their blocks, and where its input rows stand in the union.

    `positions` is None when the union is the cell's own input, in order.
    """

    roots: np.ndarray
    blocks: list[Block]
    positions: np.ndarray | None


@dataclass
class Iteration:
    """One iteration on this rank. `rows` are the distinct vertices whose features its cells read."""

    schedule: Schedule
    key: DrawKey
    cells: list[Cell]
    rows: np.ndarray
    features: Any = None
    labels: Any = None


class Strategy(ABC):
    """Base of all strategies; its methods other than `schedule` are collective."""

    def __init__(self, surroundings: Surroundings, config: StrategyConfig) -> None:
        self.at = surroundings
        self.config = config
        self.time_steps = self.choose_time_steps(config, surroundings.wire.size)

    @staticmethod
    @abstractmethod
    def choose_time_steps(config: StrategyConfig, ranks: int) -> int:
        """The number of time steps of an iteration. Raises ConfigError for one this strategy cannot do."""

    @abstractmethod
    def schedule(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """Deal `batch` (int64 roots in shuffled order) to ranks and time steps. Pure; called on rank 0 only."""

    def after_step(self, step: int) -> None:
        """What travels when time step `step` is done. Collective."""
        del step

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> Iteration:
        """Rank 0 schedules `batch` (others pass None), all ranks learn it and sample their cells. Collective."""
        at = self.at
        with at.phases("plan"):
            own = None if batch is None else self.schedule(batch, epoch, iteration).to_buffer()
            schedule = Schedule.from_buffer(at.wire.broadcast(own, "schedule"))
        key = DrawKey(TRAIN, at.seed, epoch, iteration)
        with at.phases("sample"):
            cells = [self._cell(key, schedule.cell(at.wire.rank, t)) for t in range(schedule.time_steps)]
            rows = _union(cells)
        return Iteration(schedule, key, cells, rows)

    def fetch(self, work: Iteration) -> None:
        """Bring the input rows and root labels of the whole iteration here, each row once. Collective."""
        with self.at.phases("exchange"):
            work.features = self.at.features.fetch(work.rows)
            work.labels = self.at.root_labels(np.concatenate([cell.roots for cell in work.cells]))

    def step(self, work: Iteration) -> float:
        """Add the gradients of all cells to the parameters' and sum them over ranks. Collective.

        Returns this rank's share of the batch's loss: the sum over its roots of loss / batch size.
        """
        at, begin, loss = self.at, 0, 0.0
        at.parameters.gradients.zero_()
        for number, cell in enumerate(work.cells):
            labels = work.labels[begin : begin + len(cell.roots)]
            begin += len(cell.roots)
            with at.phases("compute"):
                loss += self._train(cell, work, labels)
            if number + 1 < len(work.cells):
                self.after_step(number)
        with at.phases("reduce"):
            at.wire.reduce(at.parameters.gradients)
        return loss

    def _cell(self, key: DrawKey, roots: np.ndarray) -> Cell:
        return Cell(roots, self.at.sampler.sample(key, roots), None)

    def _train(self, cell: Cell, work: Iteration, labels: Any) -> float:
        at = self.at
        blocks = [to_tensors(block, at.device) for block in cell.blocks]
        features = work.features if cell.positions is None else work.features[cell.positions]
        logits = at.model(blocks, features, work.key)
        loss = weighted_loss(logits, labels, 1.0 / work.schedule.batch_size)
        loss.backward()
        return float(loss.detach())


def _union(cells: list[Cell]) -> np.ndarray:
    """Distinct input vertices of all cells; sets each cell's positions in them (pre-gathering, LeapGNN section 3)."""
    if len(cells) == 1:
        return cells[0].blocks[-1].src
    inputs = [cell.blocks[-1].src for cell in cells]
    rows, inverse = np.unique(np.concatenate(inputs), return_inverse=True)
    begin = 0
    for cell, ids in zip(cells, inputs, strict=True):
        cell.positions = inverse[begin : begin + len(ids)]
        begin += len(ids)
    return rows
