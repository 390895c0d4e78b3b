"""What is settled before training: the rates of this job, what crosses ranks, and candidates for time steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.engine.calibration import measured_rates
from leapmpi.engine.first_layer.selection import bytes_by_mode, compute_seconds_of, fewest_bytes, least_seconds
from leapmpi.engine.tuning_log import TuningRecord
from leapmpi.errors import ResourceError, RunFolderError
from leapmpi.plan.cost_model import Counts, Rates, iteration_seconds
from leapmpi.plan.homes import home_of
from leapmpi.plan.schedule import Schedule
from leapmpi.runs.tables.sizes import size_text
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey

if TYPE_CHECKING:
    from leapmpi.engine.strategy import Strategy
    from leapmpi.strategies.leap import Leap

RATES, REMOTE = "rates", "remote"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A number of time steps: what the first batch would ask for, and the bytes of the fullest rank."""

    time_steps: int
    counts: Counts
    memory: int


def settled_rates(strategy: Strategy, batch: np.ndarray | None) -> Rates:
    """The rates of this job as measured once, or as the replayed run has them; a decision of the run. Collective."""
    if strategy.rates is None:
        strategy.rates = _settle_rates(strategy, batch)
    return strategy.rates


def settle_remote(strategy: Strategy, batch: np.ndarray | None) -> dict[str, int]:
    """Choose what crosses ranks for the first layer, where that is left to `strategy`. Collective.

    Returns the bytes of the first iteration over all ranks by mode; empty where nothing was to choose.
    """
    if not strategy.chooses_remote:
        return {}
    minibatch = strategy.plan(batch, 0, 0)
    found = bytes_by_mode(minibatch, strategy.ctx)
    if not any(counts.any() for counts in found.values()):
        strategy.use_remote(fewest_bytes(found))
    else:
        rates = settled_rates(strategy, batch)
        compute = strategy.ctx.communicator.all_gather_rows(np.array([compute_seconds_of(minibatch, rates)])).max()
        name, seconds = least_seconds(found, float(compute), rates)
        strategy.use_remote(name)
        if strategy.ctx.communicator.rank == 0:
            strategy.tuning_log.make(TuningRecord(REMOTE, *strategy.tuning_log.begin, name, {"predicted": seconds}))
    return {name: int(counts.sum()) for name, counts in found.items()}


def _settle_rates(strategy: Strategy, batch: np.ndarray | None) -> Rates:
    ctx, decisions = strategy.ctx, strategy.tuning_log
    if decisions.replays:
        rates = _replayed_rates(strategy)
    else:
        batch = ctx.communicator.broadcast(batch, "schedule")
        mine = batch[home_of(batch, ctx.rank_offsets) == ctx.communicator.rank]
        # A rank without a root of the batch at home takes some vertices there: ranks measure together.
        first, end = ctx.rank_offsets[ctx.communicator.rank : ctx.communicator.rank + 2]
        rates = measured_rates(ctx, mine if len(mine) else np.arange(first, min(end, first + 2)))
    if ctx.communicator.rank == 0:
        decisions.make(TuningRecord(RATES, *decisions.begin, rates.to_values()))
    ctx.communicator.byte_counters.take()
    return rates


def _replayed_rates(strategy: Strategy) -> Rates:
    """The rates that rank 0 has from the earlier run, on all ranks. Collective."""
    communicator, told = strategy.ctx.communicator, None
    if communicator.rank == 0:
        earlier = strategy.tuning_log.earlier(RATES, 0, 0)
        values = Rates.from_values(earlier.value).to_values().values() if earlier else ()
        told = np.array(list(values), np.float64).view(np.int64)
    found = communicator.broadcast(told, "control").view(np.float64)
    if not len(found):
        error = RunFolderError("the run to be replayed has recorded no rates; leave out --replay")
        error.agreed = True
        raise error
    return Rates(*found.tolist())


def candidates(strategy: Leap, batch: np.ndarray | None, limit: int | None) -> list[Candidate]:
    """Numbers of time steps worth a look: the fewest that fit `limit` (bytes), then doublings up to the ranks.

    Sampled on streams of their own. Raises ResourceError, on all ranks, when none fits. Collective.
    """
    ranks, found = strategy.ctx.communicator.size, []
    for time_steps in _numbers(ranks, every=limit is not None):
        if found and time_steps < 2 * found[-1].time_steps and time_steps < ranks:
            continue
        candidate = _candidate(strategy, batch, time_steps)
        if limit is None or candidate.memory <= limit:
            found.append(candidate)
    if not found:
        raise _too_large(strategy, candidate)
    return found


def _too_large(strategy: Leap, least: Candidate) -> ResourceError:
    """The error, the same on all ranks, where even `least` takes more than `--memory-limit`."""
    steps = f"{least.time_steps} time step{'s' * (least.time_steps > 1)}"
    ahead = "use --prefetch 0, which prepares no iterations ahead, " if strategy.most_ahead else ""
    error = ResourceError(
        f"an iteration takes about {size_text(least.memory)} on a rank even in {steps}, more than --memory-limit "
        f"{strategy.config.memory_limit}; {ahead}lower --batch-size or --fanout, or raise the limit"
    )
    error.agreed = True
    return error


def predicted_seconds(found: list[Candidate], rates: Rates) -> dict[int, float]:
    """Seconds of an iteration by number of time steps."""
    return {each.time_steps: iteration_seconds(each.counts, rates) for each in found}


def _numbers(ranks: int, every: bool) -> Iterator[int]:
    """1, 2, 4 ... and the ranks; all numbers where the fewest that fit are looked for."""
    if every:
        yield from range(1, ranks + 1)
        return
    number = 1
    while number < ranks:
        yield number
        number *= 2
    yield ranks


def _candidate(strategy: Leap, batch: np.ndarray | None, time_steps: int) -> Candidate:
    """What all ranks would compute, move and hold with `batch` cut into `time_steps`. Collective."""
    ctx = strategy.ctx
    flat = None if batch is None else strategy.cut(batch, time_steps, 0, 0).to_buffer()
    schedule = Schedule.from_buffer(ctx.communicator.broadcast(flat, "schedule"))
    minibatch = strategy.sampled(schedule, DrawKey(PRESAMPLE, ctx.seed, 0, 0))
    rows = [micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches]
    edges = [sum(block.edges for block in micro_batch.blocks) for micro_batch in minibatch.micro_batches]
    facts = [*rows, *edges, strategy.remote.predicted_bytes(minibatch), strategy.predicted_memory(minibatch)]
    gathered = ctx.communicator.all_gather_rows(np.array(facts, np.int64))
    rows, edges = gathered[:, :time_steps], gathered[:, time_steps : 2 * time_steps]
    moved, ahead = float(gathered[:, -2].max()), strategy.remote_name == "raw"
    exchanges = 0 if ahead else 2 * time_steps
    hops = time_steps - 1 if strategy.config.migrate == "ring" else 0
    counts = Counts(
        rows=rows,
        edges=edges,
        bytes_ahead=moved if ahead else 0.0,
        bytes_within=0.0 if ahead else moved,
        hops=hops,
        hop_bytes=2.0 * ctx.parameters.gradients.nbytes,
        collectives=1 + exchanges,
        together=hops > 0 or exchanges > 0,
    )
    return Candidate(time_steps, counts, int(gathered[:, -1].max()))
