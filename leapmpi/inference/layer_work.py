"""Plans of layers before the first one is computed: form, chunks, bytes to receive, memory to take.

Layers take the fewest shares and rows instead of rows alone where the saved bytes are worth the work. Both are counted
chunk by chunk, as they will be requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.chunk_feeds import Chunk, ChunkSource
from leapmpi.exchange.feeds.share_routes import HIDDEN
from leapmpi.exchange.layer_form import PROJECTED, LayerForm
from leapmpi.inference.chunks import ChunkBytes, Chunks, Needed
from leapmpi.nn.head import Head

FEATURES = "features"
"""The kind under which rows of the first layer are counted, unless they are projected."""

SHARE_SECONDS = 1.5e-6
"""Seconds, for each remote row, to find the fewest shares and rows and to name them."""

MOST_SPARED = 0.4
"""The largest fraction of the bytes of rows that shares can be expected to save, before they are counted."""

SOURCE = 112
"""Bytes of numbers, ids, degrees and addresses of a source: in the sampler, the block and the request for its row."""

EDGE = 44
"""Bytes of the numbers and the weight of an edge: in the sampler, the block and the sums."""

NUMBERED_EDGE = 28
"""The same where rows are found by number: in the block and the sums alone."""

REMOTE_EDGE, NAMED_EDGE = 150, 48
"""Bytes of an edge where the fewest shares and rows are found, and of one that another rank names to this one."""

ATTENTION_EDGE = 40
"""Bytes of the numbers of an edge by which its attention in the layer below is found."""

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
    each: ChunkBytes
    """Bytes of its chunks where rows alone travel."""
    held: int
    """Bytes of the rows that are held meanwhile."""
    limit: int
    """Bytes that a chunk may take beside them."""
    row_bytes: int
    """Bytes of a row or share as it crosses ranks."""
    received: dict[str, int]
    """Bytes by kind that this rank will receive, or send to request them."""
    items: tuple[int, int]
    """Rows and shares that this rank will receive."""
    seconds: float
    """Seconds that planning took."""

    def __iter__(self) -> Iterator[tuple[Chunk, slice]]:
        """Yield the chunk of each round, and its place among the destinations."""
        destinations, alone = self.needed.destinations, self.chunks.rounds == 1
        for round, place in enumerate(self.chunks):
            chosen = destinations if alone else destinations[place]
            yield Chunk(chosen, self.chunks.remote_of(round), alone), place

    @property
    def group(self) -> tuple[int, ...]:
        """A key that is the same for layers whose shares take the same routes."""
        alone = self.chunks.rounds == 1
        return (id(self.source), id(self.needed.destinations)) if alone else (self.number,)


@dataclass(frozen=True)
class Expectation:
    """Traffic and memory of all layers of one inference, on this rank."""

    received: dict[str, int]
    """Bytes by kind."""
    held: int
    """Bytes of the rows held while the layer that takes most is computed."""
    chunk: int
    """Bytes of a chunk of that layer."""
    look_ups: int


def expectation(works: Sequence[LayerWork], own: int, numbered: int, on_disk: bool) -> Expectation:
    """Sum `works` on this rank, whose lists are those of `own` vertices and name `numbered`.

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
    layer, heads = form.layer, form.layer.heads
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
    # Attention of the layer below, mixed and left; numbers of edges there.
    attention = layer.carries * (4 * heads * number + ATTENTION_EDGE)
    return ChunkBytes(
        destination=number * (own * layer.in_dim + 6 * wide + 3 * layer.rows.own_width + of_head) + attention,
        edge=numbers[0] + number * (6 * heads + carried) + attention,
        source=numbers[1] + number * of_source,
        remote=REQUESTED + sent_row,
        sent=ANSWERED + sent_row,
    )


def received_rows(ctx: RankContext, number: int, form: LayerForm, chunks: Chunks, row_bytes: int) -> dict[str, int]:
    """Count the bytes by kind of rows alone: each distinct remote source of a chunk is requested. Local."""
    kind = FEATURES if number == 0 and form.form != PROJECTED else HIDDEN
    id_bytes = IdCodec.home_ranks(ctx.rank_offsets).id_bytes
    return {"ids": chunks.remote_rows * id_bytes, kind: chunks.remote_rows * row_bytes}


def with_shares(ctx: RankContext, works: Sequence[LayerWork]) -> list[LayerWork]:
    """Return the plans with shares among the items of layers of one group, or `works` where rows pay. Collective."""
    # A bound first: finding shares costs more than they can save on a fast link, so most jobs stop here.
    rows, byte = sum(sum(each.received.values()) for each in works), ctx.machine.byte
    sums = ctx.communicator.all_gather_rows(np.array([rows, works[0].chunks.remote_rows])).sum(axis=0)
    least = SHARE_SECONDS * sums[1]
    if sums[0] * MOST_SPARED * byte <= least:
        return list(works)
    counts = _ItemCounts(ctx, works[0])
    found = [counts.shared(each, naming=number == 0) for number, each in enumerate(works)]

    # The form of a layer is one on all ranks: they sum both sides of the choice.
    shares = sum(sum(each.received.values()) for each in found)
    large = any(each.chunks.bytes > each.limit for each in found)
    sums = ctx.communicator.all_gather_rows(np.array([rows - shares, int(large)])).sum(axis=0)
    return list(works) if sums[1] or sums[0] * byte <= least else found


class _ItemCounts:
    """Counts of the items of a layer's chunks, on this rank and those that others request of it. Collective."""

    def __init__(self, ctx: RankContext, work: LayerWork) -> None:
        self.ctx, rounds, lists = ctx, work.chunks.rounds, work.source.lists
        self.naming: Counter[str] = Counter()
        self.items, self.far = np.zeros((rounds, 2), np.int64), np.zeros(rounds, np.int64)
        named = np.zeros((ctx.ranks, rounds, 2), np.int64)
        for round, (chunk, _) in enumerate(work):
            found = work.source.items(chunk.destinations, chunk.alone)
            self.naming.update(found.naming(ctx.vertices, IdCodec.home_ranks(ctx.rank_offsets).id_bytes))
            self.items[round] = len(found.remote.rows), len(found.remote.destinations)
            self.far[round] = len(found.here.others)
            named[:, round] = np.stack((found.remote.counts, found.named_edges(lists)), axis=1)
        # What others request takes memory here, in the same rounds.
        theirs, once = np.empty_like(named), np.ones(ctx.ranks, np.int64)
        ctx.communicator.exchange(named, once, theirs, once, "control")
        self.sent, self.sent_edges = theirs.sum(axis=0).T

    def shared(self, work: LayerWork, naming: bool) -> LayerWork:
        """Return the plan of `work` with shares, whose items are named to owners if `naming`. Collective."""
        rows, shares = (int(each) for each in self.items.sum(axis=0))
        received = {HIDDEN: (rows + shares) * work.row_bytes, **(self.naming if naming else {})}

        # Bytes of each round: own edges and items, and what others name here.
        taken = self.far * REMOTE_EDGE + self.items.sum(axis=1) * 2 * work.row_bytes
        taken += self.sent * (2 * ANSWERED + 3 * work.row_bytes) + self.sent_edges * (NAMED_EDGE + work.each.edge)
        taken[: len(work.chunks.ends)] += work.chunks.counts @ work.each.of_own
        most = int(self.ctx.communicator.all_gather_rows(np.array([taken.max(initial=0)])).max())
        form, chunks = replace(work.form, shares=True, by_number=False), replace(work.chunks, bytes=most)
        return replace(work, form=form, chunks=chunks, received=received, items=(rows, shares))
