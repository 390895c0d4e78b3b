"""One block of the destinations of several: what the micro-batches of a rank read of a layer, each destination once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from leapmpi.sampling.block import Block, indptr_of


def merged(blocks: Sequence[Block]) -> tuple[Block, list[np.ndarray | None]]:
    """A block of the distinct destinations of `blocks`, of one hop and one key, by id; and where those of each stand.

    int64[n_dst] each, None for all in order: a single block is given back as it is. What a vertex draws does not depend
    on the micro-batch (rule R1), so its edges are those of any of its blocks.
    """
    if len(blocks) == 1:
        return blocks[0], [None]
    every = np.concatenate([block.dst for block in blocks])
    dst, first, places = np.unique(every, return_index=True, return_inverse=True)

    # The edges of the first appearance of each destination.
    counts = _joined(blocks, lambda each: np.diff(each.indptr))[first]
    starts = np.cumsum([0, *[block.edges for block in blocks]])
    begins = np.concatenate([block.indptr[:-1] + start for block, start in zip(blocks, starts, strict=False)])[first]
    indptr = indptr_of(counts)
    edges = np.repeat(begins - indptr[:-1], counts) + np.arange(indptr[-1])
    neighbours = _joined(blocks, lambda each: each.src[each.indices])[edges]

    # Sources: the destinations, then all others by id.
    src = np.concatenate((dst, np.setdiff1d(neighbours, dst)))
    order = np.argsort(src)
    indices = order[np.searchsorted(src, neighbours, sorter=order)].astype(np.int32)
    names = [name for name in ("weight", "edge_weight") if getattr(blocks[0], name) is not None]
    of_edges = {name: _joined(blocks, attrgetter(name))[edges] for name in names}
    block = Block(
        hop=blocks[0].hop,
        n_dst=len(dst),
        src=src,
        indptr=indptr,
        indices=indices,
        src_original=_of_sources(blocks, "src_original", src, len(dst)),
        src_degree=_of_sources(blocks, "src_degree", src, len(dst)),
        **of_edges,
    )
    if blocks[0].drawn_weight is not None:
        sums = _of_sources(blocks, "src_weight_sum", src, len(dst))
        drawn = _joined(blocks, attrgetter("drawn_weight"))[first]
        block = replace(block, drawn_weight=drawn, src_weight_sum=sums)
    return block, list(np.split(places, np.cumsum([each.n_dst for each in blocks])[:-1]))


def _joined(blocks: Sequence[Block], of: Callable[[Block], Any]) -> np.ndarray:
    """What `of` gives of each of `blocks`, one after the other."""
    return np.concatenate([of(block) for block in blocks])


def _of_sources(blocks: Sequence[Block], name: str, src: np.ndarray, n_dst: int) -> np.ndarray:
    """The array `name` by source, of `src`: of its first `n_dst`, where a block says no more of the others."""
    known = [len(getattr(block, name)) for block in blocks]
    vertices, at = np.unique(
        np.concatenate([block.src[:count] for block, count in zip(blocks, known, strict=True)]), return_index=True
    )
    wanted = src if all(count == block.n_src for block, count in zip(blocks, known, strict=True)) else src[:n_dst]
    return _joined(blocks, attrgetter(name))[at[np.searchsorted(vertices, wanted)]]
