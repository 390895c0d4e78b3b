"""Features for vertices that have none: random numbers, degrees, or the vertex's identity hashed into few columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from data_prep.workspace import Workspace
from leapmpi.errors import ConfigError

KINDS = ("random", "degree", "identity-hash")
_WIDEST = 1_000_000
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class FeatureRule:
    """A parsed --features RULE: what to make and how many columns. `text` is how the graph file names it."""

    kind: str
    text: str
    columns: int


def parse_features(text: str) -> FeatureRule | None:
    """The rule that `--features text` names, or None when it names a file.

    Raises ConfigError when it begins like a rule but is none.
    """
    kind, colon, columns = text.partition(":")
    if kind not in KINDS:
        return None
    if kind == "degree":
        if colon:
            raise ConfigError(f"--features {text}: degree is one column and takes no number")
        return FeatureRule(kind, text, 1)
    if not (columns.isascii() and columns.isdigit() and 1 <= int(columns[:9]) <= _WIDEST):
        raise ConfigError(f"--features {text}: expected a number of columns from 1 to {_WIDEST:,}, as in {kind}:64")
    return FeatureRule(kind, text, int(columns))


def make(rule: FeatureRule, degree: np.ndarray, seed: int, workspace: Workspace) -> np.ndarray | SparseRows:
    """Features [n, rule.columns] of n vertices with in-degrees `degree` int64[n].

    random: standard normal, drawn with `seed`. degree: the in-degree without self-loops and duplicates. identity-hash:
    each vertex has a single entry of 1 or -1 in the column its number is hashed to, so that vertices which share a
    column cancel out on average (Weinberger et al., "Feature Hashing", ICML 2009).
    """
    if rule.kind == "degree":
        return degree.astype(np.float32)[:, None]
    if rule.kind == "random":
        return _random(len(degree), rule.columns, seed, workspace)

    # One entry per vertex; the highest bit of the hash is its sign.
    hashed = _mixed(np.arange(len(degree), dtype=np.uint64))
    sign = np.where(hashed >> np.uint64(63), np.float32(-1), np.float32(1))
    column = ((hashed & np.uint64(2**63 - 1)) % np.uint64(rule.columns)).astype(np.int64)
    return SparseRows((len(degree), rule.columns), np.arange(len(degree) + 1), column, sign)


def _random(vertices: int, columns: int, seed: int, workspace: Workspace) -> np.ndarray:
    """float32[n, columns] of standard normal numbers, in a temporary file."""
    generator = np.random.default_rng(seed)
    out = workspace.array("features", (vertices, columns), np.float32)
    for start in range(0, vertices, _ROWS_AT_ONCE):
        rows = out[start : start + _ROWS_AT_ONCE]
        generator.standard_normal(rows.shape, np.float32, out=rows)
    return out


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """uint64 -> uint64: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) after one step of its counter."""
    numbers = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
