"""Exact outputs of a user's module, run once over all vertices of a rank; its message passings run chunk by chunk."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.chunk_feeds import ChunkSource
from leapmpi.exchange.layer_form import RAW
from leapmpi.inference.chunks import ChunkBytes
from leapmpi.inference.layer_work import ANSWERED, EDGE, REQUESTED, SOURCE
from leapmpi.inference.layerwise import Answer, LayerwiseInference, as_they_are
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.passage import PLAIN, SEVERAL
from leapmpi.nn.own.whole_pass import RowsByType, WholeCall, run_layer_by_layer
from leapmpi.nn.rows import dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.runs.progress_line import step


def inference_for(ctx: RankContext, *args, **kwargs) -> LayerwiseInference:
    """Make the exact inference of the model of `ctx`, with the arguments of LayerwiseInference."""
    kind = OwnModelInference if isinstance(ctx.model, OwnModel) else LayerwiseInference
    return kind(ctx, *args, **kwargs)


class OwnModelInference(LayerwiseInference):
    """Inference of all vertices, whichever are wanted. Rows are dense, in memory, as many as the module keeps."""

    @torch.no_grad()
    def outputs(self, wanted: np.ndarray, layer: int | None = None, answer: Answer = as_they_are) -> np.ndarray:
        ctx, model = self.ctx, self._model
        first, end = ctx.local_range
        own = np.arange(first, end)
        x = ctx.features.local(own)
        if not isinstance(x, TypedMatrix):
            x = dense(x).to(model.dtype)
            if ctx.features.whole is None:
                # The next fetch overwrites these rows.
                x = x.clone()
        elif layer is not None:
            raise ConfigError(
                f"--model {model.named}: rows of a hidden layer of modules for typed graphs are split among their "
                "relations; give another --what than embeddings"
            )
        caught: list[Tensor] = []

        def combine(call: WholeCall) -> RowsByType:
            out = self._combined(call, own)
            if layer is not None and call.number == layer - 1:
                caught.append(out[PLAIN].clone())
            return out

        original = self.lists.topology.original_id[self.lists.first : self.lists.end]
        names = torch.from_numpy(np.ascontiguousarray(original)).to(ctx.device)
        like = self._block(self.source, own[:0], True)
        outputs = run_layer_by_layer(model, x, names, like, combine)
        return answer((caught[0] if caught else outputs).detach().cpu().numpy()[self._places(wanted - first)])

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of the logits of own vertices, counted from 0. Raises ConfigError for other types. Local."""
        model, kinds = self._model, self._kinds
        if kinds is None:
            return numbers
        assert model.schema is not None, "types are those of a typed graph"
        target = model.schema.graph.target_number
        if (kinds[numbers] != target).any():
            raise ConfigError(
                f"--model {model.named}: the module gives rows of {model.schema.graph.target} alone; leave out --type"
            )
        return np.cumsum(kinds == target)[numbers] - 1

    @property
    def _model(self) -> OwnModel:
        assert isinstance(self.ctx.model, OwnModel), "`inference_for` chooses"
        return self.ctx.model

    @cached_property
    def _kinds(self) -> np.ndarray | None:
        """int64[own vertices]: their types in a typed graph."""
        schema = self._model.schema
        if schema is None:
            return None
        original = self.lists.topology.original_id[self.lists.first : self.lists.end]
        return schema.graph.of_original(original).astype(np.int64)

    def _block(self, source: ChunkSource, destinations: np.ndarray, alone: bool) -> BlockTensors:
        """Return the block of `destinations` with the data of its edges. Local."""
        block, tensors = source.block(destinations, alone)
        if self.ctx.edge_features is None:
            return tensors
        return source.with_edge_features(block, tensors)

    def _combined(self, call: WholeCall, own: np.ndarray) -> RowsByType:
        """Compute a message passing for the vertices `own`, which read rows of their sources. Collective."""
        begun, ctx, kinds = time.perf_counter(), self.ctx, self._kinds
        # A relation gives rows of one type alone; rows of a type stand at the places of its vertices.
        chosen = own if kinds is None or call.end == SEVERAL else own[kinds == call.end]
        arrays = [self._of_own(each, kind) for each, kind in zip(call.rows, call.kinds, strict=True)]
        sources = [self.fetcher(each.reshape(len(each), math.prod(each.shape[1:]))) for each in arrays]
        lists = self.lists if self.lists_of is None else self.lists_of(call.number, own)
        source = self.source if lists is self.lists else ChunkSource(ctx, lists)

        # A module's work on edges is unknown; most compute rows of edges.
        read = sum(each.shard.row_bytes for each in sources)
        width = max(read, ctx.model.layers[call.number].out_dim * self.dtype.itemsize)
        sent = read + ANSWERED
        each = ChunkBytes(4 * width, EDGE + 4 * width, SOURCE + 3 * width, REQUESTED + read, sent)
        held = sum(array.nbytes for array in arrays)
        label = f"message passing {call.number + 1}"
        chunks = self.chunks(label, lists, chosen, each, held)

        found: list[tuple[np.ndarray, RowsByType]] = []
        with step(label, chunks.rounds, "chunks") as shown:
            for chunk in chunks:
                with self.round():
                    destinations, alone = chosen[chunk], chunks.rounds == 1
                    block, tensors = source.block(destinations, alone)
                    of_sources = self._types_of(tensors)
                    rows = [
                        _as_given(fetcher.fetch(block.src[_are(of_sources, kind)]), array)
                        for fetcher, array, kind in zip(sources, arrays, call.kinds, strict=True)
                    ]
                    # A rank whose chunks are done still takes part in the fetch of the others (rule R4).
                    if len(destinations) or not found:
                        with ctx.phases("compute"):
                            found.append((destinations, call.run(self._block(source, destinations, alone), rows)))
                shown.advance(1)
        self.report_layer(call.number + 1, RAW, chosen, chunks, held, begun)
        return self._joined(found)

    def _types_of(self, block: BlockTensors) -> np.ndarray | None:
        """Return the types of the sources of `block` in a typed graph, int64[n_src]. Local."""
        schema = self._model.schema
        return None if schema is None else schema.types_of(block.src_original).cpu().numpy()

    def _of_own(self, rows: Tensor, kind: int) -> np.ndarray:
        """Return `rows` of the type `kind` as an array with a row for each vertex of this rank. Local."""
        array = np.ascontiguousarray(rows.detach().cpu().numpy())
        if self._kinds is None:
            return array
        found = np.zeros((len(self._kinds), *array.shape[1:]), array.dtype)
        found[self._kinds == kind] = array
        return found

    def _joined(self, found: Sequence[tuple[np.ndarray, RowsByType]]) -> RowsByType:
        """Join the rows that chunks give for their destinations, by type. Local."""
        # Destinations ascend, so rows of a type follow each other from chunk to chunk.
        every = [out for _, out in found]
        return {kind: torch.cat([out[kind] for out in every]) for kind in every[-1]}


def _are(kinds: np.ndarray | None, kind: int) -> np.ndarray | slice:
    """Choose the sources of the type `kind` among all, whose types are `kinds`."""
    return slice(None) if kinds is None else kinds == kind


def _as_given(rows: object, array: np.ndarray) -> Tensor:
    """Return `rows` (k, width) in the shape of the rows of `array`."""
    assert isinstance(rows, Tensor), "rows of hidden layers are stored dense"
    return rows.reshape(len(rows), *array.shape[1:])
