"""Second light of a verdict: where did the time and the memory go? Each rule reads recorded figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.report.lights import FAIR, GOOD, Advice, Light, light
from leapmpi.report.numbers import SECONDS, SHARE, shown
from leapmpi.report.run_data import RunData


def speed(run: RunData) -> Light:
    """Return the light about time and memory, from the records of the run alone."""
    known = bool(run.epoch_seconds and run.phase_means())
    advice = [*(_of_time(run) if known else ()), *_of_memory(run)]
    return light("Speed", _time(run), advice, known)


def _time(run: RunData) -> str:
    """Describe the time of an epoch by phase."""
    phases, epoch = run.phase_means(), run.epoch_seconds
    if not epoch or not phases:
        return "No complete epoch is recorded, so its time is unknown."
    # The largest phases and all others together, so that shares add up to the epoch.
    largest = [name for name in sorted(phases, key=lambda name: -phases[name])[:3] if phases[name] > 0.02 * epoch]
    rest = sum(phases.values()) - sum(phases[name] for name in largest)
    seconds = {**{name: phases[name] for name in largest}, **({"other": rest} if rest > 0 else {})}
    parts = [f"{name} {shown(each / sum(phases.values()), SHARE)}" for name, each in seconds.items()]
    rows = run.median("rows")
    remote = rows.get("remote", 0) / max(1, sum(rows.values()))
    fetched = f"; {shown(remote, SHARE)} of the rows came from other ranks" if run.size > 1 else ""
    which = "A first (cold) epoch" if run.only_cold else "A warm epoch"
    return f"{which} takes {shown(epoch, SECONDS)}: {', '.join(parts)}{fetched}."


def _of_time(run: RunData) -> Iterator[Advice]:
    phases, epoch, config = run.phase_means(), run.epoch_seconds or 1.0, run.config
    share = {name: seconds / epoch for name, seconds in phases.items()}
    last = run.warm[-1]

    # Time spent on other ranks: remote rows, uneven work, gradients.
    fetching = share.get("exchange", 0.0) + share.get("gather", 0.0) * (run.size > 1)
    if run.size > 1 and fetching > 0.3:
        mends = []
        # Learned rows are fetched after the step before, and copies of them would be out of date.
        learned = run.median("bytes").get("row gradients", 0) > 0
        stored = last.get("remote") == "raw" and run.median("rows").get("remote", 0) > 0 and not learned
        if stored and "cache" not in last:
            mends.append("--cache 0.05 keeps frequently read rows")
        if config and config.strategy.remote != "auto":
            mends.append("--remote auto takes the mode predicted to be fastest")
        if stored and not last.get("prefetch"):
            mends.append("--prefetch 1 overlaps fetching with training")
        if config and config.strategy.name == "pull":
            mends.append("--strategy leap trains roots where their neighbours are stored")
        mends = mends or ["a partition with a smaller cut (leapmpi-prep compare) would move less"]
        yield Advice(
            fetching, FAIR, f"{shown(fetching, SHARE)} of an epoch is spent on remote rows: {'; '.join(mends)}."
        )
    uneven = run.imbalance
    if uneven and uneven > 1.25 and run.size > 1:
        mend = "leapmpi-prep partition --balance work evens it out"
        yield Advice(1 - 1 / uneven, FAIR, f"The busiest rank works {shown(uneven)} times the mean: {mend}.")
    if (idle := share.get("wait", 0.0)) > 0.25 and run.size > 1 and not (uneven and uneven > 1.25):
        yield Advice(idle, FAIR, f"Ranks wait for {shown(idle, SHARE)} of an epoch: --timeline shows why.")
    if (reducing := share.get("reduce", 0.0)) > 0.3:
        yield Advice(
            reducing,
            FAIR,
            f"{shown(reducing, SHARE)} of an epoch sums gradients: a larger --batch-size does so less often.",
        )

    # Time of a rank's own work that settings can shorten.
    if (sampling := share.get("sample", 0.0)) > 0.4:
        mend = (
            "fewer neighbours (--fanout)"
            if last.get("prefetch")
            else "--prefetch 1 overlaps sampling with training, or fewer neighbours (--fanout)"
        )
        yield Advice(sampling, FAIR, f"{shown(sampling, SHARE)} of an epoch draws neighbours: {mend}.")
    if (saving := share.get("checkpoint", 0.0)) > 0.05:
        yield Advice(
            saving, FAIR, f"{shown(saving, SHARE)} of an epoch writes checkpoints: a longer --checkpoint-every."
        )
    yield from _around_epochs(run)


def _around_epochs(run: RunData) -> Iterator[Advice]:
    """Compare evaluation and start with training, and predictions with measurements."""
    training = sum(each.get("seconds", 0.0) for each in run.epochs) or 1.0
    evaluation = sum(each.get("evaluation_seconds", 0.0) for each in run.epochs)
    if evaluation > 0.5 * training and len(run.scored) > 2:
        yield Advice(
            evaluation / (evaluation + training),
            FAIR,
            f"Evaluation takes {evaluation / training:.1f} times as long as training: --eval-every 5, or a smaller "
            "--eval-fanout.",
        )
    whole = run.ended.get("seconds")
    if whole and (rest := whole - training - evaluation) > 0.5 * whole and rest > 10:
        yield Advice(0.05, GOOD, f"{shown(rest, SECONDS)} went into the start (loading, compiling) and the end.")
    choice: Mapping[str, Any] = run.last("banner").get("strategy_choice") or {}
    predicted = choice.get("forecasts", {}).get(choice.get("strategy"), {}).get("seconds")
    if predicted and run.epoch_seconds and not 0.5 < run.epoch_seconds / predicted < 2:
        yield Advice(
            0.04,
            GOOD,
            f"An epoch was predicted to take {shown(predicted, SECONDS)} and takes "
            f"{shown(run.epoch_seconds, SECONDS)}: leapmpi doctor --measure calibrates predictions for this machine.",
        )


def _of_memory(run: RunData) -> Iterator[Advice]:
    peaks, ranks = run.ended.get("peak_memory_bytes"), run.ranks
    if not peaks or len(peaks) != len(ranks):
        return
    hosts: dict[str, float] = {}
    for peak, each in zip(peaks, ranks, strict=True):
        # Memory taken after the banner must have been free at that time.
        hosts[each.get("host", "")] = hosts.get(each.get("host", ""), 0.0) + max(0.0, peak - each.get("memory", 0.0))
    for each in ranks:
        free, host = each.get("free"), each.get("host", "")
        if free and hosts.get(host, 0.0) > 0.8 * free:
            hosts.pop(host)
            yield Advice(
                0.5,
                FAIR,
                f"Host {host} almost ran out of memory: --memory-limit, more ranks, or "
                "--topology sharded would use less.",
            )
