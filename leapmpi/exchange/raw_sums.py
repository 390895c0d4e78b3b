"""Sums of raw rows that owners of remote neighbours compute: known before the weights, shared by models that differ.

Destinations of all micro-batches are merged into one block. Shares go to the ranks that named their destinations, and
are added up there. First layers of several models are then one product over the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator, Exchange
from leapmpi.dataset.topology import entries_of
from leapmpi.features.row_exchange import RowExchange
from leapmpi.nn.gemm import product
from leapmpi.nn.layer import Layer, finishes_plainly, plain_prefix
from leapmpi.nn.rows import Rows, ScatteredRows
from leapmpi.nn.stacked_layers import stacked_step
from leapmpi.nn.tensors import operations
from leapmpi.sampling.block import Block, DrawnBlock, indptr_of


def merged(blocks: Sequence[Block]) -> tuple[Block, list[np.ndarray | None]]:
    """Merge `blocks` of one hop and one key into a block of their distinct destinations, by id.

    Also returns the places of each block's destinations there: int64[n_dst], None for all in order, as for a single
    block, which is returned unchanged. The draws of a vertex do not depend on the micro-batch (rule R1), so its edges
    are those of any of its blocks. Names and degrees of sources that are not destinations are left out.
    """
    if len(blocks) == 1:
        return blocks[0], [None]
    every = _joined(blocks, attrgetter("dst"))
    dst, first, places = np.unique(every, return_index=True, return_inverse=True)

    # Any appearance of a destination has the same edges (rule R1): take the first.
    counts = _joined(blocks, lambda each: np.diff(each.indptr))[first]
    starts = np.cumsum([0, *[block.edges for block in blocks]])
    begins = np.concatenate([block.indptr[:-1] + start for block, start in zip(blocks, starts, strict=False)])[first]
    indptr = indptr_of(counts)
    edges = entries_of(begins, counts)

    # Optional facts are present in all blocks or in none, so the first block decides.
    known = {
        "src_original": ("dst_original", first),
        "src_degree": ("dst_degree", first),
        "src_weight_sum": ("dst_weight_sum", first),
        "drawn_weight": ("drawn_weight", first),
        "weight": ("weight", edges),
        "edge_weight": ("edge_weight", edges),
    }
    present = {
        name: _joined(blocks, attrgetter(source))[chosen]
        for name, (source, chosen) in known.items()
        if getattr(blocks[0], source) is not None
    }
    neighbours = _joined(blocks, attrgetter("neighbours"))[edges]
    block = DrawnBlock.of(dst, neighbours, hop=blocks[0].hop, indptr=indptr, **present)
    return block, list(np.split(places, np.cumsum([each.n_dst for each in blocks])[:-1]))


def _joined(blocks: Sequence[Block], of: Callable[[Block], Any]) -> np.ndarray:
    """Concatenate the results of `of` for each of `blocks`."""
    return np.concatenate([of(block) for block in blocks])


@dataclass
class LayerSums:
    """The input of a layer: `sums` float[n_dst, in] of its destinations, and their `own` rows where it reads these.

    places: by micro-batch, int64[its destinations], their places; None for all in order.
    """

    sums: Tensor
    own: Rows | None
    places: list[np.ndarray | None]

    def of(self, number: int) -> tuple[Tensor, Rows | None]:
        """Return the two of micro-batch `number`."""
        place = self.places[number]
        if place is None:
            return self.sums, self.own
        rows = torch.from_numpy(place).to(self.sums.device)
        return self.sums.index_select(0, rows), None if self.own is None else self.own[rows]


@dataclass
class SumExchange:
    """An exchange of shares in the form of a PendingExchange: `begin`, `wait`, `unpack`, in this order, in one channel.

    answers: float[k, in], shares for other ranks in their order, answer_counts int64[ranks] of them for each. local: a
    function that computes the shares float[n_dst, in] of this rank's rows. positions: int64[pairs], the destinations of
    the shares that arrive, pair_counts int64[ranks] from each rank. own: the exchange of the destinations' own rows.
    deliver: takes the sums and, if there are any, the own rows.
    """

    communicator: Communicator
    answers: Tensor
    answer_counts: np.ndarray
    local: Callable[[], Tensor]
    positions: np.ndarray
    pair_counts: np.ndarray
    own: RowExchange | None
    deliver: Callable[[Tensor, Rows | None], None]
    _sums: Tensor | None = field(default=None, init=False)
    _end: Callable[[], None] | None = field(default=None, init=False)

    def begin(self) -> None:
        """Start moving shares and own rows; local shares are computed meanwhile. Collective."""
        self._arrived = self.answers.new_empty((len(self.positions), self.answers.shape[1]))
        exchanges: list[Exchange] = [(self.answers, self.answer_counts, self._arrived, self.pair_counts, "features")]
        # Own rows travel last. Begun later, in `wait`, they would need all ranks to wait at the same time.
        if self.own:
            exchanges.append(self.own.exchange)
        self._end = self.communicator.start_exchanges(exchanges)
        if self.communicator.carries:
            self._sums = self.local()

    def wait(self) -> None:
        """Wait until all has arrived. A second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            if self.own:
                self.own.release()

    def unpack(self) -> None:
        """Add up the shares, received ones in order of ranks, and deliver. Local."""
        assert self._sums is not None, "`begin` has computed the local ones"
        positions = torch.from_numpy(self.positions).to(self._sums.device)
        operations(self._sums.device).add_rows(self._sums, positions, self._arrived)
        self.deliver(self._sums, self.own.unpack() if self.own else None)


def read_the_same_sums(layers: Sequence[Layer]) -> bool:
    """Return whether raw sums and shares of them are the same for all of `layers`, of one model each."""
    kinds = {(type(layer), layer.sums.holds_own, layer.in_dim, layer.dtype) for layer in layers}
    return len(kinds) == 1 and all(layer.sums.offers_shares and plain_prefix(layer) for layer in layers)


def stacks(layers: Sequence[Layer]) -> bool:
    """Return whether `stacked_from_sums` serves `layers`, which read the same sums."""
    return all(layer.sums.weights for layer in layers)


def stacked_from_sums(layers: Sequence[Layer], sums: Tensor, own: Rows | None) -> list[Tensor]:
    """Compute the result of `RawSums.output` for each of `layers`: float[n_dst, its width].

    The weights of all are one matrix, so that rows are read once, forward and backward. Each column of a product is
    summed by itself, as without the others.
    """
    of_sums, *of_own = zip(*(layer.sums.weights for layer in layers), strict=True)
    alike = all(finishes_plainly(layer) and layer.last == layers[0].last for layer in layers)
    if alike and (own is None or isinstance(own, Tensor | ScatteredRows)):
        biases, own_weights = [layer.bias for layer in layers], of_own[0] if of_own else ()
        return list(stacked_step(sums, own, of_sums, own_weights, biases, not layers[0].last))

    # One product reads the rows once; one for each model would read them as often as there are models.
    stacked = product(sums, torch.cat(of_sums))
    for weights in of_own:
        assert own is not None, "layers that multiply own rows need them"
        stacked = product(own, torch.cat(weights)) + stacked
    parts = stacked.split([layer.out_dim for layer in layers], dim=1)
    return [layer.finish(None, part, own) for layer, part in zip(layers, parts, strict=True)]
