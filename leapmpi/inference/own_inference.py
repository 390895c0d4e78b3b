"""Exact outputs of a user's module, run once over all vertices of a rank; its message passings run chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_form import RAW
from leapmpi.inference.chunks import ChunkBytes
from leapmpi.inference.layer_work import ANSWERED, EDGE, REQUESTED, SOURCE
from leapmpi.inference.layerwise import Answer, LayerwiseInference, as_they_are
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.whole_pass import RunOnBlock, run_layer_by_layer
from leapmpi.nn.rows import dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.runs.progress_line import step


def inference_for(ctx: RankContext, *args, **kwargs) -> LayerwiseInference:
    """Make the exact inference of the model of `ctx`, with the arguments of LayerwiseInference."""
    kind = OwnModelInference if isinstance(ctx.model, OwnModel) else LayerwiseInference
    return kind(ctx, *args, **kwargs)


class OwnModelInference(LayerwiseInference):
    """Inference of all vertices, whichever are wanted. Rows are dense, in memory, as many as the module keeps."""

    @torch.no_grad()
    def outputs(self, wanted: np.ndarray, layer: int | None = None, answer: Answer = as_they_are) -> np.ndarray:
        ctx, model = self.ctx, self.ctx.model
        assert isinstance(model, OwnModel), "`inference_for` chooses"
        if model.schema is not None:
            raise ConfigError(
                f"--model {model.named}: modules for typed graphs are run on samples alone; score with "
                "leapmpi evaluate --eval-fanout all, or predict with a built-in model"
            )
        first, end = ctx.local_range
        own = np.arange(first, end)
        x = dense(ctx.features.local(own)).to(model.layers[0].bias.dtype)
        if ctx.features.whole is None:
            # The next fetch overwrites these rows.
            x = x.clone()
        caught: list[Tensor] = []

        def combine(number: int, rows: Sequence[Tensor], run: RunOnBlock) -> Tensor:
            out = self._combined(number, rows, run, own)
            if layer is not None and number == layer - 1:
                caught.append(out.clone())
            return out

        original = self.lists.topology.original_id[self.lists.first : self.lists.end]
        names = torch.from_numpy(np.ascontiguousarray(original)).to(ctx.device)
        outputs = run_layer_by_layer(model, x, names, self._block(own[:0], True), combine)
        return answer((caught[0] if caught else outputs).cpu().numpy()[wanted - first])

    def _block(self, destinations: np.ndarray, alone: bool) -> BlockTensors:
        """Return the block of `destinations` with the data of its edges. Local."""
        block, tensors = self.source.block(destinations, alone)
        if self.ctx.edge_features is None:
            return tensors
        return self.source.with_edge_features(block, tensors)

    def _combined(self, number: int, rows: Sequence[Tensor], run: RunOnBlock, own: np.ndarray) -> Tensor:
        """Compute message passing `number` for the vertices `own`, which read `rows` of their sources. Collective."""
        begun, ctx = time.perf_counter(), self.ctx
        arrays = [np.ascontiguousarray(each.cpu().numpy()) for each in rows]
        sources = [self.fetcher(each.reshape(len(each), -1)) for each in arrays]

        # A module's work on edges is unknown; most compute rows of edges.
        read = sum(each.shard.row_bytes for each in sources)
        width = max(read, ctx.model.layers[number].out_dim * self.dtype.itemsize)
        sent = read + ANSWERED
        each = ChunkBytes(4 * width, EDGE + 4 * width, SOURCE + 3 * width, REQUESTED + read, sent)
        held = sum(array.nbytes for array in arrays)
        chunks = self.chunks(f"message passing {number + 1}", self.lists, own, each, held)

        out: Tensor | None = None
        with step(f"message passing {number + 1}", chunks.rounds, "chunks") as shown:
            for chunk in chunks:
                with self.round():
                    chosen = own[chunk]
                    block, _ = self.source.block(chosen, chunks.rounds == 1)
                    found = [
                        _as_given(fetcher.fetch(block.src), array)
                        for fetcher, array in zip(sources, arrays, strict=True)
                    ]
                    # A rank whose chunks are done still takes part in the fetch of the others (rule R4).
                    if len(chosen):
                        with ctx.phases("compute"):
                            h = run(self._block(chosen, chunks.rounds == 1), found)
                            out = h.new_empty(len(own), *h.shape[1:]) if out is None else out
                            out[chunk] = h
                shown.advance(1)
        self.report_layer(number + 1, RAW, own, chunks, held, begun)
        assert out is not None, "every rank has a vertex"
        return out


def _as_given(rows: object, array: np.ndarray) -> Tensor:
    """Return `rows` (k, width) in the shape of the rows of `array`."""
    assert isinstance(rows, Tensor), "rows of hidden layers are stored dense"
    return rows.reshape(len(rows), *array.shape[1:])
