"""A layer over a block: the parts of which it is made, which ranks may compute in different places.

    prefix(x)        row-wise work before aggregation: normalisation, dropout              [n_src, in]
    project(x)       the neighbours' weights                                               [rows, width]
    aggregate(block) combine in-neighbours: projected rows, or raw ones if linear          [n_dst, ...]
    self_part(x)     the destination's contribution to itself, None where it has none      [n_dst, out]
    finish(...)      add both, bias, activation, residual                                  [n_dst, out]

Two forms in which the inputs of a layer cross ranks are made of these parts:

    projected(x), from_projected(block, z)   whole rows, multiplied by this layer's weights where they lie
    partial(block, x), partial_form          shares of an aggregate, computed where the sources lie

A layer without a form (`partial_form` is None) is fed by rows. `edge_data` names what edges carry that it reads.

Every part is a function of rows alone, but for batch normalisation (norms.py), which reads the whole batch:
h(l, v) does not depend on which other vertices share the block (rule R1b). The input of layer 0 may be sparse, or lie
in several places (leapmpi/nn/rows.py); products and sums of it are tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import parse_options
from leapmpi.nn.aggregate import weighted_sum
from leapmpi.nn.dropout import DropoutKey, drop_features
from leapmpi.nn.gemm import product
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.norms import norm_of
from leapmpi.nn.rows import Rows, SparseMatrix, dense
from leapmpi.nn.share_forms import PartialForm, PartialStep
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

# Time of an element added up along an edge, and of one streamed through memory for a product or a copy, in units of one
# multiply-add inside a product. Measured with one thread on 9,900 x 10 edges and 50,000 rows of 300 and 600 columns out
# of memory: kernels prefetch rows, so that products hardly wait for them.
_EDGE_ELEMENT, _STREAMED_ELEMENT = 20, 3


def as_row(number: Tensor | float, width: int) -> Tensor | float:
    """A learned `number` (float[1]) as float[width]; others as they are.

    What it multiplies has so many columns: its gradient is then summed by columns, in one order on any thread count.
    """
    return number.expand(width) if isinstance(number, Tensor) else number


class Projection(nn.Module):
    """Multiplication of rows by a weight float[out, in], without bias: x float[n, in] -> float[n, out].

    `fans` overrides the widths (in, out) that set the range of the initial weights, where the weight is several maps.
    """

    def __init__(self, in_dim: int, out_dim: int, fans: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.fans = {"weight": fans or (in_dim, out_dim)}

    def forward(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """With `rows`, int64[n] numbers of rows of x, the product of x[rows]."""
        return product(x, self.weight, rows)


class Layer(nn.Module):
    """One layer; `number` counts from 1 at the input and names its dropout masks, `last` gives logits.

    `config` has the attributes of ModelConfig. Sub-classes set up their weights and fill in the parts.
    """

    linear = True
    """Whether projecting before or after aggregating gives the same result."""

    splits = True
    """Whether the layer is made of these parts; a user's own module is run as a whole, on raw rows."""

    projects = True
    """Whether `project` multiplies rows by weights; where it does not, none but raw rows feed the layer."""

    partial_form: PartialForm | None = None
    """How shares of the aggregate combine; None where the layer offers no shares."""

    edge_data: tuple[str, ...] = ("weight",)
    """What edges carry that this layer reads: "weight", the sampler's weights; "edge_weight" and
    "edge_features", those of the dataset."""

    shares_sums = False
    """Whether the aggregate of raw rows depends on the rows alone, not on a weight or setting of this layer.

    Models that are trained in one run then share it. Not inherited: a sub-class may aggregate otherwise.
    """

    sums_ahead = False
    """Whether `raw_sums` depends on rows alone, not on weights: it may be computed by a rank that has none.

    For layers that are linear, and `from_sums` then gives what `forward` does. Not inherited: a sub-class may aggregate
    otherwise.
    """

    reads_names = True
    """Whether the layer reads original ids or in-degrees of sources that are no destinations, but for dropout.

    Where it does not, nobody has to ask for them. Not inherited: a sub-class may read more.
    """

    attention_dropout = 0.0
    """Share of attention weights dropped in training."""

    Options: type | None = None
    """What `--model-option` sets: a dataclass of fields made by `setting`, whose values are `self.options`."""

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__()
        self.options: Any = parse_options(self.Options, config.options, config.name, "model")
        self.seed = config.seed
        self.number, self.in_dim, self.out_dim, self.last = number, in_dim, out_dim, last
        self.first_column = 0
        self.dropout = config.input_dropout if number == 1 else config.dropout
        self.norm = norm_of(config.norm, in_dim, number - 1) if number > 1 else None
        self.bias: Tensor = nn.Parameter(torch.zeros(out_dim))
        self.residual = None
        if config.residual:
            self.residual = nn.Identity() if in_dim == out_dim else Projection(in_dim, out_dim)

    @property
    def reads_sources(self) -> bool:
        """Whether the layer reads original ids or in-degrees of sources that are no destinations."""
        return self.dropout > 0 or self.attention_dropout > 0 or self.names_sources

    @property
    def names_sources(self) -> bool:
        """The same where nothing is dropped."""
        return vars(type(self)).get("reads_names", True)

    def mask_key(self, key: DropoutKey | None) -> DropoutKey | None:
        """`key` with the model's own seed where it has one."""
        return key if key is None or self.seed < 0 else key._replace(seed=self.seed)

    def prefix(self, x: Rows, vertices: Tensor, key: DropoutKey | None) -> Rows:
        """Normalised and dropped-out rows of `x` (float[rows, in]); `vertices` int64[rows] are original ids."""
        if self.norm is not None:
            x = self.norm(x)
        return drop_features(x, vertices, self.mask_key(key), self.number, self.dropout, self.first_column)

    def keep_columns(self, first: int, end: int) -> None:
        """From now on read columns `first` to `end` (exclusive) of the input alone, with the weights for them.

        What the parts give is then this share of a sum over all columns. For layers without normalised input.
        """
        for module in self.input_projections():
            module.weight = nn.Parameter(module.weight.detach()[:, first:end].clone())
        self.in_dim, self.first_column = end - first, first

    def input_projections(self) -> list[Projection]:
        """Those that multiply input rows; all, unless a sub-class has others too."""
        return [module for module in self.modules() if isinstance(module, Projection)]

    def project(self, x: Rows) -> Tensor:
        """float[rows, in] -> what neighbours contribute, float[rows, width]."""
        raise NotImplementedError

    def edge_sums(self, block: BlockTensors, dtype: torch.dtype) -> tuple[Edges, Tensor] | None:
        """Edges and float[edges] weights of which `aggregate` is the sum, where the block alone decides them; or None.

        A linear layer then needs not all rows at once.
        """
        return None

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """float[n_src, width] -> float[n_dst, width]: combine the in-neighbours of each destination."""
        found = self.edge_sums(block, z.dtype)
        if found is None:
            raise NotImplementedError(f"{type(self).__name__} combines nothing")
        return weighted_sum(found[0], z, found[1])

    def self_part(self, x_dst: Rows) -> Tensor | None:
        """float[n_dst, in] (after prefix) -> float[n_dst, out], or None if aggregation includes the destination."""
        return None

    def activation(self, h: Tensor) -> Tensor:
        """Element-wise, after every layer but the last."""
        return F.relu(h)

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Output float[n_dst, out] from both contributions; `x_dst` float[n_dst, in] is the input before prefix."""
        h = (neighbours if own is None else own + neighbours) + self.bias
        h = h if self.last else self.activation(h)
        return h if self.residual is None else h + dense(self.residual(x_dst))

    @property
    def plain_prefix(self) -> bool:
        """Whether `prefix` leaves rows as they are, so that they can be read where they lie."""
        return self.norm is None and not self.dropout

    @property
    def reads_destinations(self) -> bool:
        """Whether `finish` reads the raw rows of destinations."""
        return self.residual is not None

    @property
    def reads_own(self) -> bool:
        """Whether destinations add something of their own rows beside the aggregate."""
        return type(self).self_part is not Layer.self_part or self.reads_destinations

    @property
    def projected_width(self) -> int:
        """Columns of `projected` rows."""
        return self.out_dim

    @property
    def source_width(self) -> int:
        """Columns of what a row gives to its neighbours."""
        return self.projected_width

    @property
    def own_width(self) -> int:
        """Columns, a multiple of `source_width`, of what a row needs as a destination besides; 0 if nothing.

        Else `join` aggregates the two, and `project` holds both, linear in the row.
        """
        return 0

    def project_source(self, x: Rows) -> Tensor:
        """Rows after prefix -> what they give to neighbours, float[rows, source_width]."""
        return self.project(x)

    def project_own(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """Rows after prefix -> what they need as destinations, float[rows, own_width].

        With `rows`, int64[k] numbers of rows of x, of those alone.
        """
        raise NotImplementedError(f"{type(self).__name__} needs nothing of its own")

    def join(self, block: BlockTensors, z: Tensor, own: Tensor, key: DropoutKey | None) -> Tensor:
        """As `aggregate`, of what sources give (float[n_src, source_width]) and destinations need."""
        raise NotImplementedError(f"{type(self).__name__} needs nothing of its own")

    @property
    def partial_width(self) -> int:
        """Columns of a share."""
        return self.out_dim

    @property
    def sent_width(self) -> int:
        """Columns of what a destination sends to the owners of its neighbours before they compute shares; 0 if nothing.

        Partial blocks hold it then, as `PartialBlock.sent`.
        """
        return 0

    def project_sent(self, x: Rows) -> Tensor:
        """Rows after prefix -> what they send as destinations, float[rows, sent_width]."""
        raise NotImplementedError(f"{type(self).__name__} sends nothing before shares are computed")

    def projected(self, x: Rows, vertices: Tensor, key: DropoutKey | None) -> Tensor:
        """All that a row contributes, to itself and to others, by which it can travel: float[rows, width]."""
        return self.project(self.prefix(x, vertices, key))

    def from_projected(self, block: BlockTensors, z: Tensor, key: DropoutKey | None) -> Tensor:
        """What `finish` wants as `neighbours`, from `projected` rows of all sources: float[n_dst, out]."""
        return self.aggregate(block, z, key)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """The share of `x` (float[n_src, in]), laid out as `partial_form` says.

        float[n_dst, out] for sums; with separate self parts, those of `block.local` follow: float[n_dst + k, out].
        """
        raise NotImplementedError(f"{type(self).__name__} has no partial form")

    def partial_step(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> PartialStep:
        """What `partial` gives, and what passes the gradient of it on to the weights, called once at most.

        By autograd. A layer may do without, where it finds the same bits sooner, unless a sub-class changed `partial`.
        """
        shares = self.partial(block, x, key)
        return shares.detach(), lambda gradient: pass_back(shares, gradient)

    def partial_steps(
        self, block: PartialBlock, local: int, x: Rows, key: DropoutKey | None
    ) -> tuple[PartialStep, Callable[[], PartialStep]] | None:
        """As `partial_step`, the shares of destinations from `local` on, and a function for those of the first `local`.

        Gradients are passed on once each, those of the first `local` before the others. None where the two would do
        some work twice.
        """
        if not self.plain_prefix or self.projects_first(block, x):
            return None
        mine, others = block.split(local)
        return self.partial_step(others, x, key), lambda: self.partial_step(mine, x, key)

    def from_partial(self, sampled: Tensor, rows: Tensor) -> tuple[Tensor | None, Tensor]:
        """What `finish` wants as `own` and `neighbours`, from the matrix of combined shares.

        sampled: int64[n_dst], how many in-neighbours of each destination were drawn.
        """
        assert self.partial_form is not None, "shares are asked for only of layers that have a form"
        return self.partial_form.parts(rows, len(sampled))

    def projects_first(self, block: BlockTensors | PartialBlock, x: Rows) -> bool:
        """Whether projecting every source is cheaper than projecting every destination's aggregate.

        Always so where aggregation is not linear, or rows are sparse, whose sums are not. Estimated from sizes
        alone, so equal blocks are treated equally.
        """
        if not self.linear or isinstance(x, SparseMatrix):
            return True
        passes_on = torch.is_grad_enabled() and x.requires_grad
        before, after = self.costs(block.n_src, block.n_dst, len(block.edges.indices), passes_on)
        return before < after

    def costs(self, sources: int, destinations: int, edges: int, passes_on: bool = False) -> tuple[int, int]:
        """Predicted cost of projecting before and (linear layers only) after aggregation, in multiply-adds.

        `passes_on` says that the input needs a gradient too.
        """
        learns = torch.is_grad_enabled()

        def product(rows: int, width: int = self.out_dim) -> int:
            once = rows * (self.in_dim * width + _STREAMED_ELEMENT * (self.in_dim + width))
            return once * (1 + learns + passes_on)

        before = product(sources) + _EDGE_ELEMENT * edges * self.out_dim * (1 + learns)
        before += product(destinations, self.own_width) if self.own_width else 0
        after = product(destinations) + _EDGE_ELEMENT * edges * self.in_dim * (1 + passes_on)
        return before, after

    def sparse_cost(self, sources: int, edges: int, entries: float) -> float:
        """Predicted cost of training this layer on sparse rows of `entries` entries each, in multiply-adds.

        They are projected first: a sum of weight rows for each source, then one of projected rows over the edges.
        """
        return 2 * _EDGE_ELEMENT * self.out_dim * (sources * entries + edges)

    def least_cost(self, sources: int, destinations: int, edges: int) -> int:
        """Predicted cost of projecting and aggregating in the cheaper order that gives the same result."""
        before, after = self.costs(sources, destinations, edges)
        return min(before, after) if self.linear else before

    def copying_cost(self, rows: int) -> int:
        """Predicted cost of putting `rows` input rows together, in multiply-adds."""
        return 2 * _STREAMED_ELEMENT * rows * self.in_dim

    def forward(self, block: BlockTensors, x: Rows, key: DropoutKey | None = None) -> Tensor:
        """float[n_src, in] -> float[n_dst, out]; without `key` nothing is dropped."""
        return self.from_rows(block, self.prefix(x, block.mask_names(key, self.dropout), key), x, key)

    def from_rows(self, block: BlockTensors, rows: Rows, x: Rows, key: DropoutKey | None) -> Tensor:
        """What `forward` gives, from the rows after prefix and before, float[n_src, in] each."""
        own = self.self_part(rows[: block.n_dst])
        if self.own_width:
            neighbours = self.join(block, self.project_source(rows), self.project_own(rows[: block.n_dst]), key)
        elif self.projects_first(block, rows):
            neighbours = self.aggregate(block, self.project(rows), key)
        else:
            neighbours = self.project(self._sums(block, rows, key))
        return self.finish(own, neighbours, x[: block.n_dst])

    @property
    def offers_sums(self) -> bool:
        """Whether `raw_sums` may be computed without weights, and the output from sums alone."""
        ahead = vars(type(self)).get("sums_ahead", False)
        return ahead and self.linear and (self.residual is None or self.plain_prefix)

    @property
    def sums_need_own(self) -> bool:
        """Whether `from_sums` reads the rows of destinations too."""
        return type(self).self_part is not Layer.self_part or self.residual is not None

    @property
    def sums_hold_own(self) -> bool:
        """Whether `raw_sums` may hold a term of the destination's own row."""
        return type(self).self_part is Layer.self_part

    @property
    def offers_sum_shares(self) -> bool:
        """Whether `raw_share` may be computed where rows lie, without weights, and the output from the sums of it."""
        return self.offers_sums and self.offers_raw_shares

    @property
    def offers_raw_shares(self) -> bool:
        """Whether `raw_share` sums up rows, raw or projected. Not inherited, like `sums_ahead`."""
        return vars(type(self)).get("sums_ahead", False) and type(self).raw_share is not Layer.raw_share

    @property
    def sum_projections(self) -> tuple[Projection, ...]:
        """What `from_sums` multiplies sums by, and own rows, where it gives both products to `finish`; else nothing.

        Models that train together then take them at once. Not inherited: a sub-class may use rows otherwise.
        """
        return ()

    def raw_sums(self, block: BlockTensors, rows: Rows) -> Tensor:
        """What is known of the aggregate without weights: float[n_dst, in] of float[n_src, in], rows after prefix."""
        return self.aggregate(block, rows, None)

    def raw_share(self, block: PartialBlock, rows: Rows) -> Tensor:
        """The terms of `raw_sums` that some of the `rows` give, float[n_dst, in]: shares of all ranks add up to it.

        `rows` float[n_src, in] are those of `block`, after prefix. With `sums_hold_own` it reads `block.local`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no shares of raw sums")

    def from_sums(self, sums: Tensor, own: Rows | None) -> Tensor:
        """float[n_dst, out], to the bit what `forward` gives where it aggregates before it projects.

        From `raw_sums` and, where `sums_need_own`, the rows of destinations after prefix, float[n_dst, in].
        """
        return self.finish(None if own is None else self.self_part(own), self.project(sums), own)

    def _sums(self, block: BlockTensors, rows: Rows, key: DropoutKey | None) -> Tensor:
        """Aggregated `rows`: those that a model before this one found in the same features, where that may be."""
        shares = vars(type(self)).get("shares_sums", False) and self.plain_prefix
        if block.sums is None or self.number > 1 or not shares:
            return self.aggregate(block, rows, key)
        kind = type(self), rows.dtype
        if kind not in block.sums:
            block.sums[kind] = self.aggregate(block, rows, key)
        return block.sums[kind]
