"""Schemas of the records of a run: each key that leapmpi reads, and the type of its value.

Keys written by every version are required. Keys added later, or written by some runs only, are optional.
"""

from __future__ import annotations

from leapmpi.config.plain_values import anything, count, entries, items, maybe, number, record, text, truth, whole

_BEST = record({"epoch": whole, "val": maybe(number), "test": maybe(number)})

_TIMES = entries(record({"mean": number, "max": number}))

_BY_RANK = record(
    {"ranks": count, "each": count},
    {
        "phases": entries(items(number)),
        "core_seconds": items(number),
        "rows": entries(items(number)),
        "sent": items(items(number)),
        "memory": items(number),
    },
)
"""Figures of an epoch by rank, or by groups of ranks."""

_DETAILS = record(
    {"measure": text},
    {
        "classes": entries(items(number)),
        "confusion": items(items(whole, 3, 3)),
        "by_degree": items(items(anything, 3, 3)),
        "by_part": items(items(anything, 3, 3)),
    },
)
"""Scores of one split by class, degree and part."""

_EPOCH_FIGURES = {
    "epoch": count,
    "seconds": number,
    "core_seconds": number,
    "evaluation_seconds": number,
    "loss": number,
    "losses": items(number),
    "accuracy": entries(maybe(number)),
    "figures": entries(entries(number)),
    "phases": _TIMES,
    "bytes": entries(number),
    "rows": entries(number),
    "time_steps": count,
    "remote": text,
    "lr": number,
    "prefetch": count,
    "ahead": record({}, {"hidden": number, "phases": _TIMES}),
    "cache": entries(number),
    "feature_memory": entries(count),
    "together": count,
    "busy": number,
    "by_rank": _BY_RANK,
    "details": entries(_DETAILS),
}

EPOCH = record({}, _EPOCH_FIGURES)
"""Record of an epoch in a summary or a checkpoint."""

_ENDED_EARLY = {"why": text, "rank": maybe(count), "host": maybe(text), "phase": maybe(text)}

_ABOUT_RUN = {
    "version": text,
    "strategy": text,
    "ranks": count,
    "graph_uuid": text,
    "uuid": text,
    "model": text,
    "code": entries(text),
    "metric": text,
    "varied": text,
    "seconds": number,
    "restarts": count,
    "stopped_early": count,
    "parameters_digest": text,
    "peak_memory_bytes": items(number),
    "best": _BEST,
    "exact": entries(maybe(number)),
}

SUMMARY = record(
    {"schema": count},
    {
        **_ABOUT_RUN,
        **_ENDED_EARLY,
        "status": text,
        "models": items(record({}, _ABOUT_RUN)),
        "epochs": items(EPOCH),
    },
)
"""Contents of summary.json, of a run that has ended in any way."""

EARLY_END = record({"why": text}, _ENDED_EARLY)
"""Summary of a failed or interrupted run."""

EVENT = record({"event": text})
"""Any line of metrics.jsonl; `EVENTS` adds the keys of some events."""

EVENTS = {
    "start": record({}, {"version": text, "command": text, "versions": entries(text)}),
    "banner": record(
        {"ranks": items(anything, least=1)},
        {"uuid": text, "metric": text, "rates": entries(anything), "strategy_choice": anything},
    ),
    "decision": record(
        {"about": text, "epoch": count, "iteration": count, "value": anything, "evidence": entries(anything)}
    ),
    "epoch": record({"epoch": count}, _EPOCH_FIGURES),
}

DECISIONS = {"rates": entries(number), "remote": text, "time_steps": count, "strategy": text}
DECISIONS |= {"dependencies": entries(number), "parts": items(count)}
"""The values of decisions by what they are about."""

_SCALE = maybe(items(items(number), 2, 2))
"""Mean and deviation of each target of a regression."""

WEIGHTS = record(
    {"graph_uuid": text, "feature_dim": count, "classes": count, "epoch": whole},
    {"code": entries(text), "task": text, "target_scale": _SCALE},
)
"""Plain values of a weights file."""

_OPTIMIZER = record({"tensors": items(text), "numbers": record({"steps": count, "last_rate": number})})

_MODEL = {"optimizer": _OPTIMIZER, "best": _BEST}

_TUNER = record(
    {
        **dict.fromkeys(("best", "current"), count),
        **{name: items(items(number, 2, 2)) for name in ("predicted", "measured")},
        "settled": truth,
        "times": items(number),
    }
)

_STRATEGY = record(
    {"ranks": count, "remote": text, "decisions": items(EVENTS["decision"]), "time_steps": count},
    {"tuner": maybe(_TUNER), "machine": maybe(entries(number))},
)

STRATEGY_CHOICE = record(
    {
        **dict.fromkeys(("strategy", "why", "rates"), text),
        "forecasts": entries(record({"seconds": number, "bytes": number, "remote": text})),
        "left_out": entries(text),
        "iterations": count,
    }
)
"""Choice of `--strategy auto`, with its reasons."""

_PART_ASSIGNMENT = record(
    {
        "starts": items(count, least=2),
        "settled": truth,
        "seconds": items(items(number)),
        "observed": items(record({"starts": items(count, least=2), "seconds": items(number), "epoch": number})),
    }
)

_STATE = {
    "config": record({"train": record({"epochs": count})}, {}),
    "graph_uuid": text,
    "uuid": text,
    "ranks": count,
    "rank_pieces": count,
    "metrics_bytes": count,
    "progress": record({"epoch": count, "iteration": count, "seconds": number, "counts": entries(count)}),
    "phases": items(text),
    "best": _BEST,
    "strategy": _STRATEGY,
    "epochs": items(EPOCH),
    "run_seconds": number,
    "restarts": count,
}

CHECKPOINT = record(
    {"checkpoint": anything, **_STATE},
    {
        **_MODEL,
        "version": text,
        "code": entries(text),
        "strategy_choice": STRATEGY_CHOICE,
        "part_dealing": _PART_ASSIGNMENT,
        "class_weights": maybe(items(number)),
        "target_scale": _SCALE,
        "models": items(record({**_MODEL, "epochs": items(EPOCH)})),
    },
)
"""Plain values of state.h5 of a checkpoint: the state shared by all ranks."""

FINISHED = record(
    {
        **{name: _ABOUT_RUN[name] for name in ("strategy", "ranks", "metric", "best")},
        "epochs": items(
            record(
                {
                    **{name: _EPOCH_FIGURES[name] for name in ("seconds", "loss", "time_steps", "bytes")},
                    "rows": record({"remote": number}),
                }
            ),
            least=1,
        ),
    }
)
"""Figures by which finished runs are compared."""

COUNTED = record({name: _EPOCH_FIGURES[name] for name in ("time_steps", "remote", "rows", "bytes")})
"""Record of an epoch that a forecast is compared with."""
