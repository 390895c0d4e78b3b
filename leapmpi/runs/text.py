"""Figures as text: aligned columns, scores, sizes, lists of ranks, and the table of ranks in the log."""

from __future__ import annotations

import shutil
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format `lines` of equally many cells with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def fitted(lines: Sequence[Sequence[str]], keys: int = 1, width: int | None = None) -> str:
    """Format `lines` as `aligned` does, within `width` columns; None: those of the terminal, or 80 in a file.

    Columns that do not fit go on in blocks below, which repeat the first `keys` columns.
    """
    width = width or shutil.get_terminal_size().columns
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    own = [*range(keys)]
    blocks = [[*own]]
    for column in range(keys, len(widths)):
        if sum(widths[each] + 2 for each in [*blocks[-1], column]) - 2 > width and len(blocks[-1]) > keys:
            blocks.append([*own])
        blocks[-1].append(column)
    return "\n\n".join(aligned([[line[column] for column in block] for line in lines]) for block in blocks)


def condensed(lines: Sequence[Sequence[str]], settings: Collection[str], keys: int = 1) -> str:
    """Format a table of headings and rows as `fitted` does, with the `settings` that all rows share above it.

    Other columns are left out where they hold nothing but '-'. A single row becomes a list of headings and values.
    """
    width = shutil.get_terminal_size().columns
    head, *rows = lines
    if len(rows) == 1:
        return aligned([pair for pair in zip(head, rows[0], strict=True) if pair[1] != "-"])
    values = {name: {row[column] for row in rows} for column, name in enumerate(head) if column >= keys}
    dropped = {name for name, each in values.items() if each == {"-"} or (name in settings and len(each) == 1)}
    words = [f"{name} {next(iter(values[name]))}" for name in head if name in dropped and values[name] != {"-"}]
    kept = [[cell for name, cell in zip(head, line, strict=True) if name not in dropped] for line in lines]
    return "\n\n".join(filter(None, [listed("all", words, width), fitted(kept, keys, width)]))


def listed(name: str, words: Sequence[str], width: int) -> str:
    """Format `name` and its `words` in lines of at most `width` columns, broken between words; '' without words."""
    found: list[str] = []
    for number, word in enumerate(words):
        text = word + "," * (number < len(words) - 1)
        if found and len(found[-1]) + 1 + len(text) <= width:
            found[-1] += f" {text}"
        else:
            found.append(f"{' ' * (len(name) + 1) if found else f'{name}:'}{'' if found else ' '}{text}")
    return "\n".join(found)


def wrapped(line: str, indent: int, width: int = 80) -> str:
    """Break a line at blanks into lines of at most `width` columns, those after the first indented."""
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
    )


def score_text(score: float) -> str:
    """Format a score: '0.8120', or four significant digits of a very small or large one."""
    return f"{score:.4f}" if score == 0 or 0.001 <= abs(score) < 10_000 else f"{score:.4g}"


def three_digits(value: float) -> str:
    """Format a loss or score for a line on the screen: '0.812', or three significant digits if it is small or large."""
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 1000 else f"{value:.3g}"


def scores_text(scores: Mapping[str, float | None]) -> str:
    """Format scores as 'val 0.8120 test 0.8010', skipping splits without a score."""
    return " ".join(f"{split} {score_text(score)}" for split, score in scores.items() if score is not None)


def size_text(count: float) -> str:
    """Format a number of bytes with its unit, such as '1.5 MiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


_MOST_RANK_ROWS = 16
"""Most rows. With more ranks the table has a row per node; with more nodes it skips some."""

_HEAD = ("rank", "host", "device", "threads", "parts", "features", "memory", "free on host")


def ranks_text(ranks: Iterable[int]) -> str:
    """Format ranks as 'rank 3' or 'ranks 0-3, 7'."""
    numbers = sorted(set(ranks))
    return f"rank{'s' * (len(numbers) > 1)} {_spans(numbers)}"


def rank_table(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of all ranks, from facts about each (`rank_facts` of job/banner.py).

    Many ranks share a row per node: devices and threads as ranges, features and memory as sums. Of very many nodes the
    table shows the first ones, the one with the least free memory, and the last.
    """
    if len(facts) <= _MOST_RANK_ROWS:
        return aligned([_HEAD, *(_row([each], [rank]) for rank, each in enumerate(facts))]).splitlines()

    # One row per node; very many nodes are thinned out.
    nodes = defaultdict(list)
    for rank, each in enumerate(facts):
        nodes[each["node"]].append(rank)
    numbers = sorted(nodes)
    free = {node: facts[members[0]]["free"] or 0 for node, members in nodes.items()}
    shown = _chosen(numbers, free)
    rows = [_row([facts[rank] for rank in nodes[node]], nodes[node]) for node in shown]
    lines = aligned([_HEAD, *rows]).splitlines()
    if left := len(numbers) - len(shown):
        lines.insert(len(lines) - 1, f"... and {left} more nodes; metrics.jsonl lists all ranks")
    return lines


def _chosen(numbers: list[int], free: Mapping[int, int]) -> list[int]:
    """Choose the nodes that the table shows, given the free memory of each in bytes."""
    if len(numbers) <= _MOST_RANK_ROWS:
        return numbers
    return sorted({*numbers[: _MOST_RANK_ROWS - 2], min(numbers, key=free.__getitem__), numbers[-1]})


def _row(members: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> tuple[str, ...]:
    """Return the row of `ranks`, which share a host, from the facts about each."""
    # Ranges of what differs within a node.
    parts = sorted(part for each in members for part in range(each["parts"][0], each["parts"][1] + 1))
    devices = list(dict.fromkeys(each["device"] for each in members))
    threads = sorted({each["threads"] for each in members})
    free = members[0]["free"]
    return (
        _spans(ranks),
        members[0]["host"],
        devices[0] if len(devices) == 1 else f"{devices[0]} ... {devices[-1]}",
        "-".join(map(str, dict.fromkeys((threads[0], threads[-1])))),
        _spans(parts),
        size_text(sum(each["features"] for each in members)),
        size_text(sum(each["memory"] for each in members)),
        "unknown" if free is None else size_text(free),
    )


def _spans(numbers: Iterable[int]) -> str:
    """Format ascending numbers as '0-3, 7'."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
