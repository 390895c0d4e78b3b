"""Shared parts of the benchmarks of this folder: arguments, clocks, warm-up and repeats, medians, and tables.

Imports neither numpy nor torch: `prepare_threads` must run before they do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import project  # noqa: F401  (benchmarks import leapmpi from their own checkout)

Value = TypeVar("Value", int, float, str)


def argument_parser(about: str) -> argparse.ArgumentParser:
    """Build a parser whose help is `about`, the docstring of the script, as it is written."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_timing(
    parser: argparse.ArgumentParser, *, repeats: int, threads: int | None = None, clock: bool = False
) -> None:
    """Add --repeats to `parser`, and --threads and --clock where the caller passes them."""
    parser.add_argument("--repeats", type=int, default=repeats, help=f"measured repeats (default {repeats})")
    if threads is not None:
        parser.add_argument("--threads", type=int, default=threads, help=f"default {threads}")
    if clock:
        parser.add_argument(
            "--clock", choices=("wall", "processor"), default="wall", help="what is measured (default wall)"
        )


def list_of(convert: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    """Build an argparse type: values between commas, each made by `convert`."""
    return lambda text: [convert(item) for item in text.split(",")]


def prepare_threads(threads: int, clock: str) -> None:
    """Set the environment of the thread pools of OpenMP, numba and DGL, which read it once, when they are loaded."""
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")

    # Threads that wait for work by spinning would add to the processor time.
    if clock == "processor":
        os.environ["OMP_WAIT_POLICY"], os.environ["KMP_BLOCKTIME"] = "PASSIVE", "0"


def timed(action: Callable[[], object], clock: str = "wall") -> tuple[float, object]:
    """Measure the seconds of `action`, by wall clock or as processor time of all threads; also return its result."""
    now = time.process_time if clock == "processor" else time.perf_counter
    begin = now()
    result = action()
    return now() - begin, result


def repeated(action: Callable[[], object], repeats: int, clock: str = "wall") -> float:
    """Measure the median seconds of `repeats` runs of `action`, after one that is not counted."""
    action()
    return statistics.median(timed(action, clock)[0] for _ in range(repeats))


def in_turn(measures: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return the median of each measure over `repeats` rounds of all, in turn, so that slow moments meet all."""
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(repeats)]
    return medians(rounds)


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each column of `rows`, which all have the same columns."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def print_row(cells: Iterable[str]) -> None:
    """Print a line of a Markdown table, at once."""
    print("|", " | ".join(cells), "|", flush=True)


def print_head(headings: Sequence[str], words: int = 1) -> None:
    """Print the first two lines of a Markdown table; the columns after the first `words` hold numbers."""
    print_row(headings)
    print_row(["---"] * words + ["---:"] * (len(headings) - words))
