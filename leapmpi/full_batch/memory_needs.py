"""Full batches that take less: the split that does, and advice for people."""

from __future__ import annotations

import numpy as np

from leapmpi.exchange.layer_graphs import KINDS, RAW, LayerInputs, Split


class AllCommunicated:
    """All remote inputs come as rows: the split that caches nothing, by which the room for caching is measured."""

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Raw rows alone."""
        return np.where([kind == RAW for kind in KINDS], 0.0, np.inf)

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Nothing is cached."""
        return Split(np.zeros(inputs.block.n_src, bool), np.ones(int(inputs.home.max(initial=0)) + 1, bool))


def advice(strategy: str, limited: bool, layers: int) -> str:
    """What would take less, for people; `limited` says that there is a --memory-limit."""
    ways = ["use depcomm, which computes and keeps nothing twice"] if strategy == "depcache" else []
    ways += ["give a --memory-limit, which limits what is cached"] if strategy == "hybrid" and not limited else []
    ways += ["give fewer layers (--fanout)"] if layers > 1 else []
    return ", ".join([*ways, "take fewer --hidden columns or more ranks, or train mini-batches (--strategy leap)"])
