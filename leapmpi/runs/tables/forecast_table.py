"""Forecasts of `leapmpi plan` as tables."""

from __future__ import annotations

from typing import Any

from leapmpi.runs.tables.text import aligned, size_text

_HEADINGS = (
    *("ranks", "strategy", "steps", "remote", "rows", "remote rows", "remote", "R_micro", "imbalance"),
    *("MiB sent", "busiest pair", "GiB a rank", "s"),
)


def table(outcome: dict[str, Any]) -> str:
    """Figures of one iteration over all ranks, bytes by kind, and what was left out."""
    tables = [*_of_forecasts(outcome["forecasts"]), *_of_roles(outcome["roles"]), *outcome["left_out"]]
    tables += outcome["too_large"]
    tables += [f"{each['ranks']} rank{'s' * (each['ranks'] > 1)}: {each['sentence']}" for each in outcome["auto"]]
    tables += [
        f"{each['ranks']} rank{'s' * (each['ranks'] > 1)}: topology {size_text(each['node'][0])} in a copy per node, "
        f"or sharded {size_text(max(each['sharded']))} at most a rank"
        for each in outcome["topology"]
    ]
    tables += [
        f"{each['ranks']} rank{'s' * (each['ranks'] > 1)}{_preparing(each['preparing'])}: "
        f"features {size_text(max(each['resident']))} resident and "
        f"{size_text(max(each['mapped']))} mapped from files, at most a rank"
        for each in outcome["feature_memory"]
    ]
    return "\n\n".join(tables)


def _preparing(ranks: int) -> str:
    return f", {ranks} of which prepare{'s' * (ranks == 1)}" if ranks else ""


def _of_roles(roles: list[dict[str, Any]]) -> list[str]:
    """Figures of one iteration where some ranks prepare, and in words what follows."""
    if not roles:
        return []
    lines: list[tuple[str, ...]] = [
        ("ranks", "strategy", "compute", "prepare", "needed", "busy", "s", "MiB of shares", "MiB of rows")
    ]
    for each in roles:
        counts = each["ranks"], each["strategy"], each["computing"], each["preparing"], each["ranks_needed"] or "-"
        sent = (f"{each['sent'][kind] / 2**20:.2f}" for kind in ("shares", "features"))
        lines.append((*map(str, counts), f"{each['busy']:.0%}", f"{each['seconds']:.4f}", *sent))
    return [aligned(lines), *(each["sentence"] for each in roles)]


def _of_forecasts(forecasts: list[dict[str, Any]]) -> list[str]:
    """Figures of one iteration where all ranks do the same, and bytes by kind."""
    if not forecasts:
        return []
    kinds = [kind for kind in forecasts[0]["sent"] if any(each["sent"][kind] >= 2**10 for each in forecasts)]
    by_kind = [("ranks", "MiB an iteration", *kinds)]
    by_kind += [
        (str(each["ranks"]), each["strategy"], *(f"{each['sent'][kind] / 2**20:.2f}" for kind in kinds))
        for each in forecasts
    ]
    return [aligned([_HEADINGS, *(_line(each) for each in forecasts)]), aligned(by_kind)]


def _line(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(each["ranks"]),
        each["strategy"],
        str(each["time_steps"]),
        each["remote"],
        f"{sum(each['rows'].values()):,.0f}",
        f"{each['rows']['remote']:,.0f}",
        f"{each['remote_ratio']:.1%}",
        f"{each['micrograph_locality']:.2f}",
        f"{each['imbalance']:.2f}",
        f"{sum(each['sent'].values()) / 2**20:.2f}",
        f"{max(map(max, each['pairs'])) / 2**20:.2f}",
        f"{max(each['memory']) / 2**30:.2f}",
        "-" if each["seconds"] is None else f"{each['seconds']:.4f}",
    )


def comparison(outcome: dict[str, Any]) -> str:
    """Rows and bytes of an epoch, predicted and counted."""
    lines: list[tuple[str, ...]] = [("an epoch", "predicted", "counted", "ratio")]
    for name, unit, scale in (("rows", "rows", 1), ("bytes", "MiB", 2**20)):
        for key, each in outcome[name].items():
            ratio = "-" if each["ratio"] is None else f"{each['ratio']:.3f}"
            figures = (f"{each[side] / scale:,.{0 if scale == 1 else 3}f}" for side in ("predicted", "counted"))
            lines.append((f"{key} ({unit})", *figures, ratio))
    return f"{outcome['run']}: {outcome['strategy']} on {outcome['ranks']} ranks\n\n{aligned(lines)}"
