"""Counts by layer of a full batch, for people and records: inputs computed twice, kept, and communicated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, LayerGraph
from leapmpi.plan.homes import home_of

COUNTED = ("cached", "rows", "by_kind", "sums")
"""Counts of `counts_of`: remote inputs that a rank has itself; rows received in every iteration; projected rows or
partial sums received; sums of features that are kept.
"""

Account = Sequence[Mapping[str, int | str]]


def counts_of(graph: LayerGraph, rank_offsets: np.ndarray, rank: int) -> np.ndarray:
    """Return int64[layers, 5] of one rank: the number of the layer's kind in KINDS, then what COUNTED says."""

    def away(vertices: np.ndarray) -> np.ndarray:
        return home_of(vertices, rank_offsets) != rank

    found = []
    for plan in graph.plans:
        if plan.rows is None:
            cached, rows = len(graph.cached), received_features(graph, rank_offsets, rank)
        else:
            # Remote sources with a row here are received or computed here; the difference is cached.
            here = away(plan.block.src)
            if plan.by_kind is not None:
                here &= plan.by_kind.source_rows >= 0
            rows = int(plan.rows.received_counts.sum())
            cached = int(here.sum()) - rows
        by_kind = int(plan.by_kind.received_counts.sum()) if plan.by_kind else 0
        sums = plan.block.n_dst if plan.rows is None and graph.summed is not None else 0
        found.append((KINDS.index(plan.kind), cached, rows, by_kind, sums))
    return np.array(found, np.int64)


def received_features(graph: LayerGraph, rank_offsets: np.ndarray, rank: int) -> int:
    """Return how many feature rows one rank is sent in every iteration. Local."""
    return int((home_of(graph.fed, rank_offsets) != rank).sum()) - len(graph.cached)


def account_of(counts: np.ndarray) -> Account:
    """Return plain values by layer, over all ranks, from int64[ranks, layers, 5] as `counts_of` gives them."""
    kinds, totals = counts[0, :, 0].tolist(), counts[:, :, 1:].sum(axis=0).tolist()
    return [
        {"kind": KINDS[kind], **dict(zip(COUNTED, each, strict=True))} for kind, each in zip(kinds, totals, strict=True)
    ]


def sentence(account: Account) -> str:
    """Return one line about all layers."""
    layers = [f"layer {number}: {_of_layer(number, each)}" for number, each in enumerate(account, 1)]
    return "remote inputs, over all ranks: " + "; ".join(layers)


def _of_layer(number: int, layer: Mapping[str, int | str]) -> str:
    parts = {
        "cached": "feature rows kept" if number == 1 else "rows computed again",
        "rows": "rows sent",
        "by_kind": "partial sums sent" if layer["kind"] == PARTIAL else "projected rows sent",
    }
    found = [f"{layer[name]:,} {text}" for name, text in parts.items() if layer[name]]
    found += ["sums of features kept"] if layer["sums"] else []
    return ", ".join(found) or "none"
