"""Exact outputs of a model: layer by layer over all in-neighbours, each row once, by its owner.

The exchange feeds each layer, chunk by chunk (leapmpi/exchange/feeds/chunk_feeds.py), as its plan says (layer_work.py).
Owners hold its output rows (row_store.py) until the layer above has read them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError, ResourceError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.chunk_feeds import ChunkedLayer, ChunkSource
from leapmpi.exchange.feeds.share_routes import HIDDEN
from leapmpi.exchange.layer_form import PROJECTED, form_of, offers_shares, project_own_rows, reads_by_number
from leapmpi.exchange.own_lists import OwnLists, own_lists
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.inference.chunks import ChunkBytes, Chunks, ListsOf, Needed, cut, needed_by_layer
from leapmpi.inference.kept_attention import AttentionStep, KeptAttention, kept_bytes, name_of
from leapmpi.inference.layer_work import Expectation, LayerWork, chunk_bytes, expectation, received_rows, with_shares
from leapmpi.inference.row_store import RowStore
from leapmpi.nn.head import Head
from leapmpi.nn.model import Model
from leapmpi.nn.tensors import BlockTensors
from leapmpi.runs.progress_line import step
from leapmpi.runs.text import size_text
from leapmpi.sampling.sharded.topology_shard import TopologyShard

CHUNK_BYTES = 1 << 30
"""The most bytes of a chunk on a rank where no limit is given."""

Answer = Callable[[np.ndarray], np.ndarray]
"""Maps output rows float[n, width] to one entry each, which is kept."""

Round = Callable[[], AbstractContextManager]
"""Makes the context of each round, which all ranks enter together."""


def as_they_are(rows: np.ndarray) -> np.ndarray:
    """Return `rows`: the answer that keeps them."""
    return rows


@dataclass(frozen=True)
class LayerReport:
    """Work of one layer, on this rank except for `chunk_bytes`."""

    number: int
    form: str
    destinations: int
    edges: int
    rounds: int
    remote_rows: int
    shares: int
    """Shares received from other ranks."""
    chunk_bytes: int
    """The most bytes of a chunk on any rank, as planned."""
    held_bytes: int
    """Bytes of the rows held while the layer is computed."""
    seconds: float


class LayerwiseInference:
    """Computes the outputs of the model of `ctx` for any vertices of its graph.

    `topology` is the whole one, or this rank's shard, whose sources are numbered, and named where a layer reads names.
    `limit` bounds the bytes of a chunk and of rows held in memory, on each rank; without it, chunks take up to
    CHUNK_BYTES. All ranks enter `round`, a context, for each chunk together. `expect` is called when all layers are
    planned, `report` after each. With `lists_of` layers read other lists than those of all in-neighbours.
    """

    def __init__(
        self,
        ctx: RankContext,
        topology: Topology | TopologyShard,
        limit: int | None = None,
        store: RowStore | None = None,
        round: Round = nullcontext,
        report: Callable[[LayerReport], None] | None = None,
        expect: Callable[[Expectation], None] | None = None,
        lists_of: ListsOf | None = None,
    ) -> None:
        self.ctx, self.lists, self.limit = ctx, own_lists(ctx, topology), limit
        self.store = store or RowStore()
        self.round = round
        self.report = report or (lambda _: None)
        self.expect = expect or (lambda _: None)
        self.lists_of = lists_of
        self.source = ChunkSource(ctx, self.lists)

    @torch.no_grad()
    def outputs(self, wanted: np.ndarray, layer: int | None = None, answer: Answer = as_they_are) -> np.ndarray:
        """Compute the model's outputs for `wanted` (int64 ascending, of this rank); `answer` of each. Collective.

        With `layer` (from 1), answers of the rows of this layer instead. Raises ResourceError, on all ranks, where not
        even one vertex at a time fits the limit.
        """
        ctx, model = self.ctx, self.ctx.model
        check_model(model)
        layers = list(model.layers)[: layer or None]
        head = model.head if layer is None else None
        lists_of = self.lists_of or (lambda layer, destinations: self.lists)
        needed = needed_by_layer(lists_of, ctx.communicator, ctx.rank_offsets, wanted, len(layers))

        # Rows of a layer depend only on the store's key, so those of an earlier start are used.
        names = [f"layer-{number + 1}" for number in range(len(layers) - 1)]
        done = self.store.finished(ctx.communicator, names)
        answered = answer(np.empty((0, self._output_width(len(layers) - 1, head)), self.dtype))
        works = self._planned(range(done, len(layers)), needed, head, answered)
        self.expect(expectation(works, self.own, self.lists.topology.numbered, self.store.on_disk))

        # Only the last finished layer is read again, unless the head reads the rows of all.
        rows = [None if number < done - 1 and not keeps_all(head) else self._kept(number) for number in range(done)]
        below: list[np.ndarray | None] = list(rows)
        # Attention goes no farther than to the next layer.
        attention = self._attention(done - 1, needed, finished=True) if done else None
        for number, work in enumerate(works, done):
            inputs = self.fetcher(_there(below[-1])) if below else ctx.features
            last = work is works[-1]
            if last:
                out = self._room(len(wanted), answered)
            else:
                out = self.store.rows(names[number], self.own, layers[number].out_dim, self.dtype)
            destinations = work.needed.destinations
            every = last or len(destinations) == self.own
            places = slice(None) if every else destinations - ctx.local_range[0]
            write = _Writer(ctx, out, places, destinations, head if last else None, below)
            write.answer = answer if last else as_they_are
            left = None if last else self._attention(number, needed)
            self._layer(work, inputs, write, AttentionStep(attention, left) if layers[number].carries else None)
            attention = left
            if not last:
                beside = [] if attention is None else [name_of(layers[number])]
                self.store.finish(number + 1, names[number], *beside)
                self._forget(number, head, below, names)
                below.append(out)
        return out

    def _planned(
        self, numbers: range, needed: Sequence[Needed], head: Head | None, answered: np.ndarray
    ) -> list[LayerWork]:
        """Plan the layers `numbers`, whose vertices are `needed`; `answered` are answers for no vertex. Collective."""
        answers = len(needed[-1].destinations) * answered.itemsize * math.prod(answered.shape[1:])
        groups: dict[Any, list[LayerWork]] = {}
        for number in numbers:
            last = number == numbers[-1]
            # What the layer below has left is read while this layer writes its own; the last one leaves none.
            attention = sum(
                kept_bytes(self.ctx.model.layers[each], needed[each], self.dtype.itemsize)
                for each in range(max(0, number - 1), number + (not last))
            )
            work, shares = self._plan(number, needed[number], head, answers if last else None, attention)
            groups.setdefault((shares, *work.group) if shares else number, []).append(work)
        found = [with_shares(self.ctx, each) if isinstance(key, tuple) else each for key, each in groups.items()]
        return sorted((work for works in found for work in works), key=lambda work: work.number)

    def _plan(
        self, number: int, needed: Needed, head: Head | None, answers: int | None, attention: int
    ) -> tuple[LayerWork, bool]:
        """Plan layer `number` with rows alone, and say whether shares may be sent. Collective.

        answers: bytes of answers, None where a layer follows; attention: bytes of what layers leave at edges.
        """
        begun, ctx, size = time.perf_counter(), self.ctx, self.dtype.itemsize
        layers, (lists, _, destinations) = ctx.model.layers, needed
        lowest = 0 if keeps_all(head) else max(0, number - 1)
        widths = [layers[each].out_dim for each in range(lowest, number)]
        inputs = ctx.features if number == 0 else self._like_rows(widths[-1])
        # The form decides what is held and sent, and so the size of a chunk.
        form = form_of(ctx, number, inputs)
        form = replace(form, by_number=reads_by_number(form, lists, destinations))
        row_bytes = form.width * size if form.form == PROJECTED else inputs.shard.row_bytes
        each = chunk_bytes(ctx, form, size, row_bytes, None if answers is None else head)

        # At the same time in memory: rows of the layers below that are still read, projected rows, this layer's rows.
        columns = sum(widths) + (layers[number].out_dim if answers is None else 0)
        columns += form.width if form.form == PROJECTED else 0
        held = self.own * columns * size + (answers or 0) + attention
        chunks = self.chunks(f"layer {number + 1}", lists, destinations, each, held)
        source = self.source if lists is self.lists else ChunkSource(ctx, lists)
        values = self._like_rows(form.width) if form.form == PROJECTED else inputs
        # Shares are sent where all ranks offer them: an exchange needs both ends to agree.
        shares = self._all_ranks(ctx.ranks > 1 and offers_shares(form, lists, values))
        return LayerWork(
            number=number,
            form=form,
            needed=needed,
            source=source,
            chunks=chunks,
            each=each,
            held=held,
            limit=self._chunk_limit(held),
            row_bytes=row_bytes,
            received=received_rows(ctx, number, form, chunks, row_bytes),
            items=(chunks.remote_rows, 0),
            seconds=time.perf_counter() - begun,
        ), shares

    def _like_rows(self, width: int) -> FeatureFetcher:
        """Make a fetcher of rows like those that layers hold, which has none yet."""
        return self.fetcher(np.empty((1, width), self.dtype))

    def _all_ranks(self, holds: bool) -> bool:
        """Return whether it holds on all ranks. Collective."""
        return bool(self.ctx.communicator.all_gather_rows(np.array([int(holds)])).all())

    def _room(self, count: int, answered: np.ndarray) -> np.ndarray:
        """Allocate room for `count` answers like those of `answered`, which holds none. Local."""
        rows = self.store.rows("output", count, answered.shape[1] if answered.ndim > 1 else 1, answered.dtype)
        return rows.reshape(count, *answered.shape[1:])

    @property
    def own(self) -> int:
        """The number of vertices of this rank."""
        first, end = self.ctx.local_range
        return end - first

    @property
    def dtype(self) -> np.dtype:
        """The type of rows."""
        return torch.empty(0, dtype=self.ctx.model.dtype).numpy().dtype

    def fetcher(self, rows: np.ndarray) -> FeatureFetcher:
        """Make a fetcher of `rows`, float[vertices of this rank, width]; each rank holds those of its vertices."""
        ctx = self.ctx
        shard = HostShard([rows], ctx.local_range[0])
        dtype = torch.from_numpy(rows[:0]).dtype
        return FeatureFetcher(ctx.communicator, shard, ctx.rank_offsets, ctx.device, dtype, HIDDEN, ctx.phases)

    def chunks(self, label: str, lists: OwnLists, destinations: np.ndarray, each: ChunkBytes, held: int) -> Chunks:
        """Cut `destinations`, which read `lists`, as the limit allows beside rows of `held` bytes. Collective.

        Raises ResourceError, on all ranks, where one vertex at a time does not fit; `label` names the computation.
        """
        limit = self._chunk_limit(held)
        found = cut(lists, self.ctx.communicator, destinations, each, limit)
        if self.limit is not None and found.bytes > limit:
            most = self.limit - limit
            mend = "" if self.store.on_disk else "hold rows in files (--stage FOLDER), "
            error = ResourceError(
                f"{label} takes {size_text(most + found.bytes)} on a rank even with one vertex at a time "
                f"({size_text(most)} of them rows that are held), more than --memory-limit {size_text(self.limit)}; "
                f"{mend}use more ranks, or raise the limit"
            )
            # Limit and bytes are the same on all ranks, so all of them raise it, and none waits for the others.
            error.agreed = True
            raise error
        return found

    def _chunk_limit(self, held: int) -> int:
        """Return the bytes that the limit leaves for a chunk beside rows of `held` bytes. Collective."""
        most = int(self.ctx.communicator.all_gather_rows(np.array([0 if self.store.on_disk else held])).max())
        return CHUNK_BYTES if self.limit is None else self.limit - most

    def _attention(self, number: int, needed: Sequence[Needed], finished: bool = False) -> KeptAttention | None:
        """Make room for what layer `number` leaves at edges, or map it where it is `finished`. Local."""
        layer = self.ctx.model.layers[number]
        return KeptAttention.of(needed[number], layer, self.store, self.dtype, finished) if layer.carries else None

    def _layer(
        self, work: LayerWork, inputs: FeatureFetcher, write: _Writer, attention: AttentionStep | None = None
    ) -> None:
        """Compute a layer, whose input rows `inputs` holds, and where edges carry some `attention`. Collective."""
        begun, ctx, form = time.perf_counter() - work.seconds, self.ctx, work.form
        values = inputs
        # Each own row is multiplied once here, however many chunks and ranks read it.
        if form.form == PROJECTED:
            z = self.store.rows("projected", self.own, form.width, self.dtype)
            project_own_rows(ctx, form, inputs, work.needed.read, z)
            values = self.fetcher(z)
        chunked = ChunkedLayer(ctx, form, work.source, inputs, values)
        label = f"layer {work.number + 1} of {len(ctx.model.layers)}"
        with step(label, work.chunks.rounds, "chunks") as shown:
            for chunk, place in work:
                with self.round():
                    feed = chunked.feed(chunk)
                    if attention is not None and feed.block is not None:
                        feed.block = attention.linked(feed.block, chunked.lists, chunk.destinations)
                    h = feed.forward(None, None)
                    if feed.block is not None and len(chunk.destinations):
                        write(place, feed.block, h)
                        if attention is not None:
                            attention.keep(place, feed.block)
                    # The next chunk reuses the buffers, so nothing of this one may still refer to them.
                    del feed, h
                shown.advance(1)
        if form.form == PROJECTED:
            self.store.drop("projected")
        self.report_layer(
            work.number + 1, form.form, work.needed.destinations, work.chunks, work.held, begun, work.items
        )

    def report_layer(
        self,
        number: int,
        form: str,
        destinations: np.ndarray,
        chunks: Chunks,
        held: int,
        begun: float,
        items: tuple[int, int] | None = None,
    ) -> None:
        """Report layer `number` (from 1), which began at `begun` on the clock time.perf_counter. Local.

        items: received rows and shares; by default a row of each remote source of a chunk.
        """
        rows, shares = items or (chunks.remote_rows, 0)
        counted = len(destinations), int(chunks.counts[:, 1].sum()), chunks.rounds, rows, shares
        seconds = time.perf_counter() - begun
        self.report(LayerReport(number, form, *counted, chunks.bytes, held, seconds))

    def _kept(self, number: int) -> np.ndarray:
        """Return the rows of layer `number`, which an earlier start has finished. Local."""
        width = self.ctx.model.layers[number].out_dim
        return self.store.kept(f"layer-{number + 1}", self.own, width, self.dtype)

    def _forget(self, number: int, head: Head | None, below: list[np.ndarray | None], names: Sequence[str]) -> None:
        """Drop the rows that layer `number` has read, unless the head reads them too, and attention. Collective."""
        if not below:
            return
        if self.store.on_disk:
            # A restart resumes at the newest layer that all ranks have, so this one stays until the next is everywhere.
            self.ctx.communicator.barrier()
        self.store.drop(name_of(self.ctx.model.layers[number - 1]))
        if not keeps_all(head):
            below[-1] = None
            self.store.drop(names[number - 1])

    def _output_width(self, number: int, head: Head | None) -> int:
        return self.ctx.model.layers[number].out_dim if head is None else len(head.bias)


class _Writer:
    """Writes the rows of a layer's chunks, or those of the head where one follows, to their places in `out`.

    `destinations` int64[k] are the layer's vertices, `places` those of their rows in `out`; `below` are the rows of
    earlier layers that are still held.
    """

    def __init__(
        self,
        ctx: RankContext,
        out: np.ndarray,
        places: np.ndarray | slice,
        destinations: np.ndarray,
        head: Head | None,
        below: Sequence[np.ndarray | None],
    ) -> None:
        self.ctx, self.out, self.places, self.destinations, self.head = ctx, out, places, destinations, head
        self.below = [each for each in below if each is not None]
        self.answer: Answer = as_they_are

    def __call__(self, chunk: slice, block: BlockTensors, h: Tensor) -> None:
        if self.head is not None:
            places = self.destinations[chunk] - self.ctx.local_range[0]
            below = self.below if keeps_all(self.head) else []
            rows = [*(torch.from_numpy(each[places]).to(h.device) for each in below), h]
            h = self.head(rows, block.dst_original, None)
        self.out[chunk if isinstance(self.places, slice) else self.places[chunk]] = self.answer(h.cpu().numpy())


def keeps_all(head: Head | None) -> bool:
    """Return whether `head` reads the rows of all layers."""
    return head is not None and head.jumping != "none"


def runs_in_layers(model: Model) -> bool:
    """Return whether `model` is a plain stack of layers and a head."""
    return type(model).forward is Model.forward and type(model).after is Model.after


def check_model(model: Model) -> None:
    """Raise ConfigError for a model that cannot be run layer by layer."""
    if not runs_in_layers(model):
        raise ConfigError(
            f"{type(model).__name__} has a forward of its own, so that it cannot be run layer by layer; make it a "
            "stack of layers, or a torch module whose forward takes (x, edge_index)"
        )


def _there(rows: np.ndarray | None) -> np.ndarray:
    assert rows is not None, "the rows of the layer before are held"
    return rows
