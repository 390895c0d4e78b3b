"""Predicted traffic of sampling with a sharded topology: requests to owners, and replies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.plan.homes import home_of
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.block import Block
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.sampling.sharded.shared_candidates import id_type
from leapmpi.sampling.sharded.shared_order import BITS
from leapmpi.sampling.sharded.shared_walks import WORD_BYTES
from leapmpi.system.counter_rng import DrawKey


def predict_lists(
    blocks: Sequence[Block], rank: int, rank_offsets: np.ndarray, answers: AnswerFormat, traffic: Traffic
) -> None:
    """Add to `traffic` the messages of the sample `blocks` (from the root outward) of `rank`.

    rank_offsets: int64[ranks + 1].
    """
    ranks, id_bytes = len(rank_offsets) - 1, IdCodec.home_ranks(rank_offsets).id_bytes
    home = home_of(blocks[-1].src, rank_offsets)
    named = 0

    # New destinations of each hop are requested; all requested so far draw.
    for block in blocks:
        new = _by_owner(home[named : block.n_dst], rank, ranks)
        drew = np.bincount(home[: block.n_dst], np.diff(block.indptr), minlength=ranks).astype(np.int64)
        drew[rank] = 0
        words = answers.answer_words(_by_owner(home[: block.n_dst], rank, ranks), new, drew)
        traffic.add_naming(rank, KIND, new * id_bytes, words * answers.word.itemsize, counted=2)
        named = block.n_dst

    # Sources first drawn by the last hop are described, if anything reads that.
    if not answers.last:
        return
    new = _by_owner(home[named:], rank, ranks)
    words = answers.about_words(new)
    traffic.add_naming(rank, KIND, new * id_bytes, words * answers.word.itemsize, counted=1)


def predict_draws(
    sampler: Sampler,
    key: DrawKey,
    blocks: Sequence[Block],
    rank: int,
    rank_offsets: np.ndarray,
    answers: AnswerFormat,
    traffic: Traffic,
) -> None:
    """Add the traffic of `predict_lists`, and of requests between owners as `sampler` draws with `key`."""
    predict_lists(blocks, rank, rank_offsets, answers, traffic)
    if not isinstance(sampler, RandomWalk):
        return

    # Count walks that continue from a vertex of another rank than their start's.
    ranks, id_bytes = len(rank_offsets) - 1, IdCodec.home_ranks(rank_offsets).id_bytes
    sent, rounds = traffic.sent[KIND], sampler.options.steps - 1
    for block in blocks:
        requested = sampler.crossings(key, block.hop, block.dst, rank_offsets) * (1 - np.eye(ranks, dtype=np.int64))
        sent += requested * (id_bytes + WORD_BYTES) + requested.T * (2 * answers.word.itemsize)
        traffic.add_gather(rank, 8 * rounds, "control")


def predict_tables(
    sampler: Sampler, key: DrawKey, batch: np.ndarray, rank: int, rank_offsets: np.ndarray, traffic: Traffic
) -> None:
    """Add to `traffic` the messages of `rank` before the draws of an iteration with `key`, if they read its frontier.

    batch: int64[B], the roots of all ranks.
    """
    if not isinstance(sampler, FrontierSampler):
        return
    ranks, topology, codec = len(rank_offsets) - 1, sampler.topology, IdCodec.home_ranks(rank_offsets)
    sampler.begin(key, batch)
    for hop, frontier in enumerate(sampler.frontiers):
        # Facts about sources go to all ranks, in one or several rounds.
        own = frontier[home_of(frontier, rank_offsets) == rank]
        sources, numbers, times = sampler.shared_counts(hop, own)
        traffic.add_gather(rank, 8 * times, "control")
        traffic.add_gather(rank, times * len(sources) * (id_type(topology.vertices).itemsize + 8 * numbers), KIND)

        # Draws go to their owners, which draw for them at the next hop.
        if hop + 1 < len(sampler.frontiers):
            drawn = sampler.draw(key, hop, own, topology.original_id[own], topology.degree(own)).neighbours
            away = _by_owner(home_of(np.unique(drawn), rank_offsets), rank, ranks)
            traffic.add_naming(rank, KIND, away * codec.id_bytes, 0 * away, counted=1)


def predict_own_counts(rank: int, wanted: int, columns: int, traffic: Traffic) -> None:
    """Add to `traffic` the messages of `rank` to count its keys among `wanted` smallest of all ranks.

    columns: number of words per key. See leapmpi/sampling/sharded/shared_order.py.
    """
    for _ in range(columns * BITS):
        traffic.add_reduction(rank, wanted, 8, "control")
    traffic.add_gather(rank, (columns + 1) * 8 * wanted, "control")


def _by_owner(home: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """Count the vertices with these homes on other ranks: int64[ranks]."""
    counts = np.bincount(home, minlength=ranks).astype(np.int64)
    counts[rank] = 0
    return counts
