"""Whether full batches fit: what each rank needs, against the limit that was given and what machines have left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.full_batch.layer_graphs import KINDS, RAW, LayerInputs, Split
from leapmpi.runs.tables.text import size_text


class AllCommunicated:
    """All remote inputs come as rows: the split that caches nothing, by which the room for caching is measured."""

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Raw rows alone."""
        return np.where([kind == RAW for kind in KINDS], 0.0, np.inf)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Nothing is cached."""
        return Split(np.zeros(inputs.block.n_src, bool), np.ones(int(inputs.home.max(initial=0)) + 1, bool))


@dataclass(frozen=True)
class Needs:
    """Bytes on one rank: what an iteration needs, of which `kept` for feature rows, and what its host has left."""

    host: str
    bytes: int
    kept: int
    free: int | None


def too_much(ranks: Sequence[Needs], limit: float) -> str:
    """What does not fit, by rank against `limit` (bytes) and by host; empty where all fits."""
    largest = max(range(len(ranks)), key=lambda rank: ranks[rank].bytes)
    needs = ranks[largest]
    what = f"a full batch takes about {size_text(needs.bytes)} on rank {largest}"
    if needs.kept:
        what += f", {size_text(needs.kept)} of it for feature rows that are kept"
    if needs.bytes > limit:
        return f"{what}, more than --memory-limit {size_text(int(limit))}"
    for host in dict.fromkeys(each.host for each in ranks):
        here = [each for each in ranks if each.host == host]
        free = min((each.free for each in here if each.free is not None), default=None)
        if free is not None and sum(each.bytes for each in here) > free:
            return (
                f"{what}; the ranks on {host} need {size_text(sum(each.bytes for each in here))} of {size_text(free)}"
            )
    return ""


def advice(strategy: str, limited: bool, layers: int) -> str:
    """What would take less, for people; `limited` says that there is a --memory-limit."""
    ways = ["use depcomm, which computes and keeps nothing twice"] if strategy == "depcache" else []
    ways += ["give a --memory-limit, which limits what is cached"] if strategy == "hybrid" and not limited else []
    ways += ["give fewer layers (--fanout)"] if layers > 1 else []
    return ", ".join([*ways, "take fewer --hidden columns or more ranks, or train mini-batches (--strategy leap)"])
