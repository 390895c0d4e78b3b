"""What the ranks compute twice, keep and communicate for each layer of a full batch: counts, for people and records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.full_batch.layer_graphs import KINDS, PARTIAL, RAW, LayerGraph
from leapmpi.plan.homes import home_of

COUNTED = ("cached", "rows", "by_kind")
"""What `counts_of` counts: remote inputs that a rank has itself, rows that come, projected rows or sums that come."""


def counts_of(graph: LayerGraph, rank_offsets: np.ndarray, rank: int) -> np.ndarray:
    """int64[layers, 4] of one rank: the number of the layer's kind in KINDS, then what COUNTED says."""
    found = []
    for plan in graph.plans:
        away = home_of(plan.block.src, rank_offsets) != rank
        here = int((away if plan.by_kind is None else away & (plan.by_kind.source_rows >= 0)).sum())
        rows = int(plan.rows.received_counts.sum()) if plan.rows else here - len(graph.cached)
        of_kind = int(plan.by_kind.received_counts.sum()) if plan.by_kind else 0
        found.append((KINDS.index(plan.kind), here - rows, rows, of_kind))
    return np.array(found, np.int64)


def account_of(counts: np.ndarray) -> list[dict[str, int | str]]:
    """Plain values by layer, over all ranks, from int64[ranks, layers, 4] as `counts_of` gives them."""
    kinds, totals = counts[0, :, 0].tolist(), counts[:, :, 1:].sum(axis=0).tolist()
    return [
        {"kind": KINDS[kind], **dict(zip(COUNTED, each, strict=True))} for kind, each in zip(kinds, totals, strict=True)
    ]


def sentence(account: Sequence[dict[str, int | str]]) -> str:
    """One line about all layers."""
    layers = [f"layer {number}: {_of_layer(number, each)}" for number, each in enumerate(account, 1)]
    return "inputs at home elsewhere, over all ranks: " + "; ".join(layers)


def _of_layer(number: int, layer: dict[str, int | str]) -> str:
    kept = "feature rows kept" if number == 1 else "rows computed again"
    kind = "partial sums" if layer["kind"] == PARTIAL else "projected rows"
    parts = [f"{layer['cached']:,} {kept}", f"{layer['rows']:,} rows sent"]
    parts += [] if layer["kind"] == RAW else [f"{layer['by_kind']:,} {kind} sent"]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "none"
