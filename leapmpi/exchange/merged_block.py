"""One block of the destinations of several: what the micro-batches of a rank read of a layer, each destination once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from leapmpi.sampling.block import Block, DrawnBlock, indptr_of


def merged(blocks: Sequence[Block]) -> tuple[Block, list[np.ndarray | None]]:
    """A block of the distinct destinations of `blocks`, of one hop and one key, by id; and where those of each stand.

    int64[n_dst] each, None for all in order: a single block is given back as it is. What a vertex draws does not depend
    on the micro-batch (rule R1), so its edges are those of any of its blocks. Of sources that are no destinations names
    and degrees are left out.
    """
    if len(blocks) == 1:
        return blocks[0], [None]
    every = _joined(blocks, attrgetter("dst"))
    dst, first, places = np.unique(every, return_index=True, return_inverse=True)

    # The edges of the first appearance of each destination.
    counts = _joined(blocks, lambda each: np.diff(each.indptr))[first]
    starts = np.cumsum([0, *[block.edges for block in blocks]])
    begins = np.concatenate([block.indptr[:-1] + start for block, start in zip(blocks, starts, strict=False)])[first]
    indptr = indptr_of(counts)
    edges = np.repeat(begins - indptr[:-1], counts) + np.arange(indptr[-1])

    # What is known of destinations and of edges, where anything is.
    known = {
        "src_original": ("dst_original", first),
        "src_degree": ("dst_degree", first),
        "src_weight_sum": ("dst_weight_sum", first),
        "drawn_weight": ("drawn_weight", first),
        "weight": ("weight", edges),
        "edge_weight": ("edge_weight", edges),
    }
    present = {
        name: _joined(blocks, attrgetter(source))[chosen]
        for name, (source, chosen) in known.items()
        if getattr(blocks[0], source) is not None
    }
    neighbours = _joined(blocks, attrgetter("neighbours"))[edges]
    block = DrawnBlock.of(dst, neighbours, hop=blocks[0].hop, indptr=indptr, **present)
    return block, list(np.split(places, np.cumsum([each.n_dst for each in blocks])[:-1]))


def _joined(blocks: Sequence[Block], of: Callable[[Block], Any]) -> np.ndarray:
    """What `of` gives of each of `blocks`, one after the other."""
    return np.concatenate([of(block) for block in blocks])
