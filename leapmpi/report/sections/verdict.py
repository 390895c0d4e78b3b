"""Verdict on a run by fixed rules: result, time by phase, advice.

Each rule reads only recorded figures and yields one sentence. Advice is ordered by its possible gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leapmpi.report.markup import Markup, bullets, element
from leapmpi.report.numbers import SECONDS, SHARE, shown
from leapmpi.report.run_data import RUNNING, RunData
from leapmpi.report.sections.plan_and_measured import imbalance
from leapmpi.runs.run import FAILED, INTERRUPTED

GOOD, FAIR, BAD = "good", "fair", "bad"

_WORDS = {GOOD: "Good", FAIR: "Fair", BAD: "Bad"}


@dataclass(frozen=True)
class Verdict:
    """Verdict on one run: `light` is GOOD, FAIR or BAD; `advice` is ordered, most useful first."""

    light: str
    reached: str
    time: str
    advice: list[str]


@dataclass(frozen=True)
class _Advice:
    """Advice with its `gain`, a share of the run's time (1 and more for faults), and the least `light` it implies."""

    gain: float
    light: str
    sentence: str


def verdict(run: RunData) -> Verdict:
    """Return the verdict on a run, from its records alone."""
    advice = sorted(_advice(run), key=lambda each: -each.gain)
    lights = [each.light for each in advice]
    light = BAD if BAD in lights else FAIR if FAIR in lights else GOOD
    return Verdict(light, _reached(run), _time(run), [each.sentence for each in advice])


def box(run: RunData, several: bool) -> Markup:
    """Return the verdict box at the top of a page."""
    found = verdict(run)
    name = f"{run.label}: " * several
    lines = [element("p", element("span", f"{name}{_WORDS[found.light]}. ", class_="light"), found.reached)]
    lines.append(element("p", found.time))
    advice = found.advice or ["Nothing needs to be changed."]
    return element("div", *lines, bullets(advice), class_=f"verdict {found.light}")


def _reached(run: RunData) -> str:
    """Describe progress and scores."""
    best, wanted = run.best, run.config.train.epochs if run.config else None
    of = f" of {wanted}" if wanted and wanted != len(run.epochs) else ""
    done = f"{len(run.epochs)}{of} epochs on {run.size} rank{'s' * (run.size > 1)}"
    if run.status in (FAILED, INTERRUPTED):
        ended = "failed" if run.status == FAILED else "was interrupted"
        done = f"It {ended} after {done}: {run.ended.get('why')}"
    elif run.status == RUNNING:
        done = f"{done} so far; it has not ended (still running, or killed)"
    whole = run.ended.get("seconds")
    took = f", {shown(whole, SECONDS)} in all" if whole is not None else ""
    if best.get("val") is None and best.get("test") is None:
        return f"{done}{took}; no scores."
    scores = ", ".join(f"{split} {shown(best[split])}" for split in ("val", "test") if best.get(split) is not None)
    return f"{run.metric.capitalize()} {scores} in epoch {best['epoch']}; {done}{took}."


def _time(run: RunData) -> str:
    """Describe the time of an epoch by phase."""
    phases, epoch = run.phase_means(), run.epoch_seconds
    if not epoch or not phases:
        return "No complete epoch is recorded, so its time is unknown."
    largest = sorted(phases, key=lambda name: -phases[name])[:3]
    parts = [f"{name} {shown(phases[name] / epoch, SHARE)}" for name in largest if phases[name] > 0.02 * epoch]
    rows = run.median("rows")
    remote = rows.get("remote", 0) / max(1, sum(rows.values()))
    fetched = f"; {shown(remote, SHARE)} of the rows came from other ranks" if run.size > 1 else ""
    return f"A warm epoch takes {shown(epoch, SECONDS)}: {', '.join(parts)}{fetched}."


def _advice(run: RunData) -> Iterator[_Advice]:
    yield from _of_the_end(run)
    yield from _of_learning(run)
    if run.epoch_seconds and run.phase_means():
        yield from _of_time(run)
    yield from _of_memory(run)


def _of_the_end(run: RunData) -> Iterator[_Advice]:
    if run.status == FAILED:
        yield _Advice(9, BAD, "Correct the cause; the same command with --run resumes from the last checkpoint.")
    if run.status == INTERRUPTED:
        yield _Advice(9, FAIR, "The same command with --run and this folder resumes it.")
    if len(run.warnings):
        yield _Advice(0.01, GOOD, f"The log holds {len(run.warnings)} warnings, listed below.")


def _of_learning(run: RunData) -> Iterator[_Advice]:
    """Compare scores with the trivial predictor, and over epochs."""
    best, trivial = run.best, run.trivial
    if best.get("val") is not None and trivial.get("val") is not None:
        better = best["val"] < trivial["val"] if run.lower_is_better else best["val"] > trivial["val"]
        if not better:
            answer = trivial.get("answer", "one answer for all")
            yield _Advice(
                5,
                BAD,
                f"It learned nothing useful: {answer} scores {shown(trivial['val'])} on val. Try another "
                "--lr, more epochs, or examine labels and features (leapmpi-prep report DATA).",
            )
    scored = [each["epoch"] for each in run.scored]
    if len(scored) >= 4 and best.get("epoch") in scored:
        position = scored.index(best["epoch"])
        if position == len(scored) - 1 and not run.ended.get("stopped_early"):
            yield _Advice(0.1, GOOD, "The last epoch was the best: more --epochs may score better.")
        elif len(scored) - 1 - position >= max(3, len(scored) // 2):
            left = 1 - (position + 1) / len(scored)
            yield _Advice(
                left,
                FAIR,
                f"Epoch {best['epoch']} of {scored[-1]} was the best: --early-stop 3 would have saved "
                "most of the rest; more --dropout or --weight-decay may help against overfitting.",
            )


def _of_time(run: RunData) -> Iterator[_Advice]:
    phases, epoch, config = run.phase_means(), run.epoch_seconds or 1.0, run.config
    share = {name: seconds / epoch for name, seconds in phases.items()}
    last = run.warm[-1]

    # Time spent on other ranks: remote rows, uneven work, gradients.
    fetching = share.get("exchange", 0.0) + share.get("gather", 0.0) * (run.size > 1)
    if run.size > 1 and fetching > 0.3:
        mends = []
        if last.get("remote") == "raw" and "cache" not in last:
            mends.append("--cache 0.05 keeps frequently read rows")
        if config and config.strategy.remote != "auto":
            mends.append("--remote auto takes the mode predicted to be fastest")
        if last.get("remote") == "raw" and not last.get("prefetch"):
            mends.append("--prefetch 1 overlaps fetching with training")
        if config and config.strategy.name == "pull":
            mends.append("--strategy leap trains roots where their neighbours are stored")
        mends = mends or ["a partition with a smaller cut (leapmpi-prep compare) would move less"]
        yield _Advice(
            fetching, FAIR, f"{shown(fetching, SHARE)} of an epoch is spent on remote rows: {'; '.join(mends)}."
        )
    uneven = imbalance(run)
    if uneven and uneven > 1.25 and run.size > 1:
        mend = "leapmpi-prep partition --balance evens it out"
        yield _Advice(1 - 1 / uneven, FAIR, f"The busiest rank works {shown(uneven)} times the mean: {mend}.")
    if (idle := share.get("wait", 0.0)) > 0.25 and run.size > 1 and not (uneven and uneven > 1.25):
        yield _Advice(idle, FAIR, f"Ranks wait for {shown(idle, SHARE)} of an epoch: --timeline shows why.")
    if (reducing := share.get("reduce", 0.0)) > 0.3:
        yield _Advice(
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
        yield _Advice(sampling, FAIR, f"{shown(sampling, SHARE)} of an epoch draws neighbours: {mend}.")
    if (saving := share.get("checkpoint", 0.0)) > 0.05:
        yield _Advice(
            saving, FAIR, f"{shown(saving, SHARE)} of an epoch writes checkpoints: a longer --checkpoint-every."
        )
    yield from _around_epochs(run)


def _around_epochs(run: RunData) -> Iterator[_Advice]:
    """Compare evaluation and start with training, and predictions with measurements."""
    training = sum(each.get("seconds", 0.0) for each in run.epochs) or 1.0
    evaluation = sum(each.get("evaluation_seconds", 0.0) for each in run.epochs)
    if evaluation > 0.5 * training and len(run.scored) > 2:
        yield _Advice(
            evaluation / (evaluation + training),
            FAIR,
            f"Evaluation takes {shown(evaluation / training, SHARE)} as long as training: --eval-every 5, or a smaller "
            "--eval-fanout.",
        )
    whole = run.ended.get("seconds")
    if whole and (rest := whole - training - evaluation) > 0.5 * whole and rest > 10:
        yield _Advice(0.05, GOOD, f"{shown(rest, SECONDS)} went into the start (loading, compiling) and the end.")
    choice: Mapping[str, Any] = run.last("banner").get("strategy_choice") or {}
    predicted = choice.get("forecasts", {}).get(choice.get("strategy"), {}).get("seconds")
    if predicted and run.epoch_seconds and not 0.5 < run.epoch_seconds / predicted < 2:
        yield _Advice(
            0.04,
            GOOD,
            f"An epoch was predicted to take {shown(predicted, SECONDS)} and takes "
            f"{shown(run.epoch_seconds, SECONDS)}: leapmpi doctor --measure calibrates predictions for this machine.",
        )


def _of_memory(run: RunData) -> Iterator[_Advice]:
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
            yield _Advice(
                0.5,
                FAIR,
                f"Host {host} almost ran out of memory: --memory-limit, more ranks, or "
                "--topology sharded would use less.",
            )
