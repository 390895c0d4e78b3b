"""Names under which DGL's data sets hold features, labels and edge data."""

from __future__ import annotations

from collections.abc import Container, Sequence

FEATURES, LABELS = ("feat", "features", "x", "node_feat"), ("label", "labels", "y")
EDGE_ARRAYS = {"weight": ("weight", "edge_weight"), "features": ("feat", "features"), "time": ("time", "timestamp")}


def first_known(held: Container[str], known: Sequence[str]) -> str | None:
    """Return the first of the `known` names that `held` has, None without one."""
    return next((name for name in known if name in held), None)
