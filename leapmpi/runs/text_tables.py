"""Text tables of `leapmpi bench`, `plan` and `evaluate --per-class`, and the epochs of a run as a table.

In: rows of plain values, as records and summaries hold them. Out: lines of aligned columns.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from html import escape
from textwrap import fill
from typing import Any

from leapmpi.runs.text import aligned, condensed, counted, fitted, score_text, size_text
from leapmpi.runs.warm_epochs import about_cold, seconds_and_ratio

_BENCH_HEADINGS = (
    *("strategy", "steps", "remote", "s/epoch", "ratio", "loss", "val", "test"),
    *("rows", "remote rows", "MiB sent", "core s"),
)


def bench_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format seconds, ratios, rows, bytes, loss and scores, then bytes by kind and seconds by phase."""
    lines = [_BENCH_HEADINGS, *(_bench_line(row) for row in rows)]
    parts = [
        condensed(lines, ("steps", "remote")),
        _parts(rows, "bytes", "MiB sent", 2**-20),
        _parts(rows, "phases", "seconds", 1.0),
    ]
    parts = [each for each in (*parts, about_cold(rows)) if each]
    return "\n\n".join([*parts, *_costs(rows), *_prefetching(rows), *_cache(rows), *_ignored(rows)])


def _costs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the core-hours and cost of each strategy, if ranks have roles or prices are given."""
    priced = any("cost" in row for row in rows)
    if not priced and not any(row.get("roles") for row in rows):
        return []
    lines = [("an epoch", "compute", "prepare", "core-hours", "busy", "needed", *(["cost"] if priced else []))]
    # Without roles every rank does both.
    for row in rows:
        roles = row.get("roles") or {"computing": row["ranks"], "preparing": 0}
        busy = "-" if row.get("busy") is None else f"{row['busy']:.0%}"
        needed = str(roles.get("ranks_needed") or "-")
        shown = (
            row["strategy"],
            str(roles["computing"]),
            str(roles["preparing"]),
            f"{row['core_hours']:.5f}",
            busy,
            needed,
        )
        lines.append((*shown, *([f"{row['cost']:.6f}"] if priced else [])))
    note = "busy: share of time that compute ranks work; needed: preparing ranks predicted to keep up with them"
    return [f"{aligned(lines)}\n{note}"]


def _prefetching(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the seconds spent on prefetching, and those overlapped with training."""
    ran = [row for row in rows if row["prefetch"]]
    if not ran:
        return []
    lines = [("seconds of prefetching", "prefetch", "spent", "overlapped")]
    for row in ran:
        spent, hidden = row["ahead"]["seconds"], row["ahead"]["hidden"]
        lines.append((row["strategy"], str(row["prefetch"]), f"{spent:.2f}", f"{hidden:.2f}"))
    return [aligned(lines)]


def _cache(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of hit rates of strategies with a cache."""
    cached = [row for row in rows if "cache" in row]
    if not cached:
        return []
    lines = [("remote rows saved by the cache", "measured", "predicted")]
    names = ("hit_rate", "predicted_hit_rate")
    lines += [(row["strategy"], *(f"{row['cache'][name]:.1%}" for name in names)) for row in cached]
    return [aligned(lines)]


def _ignored(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings without effect, one line each."""
    lines = [f"{row['strategy']}: {sentence}" for row in rows for sentence in row["ignored"]]
    return ["\n".join(lines)] if lines else []


def _bench_line(row: dict[str, Any]) -> tuple[str, ...]:
    # The last epoch that was evaluated.
    scores: dict[str, float | None] = next(
        (each for each in reversed(row["accuracy"]) if any(v is not None for v in each.values())), {}
    )
    return (
        row["strategy"],
        str(row["time_steps"]),
        row["remote"],
        *seconds_and_ratio(row),
        f"{row['loss'][-1]:.4f}",
        *("-" if (score := scores.get(split)) is None else score_text(score) for split in ("val", "test")),
        f"{sum(row['rows'].values()):,.0f}",
        f"{row['rows']['remote']:,.0f}",
        f"{sum(row['bytes'].values()) / 2**20:.1f}",
        f"{row['core_seconds']:.2f}",
    )


def _parts(rows: Sequence[dict[str, Any]], name: str, unit: str, scale: float) -> str:
    """Format the parts of the figure `name` of each row, times `scale`, without those near 0 in all rows, or ''."""
    largest = {part: max(row[name][part] * scale for row in rows) for part in rows[0][name]}
    # Epochs of small graphs take milliseconds in all of their phases.
    digits = 2 if max(largest.values(), default=0) >= 0.1 else 4
    shown = [part for part, value in largest.items() if value >= 0.5 * 10**-digits]
    lines = [(unit, *shown)]
    lines += [(row["strategy"], *(f"{row[name][part] * scale:.{digits}f}" for part in shown)) for row in rows]
    return fitted(lines) if shown else ""


_OFF = "0.7 to 1.7"
"""Range of predicted over measured seconds in the cases of leapmpi/forecast/README.md."""

_FORECAST_HEADINGS = (
    *("ranks", "strategy", "s/epoch", "MiB sent", "GiB a rank", "remote share", "steps", "remote"),
    *("rows", "remote rows", "R_micro", "imbalance", "busiest pair"),
)


def forecast_table(outcome: dict[str, Any]) -> str:
    """Format predicted seconds of an epoch, figures of an iteration over all ranks, and the strategies left out."""
    sentences = [*outcome["left_out"], *outcome["too_large"]]
    sentences += [f"{_ranks(each)}: {_choice_of_auto(each)}" for each in outcome["auto"]]
    sentences += [
        f"{_ranks(each)}: topology {size_text(each['node'][0])} in a copy per node, "
        f"or sharded {size_text(max(each['sharded']))} at most a rank"
        for each in outcome["topology"]
    ]
    sentences += [
        f"{_ranks(each)}{_preparing(each['preparing'])}: "
        f"features {size_text(max(each['resident']))} resident and "
        f"{size_text(max(each['mapped']))} mapped from files, at most a rank"
        for each in outcome["feature_memory"]
    ]
    sentences += [_split(each) for each in outcome["memory_split"]]
    if any(each["epoch_seconds"] is not None for each in outcome["forecasts"]):
        sentences += _about_seconds(outcome)
    tables = [*_of_forecasts(outcome["forecasts"]), *_of_roles(outcome["roles"])]
    width = shutil.get_terminal_size().columns
    return "\n\n".join([*tables, "\n".join(fill(each, width, subsequent_indent="  ") for each in sentences)])


def _ranks(each: dict[str, Any]) -> str:
    return f"{each['ranks']} rank{'s' * (each['ranks'] > 1)}"


def _split(each: dict[str, Any]) -> str:
    """Return a sentence about the memory that lists and rows share on a node."""
    best, read = each["best"], size_text(int(each["file_bytes"]))
    if each["chosen"]:
        return (
            f"{_ranks(each)} on one node: --topology-memory auto takes {size_text(best['lists'])} for lists and leaves "
            f"{size_text(best['rows'])} for rows of each rank; an iteration reads {size_text(int(best['file_bytes']))} "
            f"from files, and {read} with all of it for rows"
        )
    if best["file_bytes"] >= 0.95 * each["file_bytes"]:
        return f"{_ranks(each)} on one node: an iteration reads {read} from files; no split of that memory reads less"
    settings = f"--topology-memory {best['lists'] >> 20}M --feature-memory {best['rows'] >> 20}M"
    return (
        f"{_ranks(each)} on one node: an iteration reads {read} from files, and "
        f"{size_text(int(best['file_bytes']))} with as much memory by {settings}"
    )


def _about_seconds(outcome: dict[str, Any]) -> list[str]:
    """Return sentences that say what the seconds, and the other figures, are."""
    iterations = sorted({each["iterations"] for each in outcome["forecasts"]})
    several = "s" * (iterations != [1])
    sentences = [
        f"s/epoch: predicted seconds of an epoch of {' or '.join(map(str, iterations))} iteration{several}; "
        "other figures are of one iteration, over all ranks"
    ]
    for each in outcome["rates"]:
        link = f", links as --link {each['link']}" if each["link"] else ""
        nodes = each["nodes_measured"]
        rates = f"rates measured on {nodes} node{'s' * (nodes > 1)}" if nodes else "documented constants"
        sentences.append(f"{_ranks(each)}: seconds by {rates}{link}")
    if any(each["nodes_measured"] for each in outcome["rates"]):
        sentences.append(f"measured rates predicted {_OFF} times the seconds that epochs took in jobs/lab/forecasts")
    if not all(each["nodes_measured"] for each in outcome["rates"]):
        sentences.append("leapmpi doctor --measure, on as many ranks, calibrates predictions")
    return sentences


def _choice_of_auto(choice: dict[str, Any]) -> str:
    """Return what `--strategy auto` takes, and why others were left out."""
    why = f": {choice['why']}" if choice["why"] else ""
    left_out = "".join(f"; not {name}: {each}" for name, each in choice["left_out"].items())
    return f"--strategy auto takes {choice['strategy']}{why}{left_out}"


def _preparing(ranks: int) -> str:
    return f", {ranks} of which prepare{'s' * (ranks == 1)}" if ranks else ""


def _of_roles(roles: list[dict[str, Any]]) -> list[str]:
    """Return figures of one iteration with preparing ranks, and a sentence about each."""
    if not roles:
        return []
    lines: list[tuple[str, ...]] = [
        ("ranks", "strategy", "compute", "prepare", "needed", "busy", "s/iteration", "MiB of shares", "MiB of rows")
    ]
    for each in roles:
        counts = each["ranks"], each["strategy"], each["computing"], each["preparing"], each["ranks_needed"] or "-"
        sent = (f"{each['sent'][kind] / 2**20:.2f}" for kind in ("shares", "features"))
        lines.append((*map(str, counts), f"{each['busy']:.0%}", f"{each['seconds']:.4f}", *sent))
    return [aligned(lines), *(each["sentence"] for each in roles)]


def _of_forecasts(forecasts: list[dict[str, Any]]) -> list[str]:
    """Return figures of one iteration without roles, and bytes by kind."""
    if not forecasts:
        return []
    kinds = [kind for kind in forecasts[0]["sent"] if any(each["sent"][kind] >= 2**10 for each in forecasts)]
    by_kind = [("ranks", "MiB an iteration", *kinds)]
    by_kind += [
        (str(each["ranks"]), each["strategy"], *(f"{each['sent'][kind] / 2**20:.2f}" for kind in kinds))
        for each in forecasts
    ]
    table = [_FORECAST_HEADINGS, *map(_forecast_line, forecasts)]
    return [condensed(table, ("steps", "remote"), keys=2), fitted(by_kind, keys=2), *_by_relation(forecasts)]


_MOST_RELATIONS = 12
"""Most relations shown, those with most bytes; none without remote edges. JSON has all."""


def _by_relation(forecasts: list[dict[str, Any]]) -> list[str]:
    """Return tables of the remote rows of an iteration by type and by relation, as stored; none for plain graphs."""
    of_types: list[tuple[str, ...]] = [("ranks", "strategy", "type", "remote rows", "MiB as stored", "MiB held")]
    of_relations: list[tuple[str, ...]] = [
        ("ranks", "strategy", "relation", "remote edges", "remote rows", "MiB as stored")
    ]
    for each in (one for one in forecasts if one["typed"]):
        first = str(each["ranks"]), each["strategy"]
        for kind in each["typed"]["types"]:
            sizes = (f"{kind[name] / 2**20:.2f}" for name in ("bytes", "held_bytes"))
            of_types.append((*first, kind["type"], f"{kind['remote_rows']:,}", *sizes))
        moved = [one for one in each["typed"]["relations"] if one["remote_edges"] or one["bytes"]]
        for kind in sorted(moved, key=lambda one: -one["bytes"])[:_MOST_RELATIONS]:
            counts = f"{kind['remote_edges']:,}", f"{kind['remote_rows']:,}", f"{kind['bytes'] / 2**20:.2f}"
            of_relations.append((*first, kind["relation"], *counts))
    return [aligned(each) for each in (of_types, of_relations) if len(each) > 1]


def _forecast_line(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(each["ranks"]),
        each["strategy"],
        "-" if each["epoch_seconds"] is None else f"{each['epoch_seconds']:.3g}",
        f"{sum(each['sent'].values()) / 2**20:.2f}",
        f"{max(each['memory']) / 2**30:.2f}",
        f"{each['remote_ratio']:.1%}",
        str(each["time_steps"]),
        each["remote"],
        f"{sum(each['rows'].values()):,.0f}",
        f"{each['rows']['remote']:,.0f}",
        f"{each['micrograph_locality']:.2f}",
        f"{each['imbalance']:.2f}",
        "-" if each["pairs"] is None else f"{max(map(max, each['pairs'])) / 2**20:.2f}",
    )


def forecast_comparison(outcome: dict[str, Any]) -> str:
    """Format rows and bytes of an epoch, predicted and counted."""
    lines: list[tuple[str, ...]] = [("an epoch", "predicted", "counted", "ratio")]
    for name, unit, scale in (("rows", "rows", 1), ("bytes", "MiB", 2**20)):
        for key, each in outcome[name].items():
            ratio = "-" if each["ratio"] is None else f"{each['ratio']:.3f}"
            figures = (f"{each[side] / scale:,.{0 if scale == 1 else 3}f}" for side in ("predicted", "counted"))
            lines.append((f"{key} ({unit})", *figures, ratio))
    return f"{outcome['run']}: {outcome['strategy']} on {counted(outcome['ranks'], 'rank')}\n\n{aligned(lines)}"


_MOST_CLASS_ROWS = 40
"""Most classes shown; with more, those with most vertices. JSON has all."""

_MOST_CONFUSED = 3


def class_table(found: dict[str, Any], names: Sequence[str] | None = None) -> str:
    """Format the table of one split, from its class_report; `names` are class names, if known."""
    regression = "mse" in found
    count = len(found["known"])
    kind = "target" if regression else "class" if "confusion" in found else "label"
    figures = ("known", "mse", "mae", "rmse", "r2") if regression else ("support", "precision", "recall", "f1")
    further = ("right", "wrongly", "missed") if kind == "label" else ()

    # The classes with most vertices, in their order.
    size = found[figures[0]]
    shown = sorted(sorted(range(count), key=lambda each: -size[each])[:_MOST_CLASS_ROWS])
    lines = [(kind, *figures, *further, *["confused with"] * (kind == "class"))]
    for each in shown:
        name = str(each) if names is None else f"{each} {names[each]}"
        values = [_class_text(found[figure][each]) for figure in figures]
        counts = [_class_text(found[key][each]) for key in further]
        more = [_confused(found["confusion"], each)] if kind == "class" else counts
        lines.append((name, *values, *more))
    rest = f"\n{count - len(shown):,} more classes, with fewer vertices, are in --json" if count > len(shown) else ""
    return aligned(lines) + rest


def relation_table(found: dict[str, Any], metrics: Sequence[str]) -> str:
    """Format `metrics` of each relation, those with most edges first; `found` has its figures by name."""
    lines = [("relation", "edges", *metrics)]
    for name in sorted(found, key=lambda each: -found[each]["edges"])[:_MOST_CLASS_ROWS]:
        figures = found[name]
        lines.append((name, f"{figures['edges']:,}", *(score_text(figures[each]) for each in metrics)))
    more = len(found) - len(lines) + 1
    return aligned(lines) + (f"\n{more:,} more relations, with fewer edges, are in --json" if more else "")


def _class_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else score_text(value)


def _confused(confusion: Sequence[Sequence[int]], each: int) -> str:
    """Return the most frequent wrong predictions of a class, such as '3 (12 times), 0 (4)'."""
    wrong = sorted((-count, other) for truth, other, count in confusion if truth == each and other != truth)
    return ", ".join(f"{'none' if other < 0 else other} ({-count:,})" for count, other in wrong[:_MOST_CONFUSED]) or "-"


_COLUMNS = (
    *("epoch", "loss", "val", "test", "seconds", "evaluation_seconds", "remote_share", "sent_bytes", "lr"),
    *("time_steps", "remote"),
)


class EpochTable(list[dict[str, Any]]):
    """List of dicts, one per epoch, that displays as a table, in notebooks too."""

    def __repr__(self) -> str:
        return aligned(self._lines()) if self else "no epochs"

    def _repr_html_(self) -> str:
        """Return the HTML shown by notebooks."""
        head, *rows = [[escape(cell) for cell in line] for line in self._lines()]
        cells = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[list[str]]:
        return [[*_COLUMNS], *([_epoch_text(row[name]) for name in _COLUMNS] for row in self)]


def epoch_table(records: Sequence[dict[str, Any]]) -> Any:
    """Return one row per epoch of `records`; the last record of an epoch counts. Missing scores are None.

    Columns: epoch (from 1), loss, val and test by the run's metric, seconds of training and of evaluation, remote_share
    of the rows read, sent_bytes over all ranks, lr, time_steps, remote. The result is a pandas.DataFrame if pandas is
    installed.
    """
    rows = epoch_rows(records)
    if importlib.util.find_spec("pandas") is None:
        return rows
    import pandas

    return pandas.DataFrame(rows, columns=list(_COLUMNS)).set_index("epoch")


def epoch_rows(records: Sequence[dict[str, Any]]) -> EpochTable:
    """Return the rows of `epoch_table`, in order."""
    last = {each["epoch"]: each for each in records}
    return EpochTable(_epoch_row(last[number]) for number in sorted(last))


def _epoch_row(record: dict[str, Any]) -> dict[str, Any]:
    scores, rows = record.get("accuracy", {}), record.get("rows", {})
    return {
        **{name: record.get(name) for name in _COLUMNS},
        "val": scores.get("val"),
        "test": scores.get("test"),
        "remote_share": rows.get("remote", 0) / max(1, sum(rows.values())),
        "sent_bytes": sum(record.get("bytes", {}).values()),
    }


def _epoch_text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
