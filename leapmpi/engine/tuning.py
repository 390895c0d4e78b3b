"""Choices before training: the rates of this job, the exchange mode, and candidates for time steps."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.config.setting import parse_size
from leapmpi.engine.calibration import counted_rates, local_roots, measured_rates
from leapmpi.engine.iteration_memory import predicted_memory
from leapmpi.engine.placement import mode_is_open, time_steps_are_open
from leapmpi.engine.tuner import Tuner
from leapmpi.engine.tuning_log import RATES, REMOTE, TIME_STEPS, TuningRecord, agreed_rates
from leapmpi.errors import counted
from leapmpi.exchange.selection import bytes_by_mode, compute_seconds_of, fewest_bytes, least_seconds
from leapmpi.features.shards.mapped_shard import MappedShard
from leapmpi.plan.cost_model import Counts, Rates, iteration_seconds
from leapmpi.plan.memory_model import Needs, TooLarge, too_much
from leapmpi.runs.text import size_text
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.system.memory import available_bytes

if TYPE_CHECKING:
    from leapmpi.engine.engine import Engine
    from leapmpi.exchange.minibatch import MiniBatch


@dataclass(frozen=True, eq=False)
class Candidate:
    """A number of time steps, with the counts of the first batch and the bytes of the fullest rank."""

    time_steps: int
    counts: Counts
    memory: int


def job_rates(engine: Engine, batch: np.ndarray | None) -> Rates:
    """Return the rates of this job: counted, measured for --time-steps measured, or of the replayed run. Collective.

    They are found once, and recorded as a decision of the run.
    """
    if engine.rates is None:
        engine.rates = _new_rates(engine, batch)
    return engine.rates


def choose_mode(engine: Engine, batch: np.ndarray | None) -> dict[str, int]:
    """Choose what crosses ranks for the first layer, where that is left to `engine`. Collective.

    Returns the bytes of the first iteration over all ranks by mode; empty where nothing was to choose.
    """
    if not mode_is_open(engine.placement):
        return {}
    minibatch = engine.plan(batch, 0, 0)
    found = bytes_by_mode(minibatch, engine.ctx)
    if not any(counts.any() for counts in found.values()):
        # Rows in files are read ahead of their iteration, if raw rows are requested.
        reads_files = isinstance(engine.ctx.features.shard, MappedShard) and "raw" in found
        engine.use_mode("raw" if reads_files else fewest_bytes(found))
    else:
        rates = job_rates(engine, batch)
        compute = engine.ctx.communicator.all_gather_rows(np.array([compute_seconds_of(minibatch, rates)])).max()
        name, seconds = least_seconds(found, float(compute), rates, engine.ctx.features.returned_row_bytes > 0)
        engine.use_mode(name)
        if engine.ctx.communicator.rank == 0:
            engine.tuning_log.make(TuningRecord(REMOTE, *engine.tuning_log.begin, name, {"predicted": seconds}))
    return {name: int(counts.sum()) for name, counts in found.items()}


def choose_placement(engine: Engine, batch: np.ndarray | None) -> None:
    """Choose the number of time steps, where the strategy leaves it open. Collective.

    Measured on the first `batch` (None but on rank 0). Raises TooLarge, on all ranks, where an iteration does not
    fit `--memory-limit`.
    """
    placement, given = engine.placement, engine.config.memory_limit
    if placement.restored:
        return
    limit = parse_size(given, "--memory-limit") if given else None
    if time_steps_are_open(placement):
        rates = job_rates(engine, batch)
        found = time_step_candidates(engine, batch, limit)
        ahead = engine.prefetch_depth > 0
        predicted = {each.time_steps: iteration_seconds(each.counts, rates, ahead=ahead) for each in found}
        # Begin with the fewest, and let measured times choose among them if they are to.
        placement.time_steps = min(predicted)
        placement.tuner = Tuner(placement.time_steps, predicted) if placement.config.time_steps == "measured" else None
        evidence = {"predicted": {str(steps): seconds for steps, seconds in predicted.items()}}
        evidence["memory"] = {str(each.time_steps): each.memory for each in found}
        log = engine.tuning_log
        log.make(TuningRecord(TIME_STEPS, *log.begin, placement.time_steps, evidence))
    elif limit is not None and engine.ctx.ranks == 1 and not engine.preparation.limits_memory:
        # One rank has nothing to choose, but the limit holds there too.
        time_step_candidates(engine, batch, limit)


def _new_rates(engine: Engine, batch: np.ndarray | None) -> Rates:
    ctx, log, measures = engine.ctx, engine.tuning_log, engine.config.time_steps == "measured"
    if log.replays:
        rates = _replayed_rates(engine)
    else:
        rates_of = measured_rates if measures else counted_rates
        rates = rates_of(ctx, local_roots(ctx, ctx.communicator.broadcast(engine.roots.vertices_of(batch), "schedule")))
    if ctx.communicator.rank == 0:
        evidence = {} if measures or log.replays else {"machine": ctx.machine.to_values()}
        log.make(TuningRecord(RATES, *log.begin, rates.to_values(), evidence))
    # What measuring has sent is no traffic of training.
    ctx.communicator.byte_counters.take()
    return rates


def _replayed_rates(engine: Engine) -> Rates:
    """Return the rates that rank 0 has from the earlier run, on all ranks. Collective."""
    earlier = engine.tuning_log.earlier(RATES, 0, 0)
    known = Rates.from_values(earlier.value).to_values().values() if earlier else ()
    return Rates(*agreed_rates(known, engine.ctx.communicator, "rates"))


def time_step_candidates(engine: Engine, batch: np.ndarray | None, limit: int | None) -> list[Candidate]:
    """Return numbers of time steps worth a look: the fewest that fit `limit` (bytes), then doublings up to the ranks.

    Sampled on streams of their own. Raises TooLarge, on all ranks, when none fits. Collective.
    """
    ranks = engine.ctx.communicator.size
    found: list[Candidate] = []
    for time_steps in (1,) if engine.one_time_step else _numbers(ranks, every=limit is not None):
        if found and time_steps < 2 * found[-1].time_steps and time_steps < ranks:
            continue
        candidate = _candidate(engine, batch, time_steps)
        if limit is None or candidate.memory <= limit:
            found.append(candidate)
    if not found:
        raise _too_large(engine, candidate)
    return found


def check_memory(engine: Engine, minibatch: MiniBatch) -> None:
    """Raise TooLarge where the iteration of `minibatch` takes more than machines have left. Collective.

    Engines that limit their memory have checked it.
    """
    if engine.preparation.limits_memory:
        return
    facts = Needs(socket.gethostname(), predicted_memory(engine, minibatch), 0, available_bytes())
    found = [Needs(*each) for each in engine.ctx.communicator.all_gather_objects(list(astuple(facts)))]
    why, room = too_much("an iteration", found, math.inf)
    if why:
        raise TooLarge(f"{why}; {_less(engine)}", room)


def _less(engine: Engine) -> str:
    """Return the advice that makes iterations smaller: also nothing ahead, and fewer negatives, if there are any."""
    ahead = "use --prefetch 0, which prepares no iterations ahead, " if engine.prefetch_depth else ""
    draws = engine.ctx.task.draws_negatives
    settings = "--batch-size, --fanout or --negatives-per-edge" if draws else "--batch-size or --fanout"
    return f"{ahead}lower {settings}"


def _too_large(engine: Engine, least: Candidate) -> TooLarge:
    """Return the error, the same on all ranks, where even `least` takes more than `--memory-limit`."""
    steps = counted(least.time_steps, "time step")
    return TooLarge(
        f"an iteration takes about {size_text(least.memory)} on a rank even in {steps}, more than --memory-limit "
        f"{engine.config.memory_limit}; {_less(engine)}, or raise the limit",
        parse_size(engine.config.memory_limit, "--memory-limit"),
    )


def _numbers(ranks: int, every: bool) -> Iterator[int]:
    """Yield 1, 2, 4 ... and the ranks; all numbers to find the fewest that fit."""
    if every:
        yield from range(1, ranks + 1)
        return
    number = 1
    while number < ranks:
        yield number
        number *= 2
    yield ranks


def _candidate(engine: Engine, batch: np.ndarray | None, time_steps: int) -> Candidate:
    """Count what all ranks would compute, move and hold with `batch` cut into `time_steps`. Collective."""
    # On a random stream of its own, so that training draws what it would without trials.
    ctx, key = engine.ctx, DrawKey(PRESAMPLE, engine.ctx.seed, 0, 0)
    minibatch = engine.draw(engine.roots.plan_shared(engine.roots.share(batch, key, time_steps), key), key)

    # Rows and edges by time step, bytes and memory of this rank; then those of all ranks.
    rows = [micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches]
    edges = [sum(block.edges for block in micro_batch.blocks) for micro_batch in minibatch.micro_batches]
    facts = [*rows, *edges, engine.mode.predicted_bytes(minibatch), predicted_memory(engine, minibatch)]
    gathered = ctx.communicator.all_gather_rows(np.array(facts, np.int64))

    # Rows that need no weights are fetched ahead of the step.
    moved, ahead = float(gathered[:, -2].max()), engine.fetches_ahead
    exchanges = 2 * time_steps if engine.mode.needs_weights else 0
    hops = time_steps - 1
    counts = Counts(
        rows=gathered[:, :time_steps],
        edges=gathered[:, time_steps : 2 * time_steps],
        bytes_ahead=moved if ahead else 0.0,
        bytes_within=0.0 if ahead else moved,
        hops=hops,
        hop_bytes=2.0 * ctx.parameters.gradients.nbytes,
        collectives=1 + exchanges,
        steps_synchronised=hops > 0 or exchanges > 0,
    )
    return Candidate(time_steps, counts, int(gathered[:, -1].max()))
