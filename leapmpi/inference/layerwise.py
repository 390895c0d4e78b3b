"""Exact outputs of a model: layer by layer over all in-neighbours, each row once, by its owner.

A layer goes through its destinations in chunks (chunks.py), with rows in the form that its plan says (layer_plan.py).
Its output rows are held by their owners (row_store.py) until the layer above has read them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.id_codec import IdCodec
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError, ResourceError
from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.inference.addressed_rows import reads_by_number
from leapmpi.inference.chunks import ChunkBytes, Chunks, cut
from leapmpi.inference.closure import ListsOf, Needed, needed_by_layer
from leapmpi.inference.layer_pass import BlockSource, Round, project_own_rows, run_layer
from leapmpi.inference.layer_plan import PROJECTED, plan_of
from leapmpi.inference.layer_work import HIDDEN, Expectation, LayerWork, expectation
from leapmpi.inference.own_lists import OwnLists, own_lists
from leapmpi.inference.row_store import RowStore
from leapmpi.nn.head import Head
from leapmpi.nn.model import Model
from leapmpi.nn.tensors import BlockTensors
from leapmpi.runs.text import size_text
from leapmpi.sampling.sharded.topology_shard import TopologyShard

CHUNK_BYTES = 1 << 30
"""What a chunk may take on a rank where no limit is given."""

Answer = Callable[[np.ndarray], np.ndarray]
"""What is kept of output rows float[n, width]: one entry for each."""


def as_they_are(rows: np.ndarray) -> np.ndarray:
    """The answer that keeps rows."""
    return rows


@dataclass(frozen=True)
class LayerReport:
    """What the computation of a layer took, on this rank but for `chunk_bytes`."""

    number: int
    form: str
    destinations: int
    edges: int
    rounds: int
    remote_rows: int
    chunk_bytes: int
    """The most that a chunk takes on any rank, as counted before."""
    held_bytes: int
    """Bytes of the rows held while the layer is computed."""
    seconds: float


class LayerwiseInference:
    """Computes the outputs of the model of `ctx` for any vertices of its graph.

    `topology` is the whole one, or this rank's shard, whose sources are numbered, and named where a layer reads that.
    `limit` is what the rows that are held in memory and a chunk may take on a rank, in bytes; without one, chunks take
    up to CHUNK_BYTES. All ranks enter `round`, a context, for each chunk together. `expect` is called when all layers
    are planned, `report` after each. With `lists_of` layers read other lists than those of all in-neighbours.
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
        self.blocks = BlockSource(ctx, self.lists)

    @torch.no_grad()
    def outputs(self, wanted: np.ndarray, layer: int | None = None, answer: Answer = as_they_are) -> np.ndarray:
        """What `answer` makes of the model's outputs float[len(wanted), width] for `wanted` (int64 ascending, of this
        rank). Collective.

        With `layer` (from 1) of the rows that this layer gives instead. Raises ResourceError, on all ranks, where not
        even one vertex at a time fits the limit.
        """
        ctx, model = self.ctx, self.ctx.model
        check_model(model)
        layers = list(model.layers)[: layer or None]
        head = model.head if layer is None else None
        lists_of = self.lists_of or (lambda layer, destinations: self.lists)
        needed = needed_by_layer(lists_of, ctx.communicator, ctx.rank_offsets, wanted, len(layers))

        # Where an earlier start has finished layers, the next one goes on.
        names = [f"layer-{number + 1}" for number in range(len(layers) - 1)]
        done = self.store.finished(ctx.communicator, names)
        answered = answer(np.empty((0, self._output_width(len(layers) - 1, head)), self.dtype))
        works = self._planned(range(done, len(layers)), needed, head, answered)
        self._tell_expected(works)

        rows = [None if number < done - 1 and not keeps_all(head) else self._kept(number) for number in range(done)]
        below: list[np.ndarray | None] = list(rows)
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
            self._layer(work, inputs, write)
            if not last:
                self.store.finish(number + 1, names[number])
                self._forget(number, head, below, names)
                below.append(out)
        return out

    def _planned(
        self, numbers: range, needed: Sequence[Needed], head: Head | None, answered: np.ndarray
    ) -> list[LayerWork]:
        """What is to be done for the layers `numbers`, all of which need `needed`. Collective.

        answered: answers for no vertex.
        """
        layers, size = self.ctx.model.layers, self.dtype.itemsize
        works = []
        for number in numbers:
            begun, last = time.perf_counter(), number == numbers[-1]
            lowest = 0 if keeps_all(head) else max(0, number - 1)
            widths = [layers[each].out_dim for each in range(lowest, number)]
            inputs = self.ctx.features if number == 0 else self.fetcher(np.empty((1, widths[-1]), self.dtype))
            plan = plan_of(self.ctx, number, inputs)
            lists, _, destinations = needed[number]
            plan = replace(plan, by_number=reads_by_number(plan, lists, destinations))
            row_bytes = plan.width * size if plan.form == PROJECTED else inputs.shard.row_bytes
            each = plan.chunk_bytes(self.ctx, size, row_bytes, head if last else None)

            # Rows of layers below, projected ones, and those of this layer.
            columns = sum(widths) + (0 if last else layers[number].out_dim)
            columns += plan.width if plan.form == PROJECTED else 0
            answers = len(needed[-1].destinations) * answered.itemsize * math.prod(answered.shape[1:]) if last else 0
            held = self.own * columns * size + answers
            chunks = self.chunks(f"layer {number + 1}", lists, destinations, each, held)
            seconds = time.perf_counter() - begun
            works.append(LayerWork(number, plan, needed[number], chunks, held, row_bytes, seconds))
        return works

    def _tell_expected(self, works: Sequence[LayerWork]) -> None:
        id_bytes = IdCodec.home_ranks(self.ctx.rank_offsets).id_bytes
        self.expect(expectation(works, id_bytes, self.own, self.lists.topology.numbered, self.store.on_disk))

    def _room(self, count: int, answered: np.ndarray) -> np.ndarray:
        """Room for `count` answers such as `answered` (none) would hold. Local."""
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
        return torch.empty(0, dtype=next(self.ctx.model.parameters()).dtype).numpy().dtype

    def fetcher(self, rows: np.ndarray) -> FeatureFetcher:
        """Fetches `rows`, float[vertices of this rank, width], of which each rank holds those of its vertices."""
        ctx = self.ctx
        shard = HostShard([rows], ctx.local_range[0])
        dtype = torch.from_numpy(rows[:0]).dtype
        return FeatureFetcher(ctx.communicator, shard, ctx.rank_offsets, ctx.device, dtype, HIDDEN, ctx.phases)

    def chunks(self, label: str, lists: OwnLists, destinations: np.ndarray, each: ChunkBytes, held: int) -> Chunks:
        """Chunks of `destinations`, which read `lists`, as the limit allows beside rows of `held` bytes. Collective.

        Raises ResourceError, on all ranks, where one vertex at a time does not fit; `label` says what is computed.
        """
        communicator = self.ctx.communicator
        most = int(communicator.all_gather_rows(np.array([0 if self.store.on_disk else held])).max())
        limit = CHUNK_BYTES if self.limit is None else self.limit - most
        found = cut(lists, communicator, destinations, each, limit)
        if self.limit is not None and found.bytes > limit:
            mend = "" if self.store.on_disk else "hold rows in files (--stage FOLDER), "
            error = ResourceError(
                f"{label} takes {size_text(most + found.bytes)} on a rank even with one vertex at a time "
                f"({size_text(most)} of them rows that are held), more than --memory-limit {size_text(self.limit)}; "
                f"{mend}use more ranks, or raise the limit"
            )
            error.agreed = True
            raise error
        return found

    def _layer(self, work: LayerWork, inputs: FeatureFetcher, write: _Writer) -> None:
        """Compute a layer, whose input rows `inputs` holds. Collective."""
        begun, ctx, plan = time.perf_counter() - work.seconds, self.ctx, work.plan
        sources = inputs
        if plan.form == PROJECTED:
            z = self.store.rows("projected", self.own, plan.width, self.dtype)
            project_own_rows(ctx, plan, inputs, work.needed.read, z)
            sources = self.fetcher(z)
        lists, _, destinations = work.needed
        blocks = self.blocks if lists is self.lists else BlockSource(ctx, lists)
        run_layer(ctx, plan, blocks, inputs, sources, destinations, work.chunks, self.round, write)
        if plan.form == PROJECTED:
            self.store.drop("projected")
        self.tell(work.number + 1, plan.form, destinations, work.chunks, work.held, begun)

    def tell(self, number: int, form: str, destinations: np.ndarray, chunks: Chunks, held: int, begun: float) -> None:
        """Report what layer `number` (from 1) took, which began at `begun` on the clock time.perf_counter. Local."""
        counted = len(destinations), int(chunks.counts[:, 1].sum()), chunks.rounds, chunks.remote_rows
        seconds = time.perf_counter() - begun
        self.report(LayerReport(number, form, *counted, chunks.bytes, held, seconds))

    def _kept(self, number: int) -> np.ndarray:
        """The rows of layer `number`, which an earlier start has finished. Local."""
        width = self.ctx.model.layers[number].out_dim
        return self.store.kept(f"layer-{number + 1}", self.own, width, self.dtype)

    def _forget(self, number: int, head: Head | None, below: list[np.ndarray | None], names: Sequence[str]) -> None:
        """Drop the rows that layer `number` has read, unless the head reads them too. Collective."""
        if keeps_all(head) or not below:
            return
        if self.store.on_disk:
            # A layer is dropped when all ranks have the next one.
            self.ctx.communicator.barrier()
        below[-1] = None
        self.store.drop(names[number - 1])

    def _output_width(self, number: int, head: Head | None) -> int:
        return self.ctx.model.layers[number].out_dim if head is None else len(head.bias)


class _Writer:
    """Takes the rows of a layer's chunks, or those of the head where one follows, to their places in `out`.

    `destinations` int64[k] are the layer's vertices, `places` where their rows stand in `out`; `below` are the rows of
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
    """Whether `head` reads the rows of all layers."""
    return head is not None and head.jumping != "none"


def runs_in_layers(model: Model) -> bool:
    """Whether `model` is nothing but a stack of layers and a head."""
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
