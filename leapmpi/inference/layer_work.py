"""Plans of layers before the first one is computed: their form, their chunks, and what they receive and take.

Of shares and rows together a layer takes the fewest bytes: both are counted, chunk by chunk, as they will be requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.chunks import HIDDEN, Chunk, ChunkSource
from leapmpi.exchange.layer_form import PROJECTED, LayerForm
from leapmpi.inference.chunks import ChunkBytes, Chunks, Needed
from leapmpi.nn.head import Head

FEATURES = "features"
"""The kind under which rows of the first layer are counted, unless they are projected."""

SURCHARGE = 1.1
"""The factor by which bytes of shares count more than bytes of rows, for the work of naming edges."""

SOURCE = 112
"""Bytes of numbers, ids, degrees and addresses of a source: in the sampler, the block and the request for its row."""

EDGE = 44
"""Bytes of the numbers and the weight of an edge: in the sampler, the block and the sums."""

NUMBERED_EDGE = 28
"""The same where rows are found by number: in the block and the sums alone."""

REMOTE_EDGE, NAMED_EDGE = 150, 48
"""Bytes of an edge where the fewest shares and rows are found, and of one that another rank names to this one."""

REQUESTED, ANSWERED = 24, 16
"""Bytes of the ids of a row that this rank requests, and of one that others request of it."""

LOOK_UPS = 8
"""Bytes for each vertex that a list names, to count chunks and to number the sources of a block."""

ADDRESSES = 20
"""Bytes for each vertex that a list names, to find rows by number."""

PER_VERTEX = 16
"""Bytes for each own vertex: its id, and its number while chunks are cut."""


@dataclass(frozen=True)
class LayerWork:
    """Plan of one layer on this rank."""

    number: int
    """From 0."""
    form: LayerForm
    needed: Needed
    source: ChunkSource
    chunks: Chunks
    held: int
    """Bytes of the rows that are held meanwhile."""
    row_bytes: int
    """Bytes of a row or share as it crosses ranks."""
    received: dict[str, int]
    """Bytes by kind that this rank will receive, or send to request them."""
    items: tuple[int, int]
    """Rows and shares that this rank will receive."""
    seconds: float
    """Seconds that planning took."""

    def __iter__(self):
        """Yield the chunk of each round, and its place among the destinations."""
        destinations, alone = self.needed.destinations, self.chunks.rounds == 1
        for round, place in enumerate(self.chunks):
            yield Chunk(destinations[place], self.chunks.remote_of(round), alone), place


@dataclass(frozen=True)
class Expectation:
    """Traffic and memory of all layers of one inference, on this rank."""

    received: dict[str, int]
    """Bytes by kind."""
    held: int
    """Of the layer that takes most: bytes of the rows that are held,"""
    chunk: int
    """and of a chunk."""
    look_ups: int


def expectation(works: Sequence[LayerWork], own: int, numbered: int, on_disk: bool) -> Expectation:
    """Sum up `works` on this rank, whose lists are of `own` vertices and name `numbered`.

    Rows in files do not count.
    """
    received: Counter[str] = Counter()
    for each in works:
        received.update(each.received)
    most = max(works, key=lambda each: each.held * (not on_disk) + each.chunks.bytes)
    held = 0 if on_disk else most.held
    sent = {kind: count for kind, count in received.items() if count}
    of_number = LOOK_UPS + ADDRESSES * any(work.form.by_number for work in works)
    return Expectation(sent, held, most.chunks.bytes, of_number * numbered + PER_VERTEX * own)


def chunk_bytes(ctx: RankContext, form: LayerForm, number: int, sent_row: int, head: Head | None) -> ChunkBytes:
    """Return the bytes of a chunk: `number` are those of a float, `sent_row` those of a row as it travels.

    A `head` follows the last layer.
    """
    layer, heads = form.layer, getattr(form.layer, "heads", 1)
    wide = max(form.width, layer.out_dim)
    # A copy of each row, and where layers are not linear their messages.
    copies = 0 if form.in_place else 3 if layer.linear else 6
    own = 0 if form.in_place and form.form == PROJECTED else 2
    numbers = (NUMBERED_EDGE, 0) if form.by_number else (EDGE, SOURCE)
    of_source = 0 if form.by_number else copies * max(form.width, form.travels) + 2 * heads
    of_head = 0 if head is None else 2 * head.width + 2 * len(head.bias)
    carried = 0
    if "edge_features" in layer.edge_data and ctx.edge_features is not None:
        carried = 2 * ctx.edge_features.shard.width + 4 * max(form.width, layer.in_dim)
    return ChunkBytes(
        destination=number * (own * layer.in_dim + 6 * wide + 3 * layer.own_width + of_head),
        edge=numbers[0] + number * (6 * heads + carried),
        source=numbers[1] + number * of_source,
        remote=REQUESTED + sent_row,
        sent=ANSWERED + sent_row,
    )


def work_of_rows(
    ctx: RankContext, number: int, form: LayerForm, needed: Needed, source: ChunkSource, chunks: Chunks, row_bytes: int
) -> LayerWork:
    """Plan layer `number` (from 0) with rows alone: each distinct remote source of a chunk is requested. Local."""
    rows = chunks.remote_rows
    kind = FEATURES if number == 0 and form.form != PROJECTED else HIDDEN
    received = {"ids": rows * IdCodec.home_ranks(ctx.rank_offsets).id_bytes, kind: rows * row_bytes}
    return LayerWork(number, form, needed, source, chunks, 0, row_bytes, received, (rows, 0), 0.0)


def with_shares(ctx: RankContext, work: LayerWork, each: ChunkBytes, limit: int) -> LayerWork:
    """Return the plan with shares among the items of `work`, or `work` where that spares no bytes. Collective.

    `each` are the bytes of its chunks; shares must fit `limit` bytes a chunk on every rank.
    """
    communicator, ranks, chunks = ctx.communicator, ctx.ranks, work.chunks
    id_bytes, row_bytes = IdCodec.home_ranks(ctx.rank_offsets).id_bytes, work.row_bytes
    received: Counter[str] = Counter()
    items, taken = np.zeros(2, np.int64), np.zeros(chunks.rounds, np.int64)
    named = np.zeros((chunks.rounds, ranks, 2), np.int64)
    for round, (chunk, _) in enumerate(work):
        found = work.source.items(chunk.destinations, chunk.alone)
        received.update(found.received(ctx, id_bytes, row_bytes))
        items += len(found.remote.rows), len(found.remote.destinations)
        named[round] = np.stack((found.remote.counts, found.named_edges(work.source.lists)), axis=1)
        taken[round] = len(found.here.others) * REMOTE_EDGE + named[round, :, 0].sum() * 2 * row_bytes

    # What others name here in the same round takes memory too.
    theirs, once = np.empty((ranks, chunks.rounds, 2), np.int64), np.ones(ranks, np.int64)
    communicator.exchange(np.ascontiguousarray(named.transpose(1, 0, 2)), once, theirs, once, "control")
    requested, edges = theirs.sum(axis=0).T
    taken += requested * (2 * ANSWERED + 3 * row_bytes) + edges * (NAMED_EDGE + each.edge)
    taken[: len(chunks.ends)] += chunks.counts @ each.of_own
    most = int(taken.max(initial=0))

    # All ranks take shares, or none does.
    sums = np.array([sum(work.received.values()), sum(received.values()), most > limit], np.int64)
    rows, shares, large = communicator.all_gather_rows(sums).sum(axis=0)
    if large or shares * SURCHARGE >= rows:
        return work
    size = int(communicator.all_gather_rows(np.array([most])).max())
    form, chunks = replace(work.form, shares=True, by_number=False), replace(chunks, bytes=size)
    return replace(work, form=form, chunks=chunks, received=dict(received), items=(int(items[0]), int(items[1])))
