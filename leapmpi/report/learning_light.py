"""First light of a verdict: did the model learn? Each split is compared with the best constant prediction for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from leapmpi.report.lights import BAD, FAIR, GOOD, Advice, Light, light
from leapmpi.report.numbers import SCORE, capital, shown, spelled
from leapmpi.report.run_data import SCORED, RunData

FEW_UPDATES = 100
"""Fewer steps of the optimizer than this rarely train a model."""

_FULL_BATCH = ("depcomm", "depcache", "hybrid")
"""Strategies without mini-batches."""

_LITTLE = 0.1
"""Share of the way from the baseline to a perfect score below which a model has learned little."""

_NOTABLE = 0.05
"""Share of all progress that the last quarter of the curve gains, or that a falling curve loses, to be worth a word."""


def learning(run: RunData) -> Light:
    """Return the light about scores, from the records of the run alone."""
    scores = _scores(run)
    advice = [*_against_baselines(run, scores), *_of_updates(run), *_of_curve(run)] if scores else []
    return light("Learning", _sentence(run, scores), advice, known=bool(scores))


def few_updates(epochs: int, per_epoch: int, whole_batch: bool = False) -> str:
    """Return a sentence about a run of fewer than FEW_UPDATES optimizer steps; '' if it has enough.

    per_epoch: steps of an epoch; whole_batch: an epoch is one step whatever the batch size.
    """
    updates = epochs * per_epoch
    if not 0 < updates < FEW_UPDATES:
        return ""
    number = "1 update" if updates == 1 else f"{updates} updates"
    why = "every epoch is one batch" if per_epoch == 1 else f"an epoch has {per_epoch} batches"
    smaller = "" if whole_batch else " or a smaller --batch-size"
    return f"{number} in all: {why}; try --epochs {_round_up(math.ceil(FEW_UPDATES / per_epoch))}{smaller}"


def _round_up(number: int) -> int:
    """Return `number` rounded up to one significant digit: 34 becomes 40."""
    power = 10 ** (len(str(number)) - 1)
    return math.ceil(number / power) * power


def _scores(run: RunData) -> dict[str, float]:
    """Return the scores of the best weights by split, exact ones if there are any."""
    found = run.exact or run.best
    return {split: found[split] for split in SCORED if found.get(split) is not None}


def _sentence(run: RunData, scores: dict[str, float]) -> str:
    """Describe the scores beside their baselines."""
    if not scores:
        return "No scores: it is unknown whether the model learned."
    found = " and ".join(f"{shown(score, SCORE)} on {split}" for split, score in scores.items())
    constant = [shown(run.trivial[split], SCORE) for split in scores if run.trivial.get(split) is not None]
    baseline = f" ({_baseline_name(run)}: {' and '.join(constant)})" if constant else ""
    kind = f"Exact {spelled(run.metric)}" if run.exact else capital(run.metric)
    of = " of sampled neighbourhoods" if run.sampled and not run.exact else ""
    models = run.ended.get("models")
    whose = f", by the best of {len(models)} models" if models else ""
    return f"{kind} {found}{of}{baseline}, in epoch {run.best['epoch']} of {len(run.epochs)}{whose}."


def _baseline_name(run: RunData) -> str:
    return run.trivial.get("answer") or "constant baseline"


def _progress(run: RunData, score: float, baseline: float) -> float:
    """Return how far `score` is on the way from `baseline` to a perfect score: 0 to 1, negative if it is worse."""
    if run.lower_is_better:
        return (baseline - score) / baseline if baseline > 0 else float(score <= baseline)
    return (score - baseline) / (1 - baseline) if baseline < 1 else float(score >= baseline)


def _against_baselines(run: RunData, scores: dict[str, float]) -> Iterator[Advice]:
    """Compare the score of each split with that of the best constant prediction for it."""
    baselines = {split: run.trivial[split] for split in scores if run.trivial.get(split) is not None}
    progress = {split: _progress(run, scores[split], each) for split, each in baselines.items()}
    if worse := [split for split, each in progress.items() if each <= 0]:
        mend = "Try another --lr or more --epochs, and examine labels and features (leapmpi-prep report DATA)."
        compared = _compared(run, worse, scores, baselines)
        yield Advice(5, BAD, f"No better than a constant prediction {compared}. {mend}")
    if little := [split for split, each in progress.items() if 0 < each < _LITTLE]:
        compared = _compared(run, little, scores, baselines)
        yield Advice(3, FAIR, f"Little better than a constant prediction {compared}.")


def _compared(run: RunData, splits: Sequence[str], scores: dict[str, float], baselines: dict[str, float]) -> str:
    """Return the scores of some splits beside those of the baseline."""
    found, constant = (" and ".join(shown(each[split], SCORE) for split in splits) for each in (scores, baselines))
    return f"on {' and '.join(splits)}: {spelled(run.metric)} {found}, and {_baseline_name(run)} {constant}"


def _of_updates(run: RunData) -> Iterator[Advice]:
    """Look for runs of few optimizer steps, unless their scores have stopped rising."""
    counts = [len(each["losses"]) for each in run.epochs if each.get("losses")]
    if not counts or len(counts) < len(run.epochs):
        return
    whole = bool(run.config and run.config.strategy.name in _FULL_BATCH)
    if sentence := few_updates(len(counts), max(counts), whole):
        settled = len(run.scored) >= 4 and not _last_quarter(run) > _NOTABLE
        yield Advice(2, GOOD if settled else FAIR, f"Only {sentence}.")


def _values(run: RunData) -> list[float]:
    """Return the validation scores in order, negated if lower is better."""
    sign = -1.0 if run.lower_is_better else 1.0
    return [sign * each["accuracy"]["val"] for each in run.scored]


def _all_gained(run: RunData, values: Sequence[float]) -> float:
    """Return what the run gained over the baseline, or over its first score if the baseline is unknown or higher."""
    baseline = run.trivial.get("val")
    start = values[0] if baseline is None else min(values[0], -baseline if run.lower_is_better else baseline)
    return max(values) - start


def _last_quarter(run: RunData) -> float:
    """Return the share of all progress that the last quarter of the evaluations made."""
    values = _values(run)
    recent = max(1, len(values) // 4)
    if len(values) < 2 or not (gained := _all_gained(run, values)) > 0:
        return 0.0
    return (max(values) - max(values[:-recent])) / gained


def _of_curve(run: RunData) -> Iterator[Advice]:
    """Look for curves that still rise or, long before the end, began to fall."""
    values, scored = _values(run), [each["epoch"] for each in run.scored]
    if (share := _last_quarter(run)) > _NOTABLE and not run.ended.get("stopped_early"):
        rising = "fell" if run.lower_is_better else "rose"
        yield Advice(1, FAIR, f"The validation score still {rising} at the end: more --epochs will improve it.")
    elif len(values) >= 4 and values[-1] == max(values) and share > 0 and not run.ended.get("stopped_early"):
        yield Advice(0.1, GOOD, "The last epoch was the best: more --epochs may score better.")
    if len(values) < 4:
        return
    best = values.index(max(values))
    if len(values) - 1 - best < max(3, len(values) // 2):
        return

    # Worse scores at a lower loss are over-fitting; equal ones only cost time.
    lost = (values[best] - values[-1]) / (_all_gained(run, values) or 1.0)
    losses = [run.scored[place].get("loss", math.nan) for place in (best, -1)]
    where = f"epoch {scored[best]} of {scored[-1]}"
    if lost > _NOTABLE and losses[1] < losses[0]:
        yield Advice(
            0.9,
            FAIR,
            f"Over-fitting: the validation score was best in {where}, then got worse while the loss fell. The weights "
            "of the best epoch are kept; more --dropout or --weight-decay may help.",
        )
    else:
        yield Advice(0.3, GOOD, f"The best was {where}: --early-stop 3 would have saved most of the rest.")
