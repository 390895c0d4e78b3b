"""`hybrid`: full batch; for each rank, layer and vertex the cheapest of computing it again and having it sent.

The hybrid of NeutronStar (SIGMOD 2022), with projected rows and partial sums as further ways to send. It is chosen
before training by counts and by the rates of the machine (leapmpi/plan/machine_rates.py), under `--memory-limit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from leapmpi.engine.tuning_log import DEPENDENCIES, TuningLog, TuningRecord, agreed_rates
from leapmpi.exchange.layer_graphs import Chooser
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement, FullBatchRules, by_layer_strategy
from leapmpi.full_batch.hybrid_choice import HybridChoice
from leapmpi.plan.machine_rates import MachineRates


class Hybrid(FullBatchPlacement):
    """Each remote input is cached or communicated, by predicted seconds."""

    machine: MachineRates | None = None
    """The rates by which it was chosen, once that is settled."""

    def chooser(self, room: float = math.inf) -> Chooser:
        return HybridChoice(self.ctx, self.machine or self.ctx.machine, room)

    def settle(self, log: TuningLog) -> None:
        """Take the rates of rank 0, or those of the run that is replayed. Collective.

        Raises RunFolderError, on all ranks, where that run has recorded none.
        """
        if self.restored:
            return
        earlier = log.earlier(DEPENDENCIES, 0, 0)
        known = MachineRates.from_values(earlier.value) if earlier else self.ctx.machine
        rates = () if log.replays and not earlier else astuple(known)
        self.machine = MachineRates(*agreed_rates(rates, self.ctx.communicator, "choice of hybrid"))

    def record(self, log: TuningLog, evidence: Mapping[str, Any]) -> None:
        if not self.restored and self.ctx.rank == 0:
            assert self.machine is not None, "it is settled"
            log.make(TuningRecord(DEPENDENCIES, *log.begin, self.machine.to_values(), dict(evidence)))

    def state(self) -> dict[str, Any]:
        """Return the state with the rates by which inputs were split."""
        return super().state() | {"machine": self.machine.to_values() if self.machine else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Split by the same rates."""
        super().restore(state)
        self.machine = MachineRates.from_values(state["machine"])


MEMBER = by_layer_strategy(FullBatchRules(keeps_sums=True, chooses_kinds=True), FullBatchGraphs, Hybrid)
