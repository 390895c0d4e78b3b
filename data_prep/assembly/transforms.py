"""Arithmetic transformations of feature columns, as GraphStorm's gconstruct defines them (docs, "Input Raw Data").

max_min_norm, standard, rank_gauss, bucket_numerical and to_categorical; noop leaves a column as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from leapmpi.errors import DataError

NOOP, CATEGORICAL = "noop", "to_categorical"
NUMERIC = ("max_min_norm", "standard", "rank_gauss", "bucket_numerical")
KNOWN = (NOOP, *NUMERIC, CATEGORICAL)
_MOST_BUCKETS = 1 << 16
_MOST_CATEGORIES = 1 << 16
_EPSILON = 1e-6


def transformed(values: np.ndarray, transform: Mapping[str, Any], where: str) -> np.ndarray:
    """Return columns float32[n, F] made of numbers [n, k] by a transformation of NUMERIC; `where` opens messages.

    Raises DataError for options that it cannot take, or columns of a single value where it divides by their range.
    """
    values = values.astype(np.float64)
    name = transform["name"]
    if name == "standard":
        total = values.sum(axis=0)
        if (total == 0).any():
            raise DataError(f"{where}: the values add up to 0, by which standard divides")
        found = values / total
    elif name == "max_min_norm":
        found = _scaled(values, transform, where)
    elif name == "rank_gauss":
        found = _gaussian(values, float(_number(transform, "epsilon", _EPSILON, where)))
    else:
        found = _buckets(values, transform, where)
    return found.astype(np.float32)


def categories(texts: Sequence[str], transform: Mapping[str, Any], where: str) -> np.ndarray:
    """Return a column of 0 and 1 for each category: float32[n, C]; texts without a category have zeros.

    Categories ascend, unless `mapping` numbers them; `separator` divides a text into several.
    """
    separator = transform.get("separator")
    lists = [text.split(separator) if separator else [text] for text in map(str, texts)]
    mapping = transform.get("mapping")
    if mapping is None:
        found = sorted({each for row in lists for each in row if each})
        mapping = {each: number for number, each in enumerate(found)}
    # A mapping comes from a file: a number in it decides how much memory the columns take.
    numbers = mapping.values() if isinstance(mapping, dict) else [None]
    if not all(type(each) is int and 0 <= each < _MOST_CATEGORIES for each in numbers) or not mapping:
        raise DataError(f"{where}: to_categorical has no categories, or more than {_MOST_CATEGORIES:,}")
    out = np.zeros((len(lists), max(mapping.values()) + 1), np.float32)
    for row, each in enumerate(lists):
        out[row, [mapping[word] for word in each if word in mapping]] = 1
    return out


def _number(transform: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = transform.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {key} is {str(value)[:40]!r}, which is not a number")
    return value


def _scaled(values: np.ndarray, transform: Mapping[str, Any], where: str) -> np.ndarray:
    """Scale each column to 0 ... 1, clipped there; bounds may be stated."""
    largest = np.minimum(values.max(axis=0), _number(transform, "max_bound", np.inf, where))
    least = np.maximum(values.min(axis=0), _number(transform, "min_bound", -np.inf, where))
    try:
        largest = np.asarray(transform.get("max_val", largest), np.float64)
        least = np.asarray(transform.get("min_val", least), np.float64)
        span = np.broadcast_to(largest - least, values.shape[1:])
    except (ValueError, TypeError):
        raise DataError(f"{where}: max_val and min_val must be a number for each column") from None
    if (span <= 0).any():
        raise DataError(f"{where}: a column has a single value, so that max_min_norm cannot scale it")
    return np.clip((values - least) / span, 0, 1)


def _gaussian(values: np.ndarray, epsilon: float) -> np.ndarray:
    """Replace each value by the quantile of its rank: erfinv of ranks spread over -1 ... 1."""
    rows = len(values)
    spread = np.clip((np.arange(rows) / max(1, rows - 1) - 0.5) * 2, -1 + epsilon, 1 - epsilon)
    # erfinv(x) is the quantile (x + 1) / 2 of a normal distribution of variance 1/2.
    normal = NormalDist(0, 0.5**0.5)
    quantiles = np.fromiter((normal.inv_cdf((each + 1) / 2) for each in spread.tolist()), np.float64, rows)
    ranks = values.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return quantiles[ranks]


def _buckets(values: np.ndarray, transform: Mapping[str, Any], where: str) -> np.ndarray:
    """Return a column of 0 and 1 for each bucket that a value, or its window, touches."""
    count, bounds = transform.get("bucket_cnt"), transform.get("range")
    numbers = isinstance(bounds, list) and len(bounds) == 2 and all(type(each) in (int, float) for each in bounds)
    if type(count) is not int or not 0 < count <= _MOST_BUCKETS or not numbers or values.shape[1] != 1:
        raise DataError(f"{where}: bucket_numerical takes one column, a bucket_cnt and a range of two numbers")
    low, high = min(bounds), max(bounds)
    if low == high:
        raise DataError(f"{where}: the range of bucket_numerical is empty")
    # A value counts for every bucket that its window touches; those beyond the range for the outer ones.
    window, size = _number(transform, "slide_window_size", 0, where) / 2, (high - low) / count
    value = values[:, 0]
    first = np.maximum((np.maximum(value - window, low) - low) // size, 0).astype(np.int64)
    end = np.minimum((np.minimum(value + window, high) - low) // size + 1, count).astype(np.int64)
    bucket = np.arange(count)
    out = (bucket >= first[:, None]) & (bucket < end[:, None])
    out[:, -1] |= value >= high
    out[:, 0] |= value <= low
    return out
