"""Roots of a batch: from rank 0 to all ranks, with the plan of who trains them, and with their labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from leapmpi.engine.batch_rows import check_time_steps
from leapmpi.engine.placement import Placement, plans_ahead, trains_labelled
from leapmpi.engine.schedule_broadcast import Coming, Reading, ScheduleBroadcast
from leapmpi.engine.tuning_log import TuningLog
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.schedule import Schedule
from leapmpi.system.counter_rng import DrawKey

if TYPE_CHECKING:
    from leapmpi.dataset.partitioned import Dataset

Plan = Schedule | EdgePlan
"""A batch and the assignment of its roots to ranks, the same on all ranks."""

Sample = Callable[[Schedule, DrawKey], MiniBatch]
"""Function that makes this rank's mini-batch of a schedule."""


DrawnFor = Callable[[np.ndarray, int, int], np.ndarray]
"""Function (batch, epoch, iteration) -> int64: the roots of the batch for which this rank draws; pure."""


class RootSource(ABC):
    """Source of the roots of each batch: vertices of the training split, or ends of edges."""

    embeds_remotely = False
    """Whether embeddings of roots cross ranks, so that the loss can be computed."""

    def __init__(self, ctx: RankContext, placement: Placement, tuning_log: TuningLog) -> None:
        self.ctx, self.placement, self.tuning_log = ctx, placement, tuning_log

    def read_by(self, read: np.ndarray | None) -> None:
        """Let plans have for each rank the cells of the ranks `read`, int64[ranks, k], or of all of them. Local."""
        return

    @abstractmethod
    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> Plan:
        """Plan `batch`, given on rank 0, for all ranks. Collective."""

    @abstractmethod
    def share(self, batch: np.ndarray | None, key: DrawKey, time_steps: int) -> Any:
        """Share with all ranks what `plan_shared` needs of `batch`, in so many time steps. Collective.

        batch: as in `plan`. Later plans do not depend on it.
        """

    @abstractmethod
    def plan_shared(self, shared: Any, key: DrawKey) -> Plan:
        """Make the plan of all ranks from the result of `share`. Local and pure."""

    @abstractmethod
    def draw(self, plan: Plan, key: DrawKey, sample: Sample) -> MiniBatch:
        """Make this rank's mini-batch of `plan` by `sample`. Collective only where `sample` or the topology is."""

    @abstractmethod
    def label(self, minibatch: MiniBatch, roots: Sequence[np.ndarray], local: bool) -> None:
        """Fetch weights and labels of `roots` (int64, by micro-batch). Collective unless `local` on all ranks."""

    @abstractmethod
    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        """Return the vertices int64 to embed for `batch` on rank 0; None elsewhere. Local."""

    @abstractmethod
    def rehearsed(self, batch: np.ndarray | None, key: DrawKey, drawn_for: DrawnFor) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices that this rank, and all ranks, draw for in an iteration of a dry run: int64, distinct.

        batch: as in `plan`, but on all ranks where vertices are roots. Collective where edges are.
        """

    @abstractmethod
    def expected(self, dataset: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
        """Return the vertices that a batch may embed, int64, and about how many it does. Local."""

    def expect(self, coming: Sequence[Coming]) -> None:
        """Announce the iterations to be planned next, in order, so that they may be planned together. Local."""
        return

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        """Return whether each rank holds the labels of the roots that it labels; all ranks agree. Local."""
        return True


class VertexRoots(RootSource):
    """Training vertices as roots. Rank 0 schedules each batch and sends each rank what it reads of the schedule."""

    def __init__(self, ctx: RankContext, placement: Placement, tuning_log: TuningLog) -> None:
        super().__init__(ctx, placement, tuning_log)
        self._schedules = ScheduleBroadcast(ctx.communicator)

    def read_by(self, read: np.ndarray | None) -> None:
        reading = None if read is None else Reading(read, self.ctx.rank_offsets)
        self._schedules = ScheduleBroadcast(self.ctx.communicator, reading)

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> Schedule:
        with self.ctx.phases("plan"):
            schedule = self._schedules.schedule(batch, epoch, iteration, self._decided)
        self.placement.time_steps = schedule.time_steps
        check_time_steps(self.ctx.model, schedule.time_steps, trains_labelled(self.placement))
        return schedule

    def expect(self, coming: Sequence[Coming]) -> None:
        ahead = plans_ahead(self.placement) and not self.tuning_log.replays
        self._schedules.expect(coming if ahead else ())

    def share(self, batch: np.ndarray | None, key: DrawKey, time_steps: int) -> Schedule:
        def make(batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
            return self.placement.schedule(batch, epoch, iteration, time_steps)

        return self._schedules.alone(batch, key.epoch, key.iteration, make)

    def plan_shared(self, shared: Schedule, key: DrawKey) -> Schedule:
        return shared

    def draw(self, plan: Plan, key: DrawKey, sample: Sample) -> MiniBatch:
        return sample(of_kind(plan, Schedule), key)

    def label(self, minibatch: MiniBatch, roots: Sequence[np.ndarray], local: bool) -> None:
        ctx, size = self.ctx, minibatch.planned.batch_size
        minibatch.root_weights = [ctx.sampler.root_weights(minibatch.key, each, size) for each in roots]
        labels = ctx.root_labels(np.concatenate(roots), local)
        minibatch.labels = labels.split([len(each) for each in roots])

    def vertices_of(self, batch: np.ndarray | None) -> np.ndarray | None:
        return batch

    def rehearsed(self, batch: np.ndarray | None, key: DrawKey, drawn_for: DrawnFor) -> tuple[np.ndarray, np.ndarray]:
        assert batch is not None, "all ranks have the batch"
        return drawn_for(batch, key.epoch, key.iteration), batch

    def expected(self, dataset: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
        return dataset.splits.train, batch_size

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        return trains_labelled(self.placement) and minibatch.planned.is_local(self.ctx.rank_offsets)

    def _decided(self, batch: np.ndarray, epoch: int, iteration: int) -> Schedule:
        """Schedule `batch` once the placement has decided what changes from this iteration on. On rank 0."""
        self.placement.decide(self.tuning_log, epoch, iteration)
        return self.placement.schedule(batch, epoch, iteration)


P = TypeVar("P", Schedule, EdgePlan)


def of_kind(plan: Plan, kind: type[P]) -> P:
    """Return `plan`, which its source made as one of `kind`."""
    assert isinstance(plan, kind), "a source draws what it planned"
    return plan
