"""What a sample takes where the topology is spread over the ranks: vertices named to their owners, and answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.plan.homes import home_of
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.block import Block
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.sampling.sharded.shared_order import BITS


def predict_lists(
    blocks: Sequence[Block], rank: int, rank_offsets: np.ndarray, answers: AnswerFormat, traffic: Traffic
) -> None:
    """Add to `traffic` what the sample `blocks` (from the root outward) of `rank` moves.

    rank_offsets: int64[ranks + 1].
    """
    ranks, id_bytes = len(rank_offsets) - 1, IdCodec.home_ranks(rank_offsets).id_bytes
    home = home_of(blocks[-1].src, rank_offsets)
    named = 0

    # Each hop's new destinations are named; all named so far draw.
    for block in blocks:
        new = _by_owner(home[named : block.n_dst], rank, ranks)
        drew = np.bincount(home[: block.n_dst], np.diff(block.indptr), minlength=ranks).astype(np.int64)
        drew[rank] = 0
        words = answers.answer_words(_by_owner(home[: block.n_dst], rank, ranks), new, drew)
        traffic.add_naming(rank, KIND, new * id_bytes, words * answers.word.itemsize, counted=2)
        named = block.n_dst

    # Those that the last hop drew first are described, where somebody reads it.
    if not answers.last:
        return
    new = _by_owner(home[named:], rank, ranks)
    words = answers.about_words(new)
    traffic.add_naming(rank, KIND, new * id_bytes, words * answers.word.itemsize, counted=1)


def predict_own_counts(rank: int, wanted: int, traffic: Traffic) -> None:
    """Add to `traffic` what `rank` sends to find which of its keys are among so many `wanted` counts of all.

    See leapmpi/sampling/sharded/shared_order.py.
    """
    for _ in range(BITS):
        traffic.add_reduction(rank, wanted, 8, "control")
    traffic.add_gather(rank, 2 * 8 * wanted, "control")


def _by_owner(home: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """int64[ranks]: how many of the vertices with these homes other ranks have."""
    counts = np.bincount(home, minlength=ranks).astype(np.int64)
    counts[rank] = 0
    return counts
