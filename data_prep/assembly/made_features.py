"""Features for vertices that have none: random numbers, degrees, or the vertex's identity hashed into few columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from data_prep.workspace import Workspace
from leapmpi.errors import ConfigError
from leapmpi.system.counter_rng import fold_all

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
    """Parse the rule that `--features text` names; None when it names a file.

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
    """Make features [n, rule.columns] of n vertices with in-degrees `degree` int64[n].

    random: standard normal, drawn with `seed`. degree: the in-degree without self-loops and duplicates. identity-hash:
    each vertex has a single entry of 1 or -1 in the column that its number hashes to. Vertices that share a column
    cancel out on average (Weinberger et al., "Feature Hashing", ICML 2009).
    """
    if rule.kind == "degree":
        return degree.astype(np.float32)[:, None]
    if rule.kind == "random":
        generator = np.random.default_rng(seed)
        out = workspace.array("features", (len(degree), rule.columns), np.float32)
        for start in range(0, len(degree), _ROWS_AT_ONCE):
            rows = out[start : start + _ROWS_AT_ONCE]
            generator.standard_normal(rows.shape, np.float32, out=rows)
        return out

    # One entry per vertex; the highest bit of the hash is its sign.
    hashed = fold_all(np.uint64(0), np.arange(len(degree)))
    sign = np.where(hashed >> np.uint64(63), np.float32(-1), np.float32(1))
    column = ((hashed & np.uint64(2**63 - 1)) % np.uint64(rule.columns)).astype(np.int64)
    return SparseRows((len(degree), rule.columns), np.arange(len(degree) + 1), column, sign)
