"""Forms in which the input of a layer crosses ranks, as values; promises of a class of layers.

There are three forms.

    rows      multiplied by the layer's weights by their owner, one for each source.
    shares    of an aggregate, one for each destination and owner of sources.
    raw sums  shares that need no weights.

A layer offers each as a property, which holds the functions and widths that the exchange needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.rows import Rows
from leapmpi.nn.share_forms import PartialForm, PartialStep
from leapmpi.nn.tensors import BlockTensors, PartialBlock


@dataclass(frozen=True)
class LayerTraits:
    """Promises about the mathematics of one class of layers.

    A class states them where it is defined, `class Own(Layer, traits=LayerTraits(...))`. Sub-classes inherit none: they
    may compute otherwise.
    """

    reads_names: bool = True
    """Whether original ids or in-degrees of sources that are not destinations are read, dropout apart.

    Where they are not, no rank requests them.
    """

    sums_ahead: bool = False
    """Whether raw sums depend on rows alone, not on weights, so that a rank without weights may compute them.

    The output from sums then equals that of `forward`. For linear layers.
    """

    plain_sums: bool = False
    """Whether every part is that of SumLayer, but for `edge_sums` and for self parts by `own_projection`.

    The layer is then one step of autograd, and layers of this class share their sums of the same rows.
    """


NO_PROMISES = LayerTraits()


@dataclass(frozen=True)
class PairForm:
    """The two kinds of rows of a layer in which a destination needs more than its row gives to others.

    source: rows after prefix -> what they give to neighbours, float[rows, source_width]. own: rows after prefix, and
    the numbers (int64[k]) of the chosen ones or None -> what these need as destinations, float[k, own_width]. join: the
    aggregate of what sources give and destinations need, float[n_dst, out].
    """

    source_width: int
    own_width: int
    """A multiple of `source_width`."""
    source: Callable[[Rows], Tensor]
    own: Callable[[Rows, Tensor | None], Tensor]
    join: Callable[[BlockTensors, Tensor, Tensor, DropoutKey | None], Tensor]


@dataclass(frozen=True)
class RowForm:
    """Rows that their owner multiplies by the layer's weights.

    project: rows after prefix -> all that they contribute, to others and to themselves, float[rows, width]. combine:
    these rows of all sources -> the `neighbours` of `Layer.finish`, float[n_dst, out]. by_number: whether `combine`
    takes rows in any order, whose numbers the edges and `own_rows` of the block are. dense: whether hardly any number
    of the rows, or of their gradients, is zero.
    """

    width: int
    project: Callable[[Rows], Tensor]
    combine: Callable[[BlockTensors, Tensor, DropoutKey | None], Tensor]
    pair: PairForm | None = None
    by_number: bool = False
    dense: bool = False

    @property
    def source_width(self) -> int:
        """Columns of what a row gives to its neighbours."""
        return self.width if self.pair is None else self.pair.source_width

    @property
    def own_width(self) -> int:
        """Columns of what a destination needs besides, 0 without a pair."""
        return 0 if self.pair is None else self.pair.own_width


@dataclass(frozen=True)
class ShareForm:
    """Shares of a layer's aggregate, computed by the owners of sources.

    partial: the share of rows float[n_src, in] before prefix, laid out as `layout` says: float[n_dst, width] for sums;
    separate self parts, those of `block.local`, follow. With `begin`, it reads `block.begun`. parts: int64[n_dst], how
    many in-neighbours were drawn, and the matrix of combined shares -> the `own` and `neighbours` of `Layer.finish`.
    """

    layout: PartialForm
    width: int
    partial: Callable[[PartialBlock, Rows, DropoutKey | None], Tensor]
    parts: Callable[[Tensor, Tensor], tuple[Tensor | None, Tensor]] | None = None
    """None for those of `layout`."""
    raw_share: Callable[[PartialBlock, Rows], Tensor] | None = None
    """The terms of the sums that rows give, projected or not; None where shares are not such sums."""
    by_hand: Callable[[PartialBlock, Rows], PartialStep | None] | None = None
    """The bits of `partial` without autograd, and a function that passes gradients on; None for rows it cannot take."""
    by_hand_apart: Callable[[PartialBlock, int, Rows], tuple[PartialStep, Callable[[], PartialStep]] | None] | None = (
        None
    )
    """The same for destinations from a number on, and a function for those before it; gradients in this order."""
    sent_width: int = 0
    """Columns of what destinations send to owners before these compute shares: `PartialBlock.sent`."""
    project_sent: Callable[[Rows, Tensor], Tensor] | None = None
    """Rows after prefix and their original ids -> what they send as destinations, float[rows, sent_width].

    With `slots`, float[rows, slots x sent_width]: something for each relation, sent where an edge of it needs it.
    """
    slot_of: np.ndarray | None = None
    """int64[relations of the schema]: the slot of each among those that end at the same type, -1 for those not read."""

    begin: Callable[[PartialBlock, Rows, DropoutKey | None], tuple[Tensor, ...]] | None = None
    """Block, rows and key -> what `partial` makes shares of, where a softmax is over edges of several owners.

    The last tensor has the logarithms of the sums of exponentials of `block.runs[1]`. Totals over all owners return
    before shares are computed, so that these are normalised.
    """
    log_width: int = 0
    """Columns of these logarithms, 0 without `begin`."""

    reads_own: bool = True
    """Whether shares read the own rows of destinations, `PartialBlock.local`."""
    added: Callable[[BlockTensors, Tensor], Tensor] | None = None
    """The block of the destinations and `neighbours` of `Layer.finish` -> these with terms that no owner computes."""
    added_by_edges: bool = True
    """Whether `added` reads edges."""

    @property
    def slots(self) -> int:
        """The number of rows that a destination may send."""
        return 1 if self.slot_of is None else int(self.slot_of.max(initial=0)) + 1

    def combined(self, sampled: Tensor, rows: Tensor) -> tuple[Tensor | None, Tensor]:
        """Take `own` and `neighbours` of `Layer.finish` from the combined matrix; `sampled` int64[n_dst]."""
        return self.layout.parts(rows, len(sampled)) if self.parts is None else self.parts(sampled, rows)


@dataclass(frozen=True)
class RawSums:
    """Sums that need no weights, and the layer's output from them.

    compute: float[n_src, in], rows after prefix -> float[n_dst, in]. share: the terms of some of the rows; shares of
    all ranks add up to `compute`. output: sums and, where `needs_own`, the rows of destinations after prefix ->
    float[n_dst, out], to the bit that of `forward` where it aggregates before it projects.
    """

    offered: bool
    """Whether sums may be computed without weights, and the output from sums alone."""
    needs_own: bool
    """Whether `output` reads the rows of destinations too."""
    holds_own: bool
    """Whether sums may hold a term of the destination's own row; `share` then reads `PartialBlock.local`."""
    compute: Callable[[BlockTensors, Rows], Tensor]
    output: Callable[[Tensor, Rows | None], Tensor]
    share: Callable[[PartialBlock, Rows], Tensor] | None = None
    weights: tuple[Tensor, ...] = ()
    """Weights that `output` multiplies sums by, and own rows, before it adds both up; none where it does otherwise.

    Models that train together multiply by those of all at once.
    """

    @property
    def offers_shares(self) -> bool:
        """Whether owners of rows may compute shares of them."""
        return self.offered and self.share is not None
