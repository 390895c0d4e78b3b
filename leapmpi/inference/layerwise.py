"""Exact outputs of a model: layer by layer over all in-neighbours, each row once, by its owner.

A layer goes through its destinations in chunks (chunks.py), with rows in the form that its plan says (layer_plan.py).
Its output rows are held by their owners (row_store.py) until the layer above has read them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import RankContext
from leapmpi.errors import ConfigError, ResourceError
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.host_shard import HostShard
from leapmpi.inference.chunks import ChunkBytes, Chunks, cut
from leapmpi.inference.closure import destinations_by_layer
from leapmpi.inference.layer_pass import BlockSource, Round, project_own_rows, run_layer
from leapmpi.inference.layer_plan import PROJECTED, plan_of
from leapmpi.inference.row_store import RowStore
from leapmpi.nn.head import Head
from leapmpi.nn.model import Model
from leapmpi.nn.tensors import BlockTensors
from leapmpi.runs.tables.text import size_text
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.node_wise import NodeWiseSampler

CHUNK_BYTES = 1 << 30
"""What a chunk may take on a rank where no limit is given."""

HIDDEN = "activations"
"""The kind under which rows of hidden layers, and projected ones, are counted."""


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

    `limit` is what the rows that are held in memory and a chunk may take on a rank, in bytes; without one, chunks take
    up to CHUNK_BYTES. All ranks enter `round`, a context, for each chunk together. `report` is called after each layer.
    """

    def __init__(
        self,
        ctx: RankContext,
        topology: Topology,
        limit: int | None = None,
        store: RowStore | None = None,
        round: Round = nullcontext,
        report: Callable[[LayerReport], None] | None = None,
    ) -> None:
        self.ctx, self.topology, self.limit = ctx, topology, limit
        self.store = store or RowStore()
        self.round = round
        self.report = report or (lambda _: None)
        sampler = NodeWiseSampler(topology, (ALL,), ctx.sampler.threads)
        self.blocks = BlockSource(ctx, with_edge_data(sampler, ctx.edge_features is not None))

    @torch.no_grad()
    def outputs(self, wanted: np.ndarray, layer: int | None = None) -> np.ndarray:
        """The model's outputs for `wanted` (int64 ascending, of this rank): float[len(wanted), width]. Collective.

        With `layer` (from 1) the rows that this layer gives instead. Raises ResourceError, on all ranks, where not even
        one vertex at a time fits the limit.
        """
        ctx, model = self.ctx, self.ctx.model
        check_model(model)
        layers = list(model.layers)[: layer or None]
        head = model.head if layer is None else None
        # Of each layer the vertices whose input rows are read, and at the end those that are wanted.
        needed = destinations_by_layer(self.topology, ctx.communicator, ctx.rank_offsets, wanted, len(layers) + 1)

        # Where an earlier start has finished layers, the next one goes on.
        names = [f"layer-{number + 1}" for number in range(len(layers) - 1)]
        done = self.store.finished(ctx.communicator, names)
        rows = [None if number < done - 1 and not keeps_all(head) else self._kept(number) for number in range(done)]
        below: list[np.ndarray | None] = list(rows)
        for number in range(done, len(layers)):
            inputs = self.fetcher(_there(below[-1])) if below else ctx.features
            last = number == len(layers) - 1
            count, width = (
                (len(wanted), self._output_width(number, head)) if last else (self.own, layers[number].out_dim)
            )
            out = self.store.rows("output" if last else names[number], count, width, self.dtype)
            places = slice(None) if last else needed[number + 1] - ctx.local_range[0]
            write = _Writer(ctx, out, places, needed[number + 1], head if last else None, below)
            self._layer(number, inputs, needed[number], write)
            if not last:
                self.store.finish(number + 1, names[number])
                self._forget(number, head, below, names)
                below.append(out)
        return out

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

    def chunks(self, label: str, destinations: np.ndarray, each: ChunkBytes, held: int) -> Chunks:
        """Chunks of `destinations` as the limit allows, beside rows of `held` bytes in memory. Collective.

        Raises ResourceError, on all ranks, where one vertex at a time does not fit; `label` says what is computed.
        """
        communicator = self.ctx.communicator
        most = int(communicator.all_gather_rows(np.array([0 if self.store.on_disk else held])).max())
        limit = CHUNK_BYTES if self.limit is None else self.limit - most
        arrays = self.topology, communicator, self.ctx.rank_offsets, destinations
        found = cut(*arrays, each, limit)
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

    def _layer(self, number: int, inputs: FeatureFetcher, read: np.ndarray, write: _Writer) -> None:
        """Compute layer `number`; `read` are the vertices of this rank whose input rows are read. Collective."""
        begun, ctx = time.perf_counter(), self.ctx
        plan = plan_of(ctx, number, inputs)
        sources, held = inputs, write.held
        if plan.form == PROJECTED:
            z = self.store.rows("projected", self.own, plan.width, self.dtype)
            held += z.nbytes
            project_own_rows(ctx, plan, inputs, read, z)
            sources = self.fetcher(z)
        sent = sources.shard.row_bytes
        each = plan.chunk_bytes(ctx, self.dtype.itemsize, sent, write.head)
        chunks = self.chunks(f"layer {number + 1}", write.destinations, each, held)
        run_layer(ctx, plan, self.blocks, inputs, sources, write.destinations, chunks, self.round, write)
        if plan.form == PROJECTED:
            self.store.drop("projected")
        self.tell(number + 1, plan.form, write.destinations, chunks, held, begun)

    def tell(self, number: int, form: str, destinations: np.ndarray, chunks: Chunks, held: int, begun: float) -> None:
        """Report what layer `number` (from 1) took, which began at `begun` on the clock time.perf_counter. Local."""
        counted = len(destinations), int(self.topology.degree(destinations).sum()), chunks.rounds, chunks.remote_rows
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

    @property
    def held(self) -> int:
        """Bytes of the rows that are held while the layer is computed."""
        return self.out.nbytes + sum(each.nbytes for each in self.below)

    def __call__(self, chunk: slice, block: BlockTensors, h: Tensor) -> None:
        if self.head is not None:
            places = self.destinations[chunk] - self.ctx.local_range[0]
            below = self.below if keeps_all(self.head) else []
            rows = [*(torch.from_numpy(each[places]).to(h.device) for each in below), h]
            h = self.head(rows, block.src_original[: block.n_dst], None)
        self.out[chunk if isinstance(self.places, slice) else self.places[chunk]] = h.cpu().numpy()


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
