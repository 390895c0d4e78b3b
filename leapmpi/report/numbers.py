"""Numbers formatted for people, with units. Equal numbers give equal text."""

from __future__ import annotations

import math
import re

from leapmpi.runs.text import size_text

SECONDS, BYTES, SHARE, COUNT, SCORE = "s", "B", "%", "count", "score"
"""Units that `shown` formats specially; any other unit is appended to the number."""


def shown(value: float | None, unit: str = "") -> str:
    """Format a number with three significant digits and its unit; '-' if it is missing or not finite.

    Whole numbers keep all their digits.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if unit == BYTES:
        return size_text(value)
    if unit == SHARE:
        return f"{100 * value:.1f} %"
    if unit == SCORE:
        return f"{value:.3f}" if abs(value) < 10 else shown(value)
    if unit == SECONDS and 0 < abs(value) < 1e-3:
        return f"{1e6 * value:.3g} µs"
    if unit == COUNT or (not unit and value == round(value) and abs(value) < 1e15):
        return f"{value:,.0f}"
    text = f"{value:,.0f}" if 100 <= abs(value) < 1e15 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def spelled(text: str) -> str:
    """Return `text` with abbreviations, such as auc, in capitals."""
    return re.sub(r"\b(ap|auc|f1|mae|mrr|mse|rmse)\b", lambda found: found[0].upper(), text)


def capital(text: str) -> str:
    """Return `text` as a title begins: with a capital, and abbreviations in capitals."""
    written = spelled(text)
    return written[:1].upper() + written[1:]


def title_of(unit: str) -> str:
    """Return the title of an axis of numbers in `unit`; '' where tick labels say enough."""
    return {SECONDS: "seconds", COUNT: "number"}.get(unit, "")


def short(value: float, unit: str = "") -> str:
    """Format a number briefly for an axis: 1.5k, 2M."""
    if unit in (BYTES, SHARE):
        return shown(value, unit).replace(".0 ", " ")
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def ticks(low: float, high: float, most: int = 6, unit: str = "", whole: bool = False) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most`: steps of 1, 2 or 5 times a power of ten.

    Bytes are round in their displayed unit; `whole` drops fractions.
    """
    if unit == BYTES:
        scale = 1024.0 ** max(0, min(3, math.floor(math.log(max(high, 1), 1024))))
        return [scale * each for each in ticks(low / scale, high / scale, most)]
    if whole:
        return [each for each in ticks(low, high, most) if each == round(each)]
    if not high > low:
        return [low]
    rough = high / most - low / most  # the difference may be more than a float holds
    if not rough > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Multiply instead of adding, so that 0.3 stays 0.3.
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
