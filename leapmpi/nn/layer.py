"""A layer over a block, made of parts that ranks may compute in different places.

    prefix(x)        row-wise work before aggregation: normalisation, dropout              [n_src, in]
    project(x)       the neighbours' weights                                               [rows, width]
    aggregate(block) combine in-neighbours: projected rows, or raw ones if linear          [n_dst, ...]
    self_part(x)     the destination's contribution to itself, None where it has none      [n_dst, out]
    finish(...)      add both, bias, activation, residual                                  [n_dst, out]

The forms in which inputs of a layer cross ranks (layer_forms.py) are made of these parts: `rows`, `shares` and `sums`.
A layer without shares is fed by rows. `edge_data` names the data of edges that it reads.

Every part is a function of rows alone, but for batch normalisation (norms.py), which reads the whole batch: h(l, v)
does not depend on the other vertices of the block (rule R1b). The input of layer 0 may be sparse, or scattered over
several places (rows.py); products and sums of it are tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.config.options import parse_options
from leapmpi.nn.dropout import DropoutKey, drop_features, with_seed
from leapmpi.nn.gemm import product
from leapmpi.nn.gradient import add_gradient, pass_back
from leapmpi.nn.layer_forms import NO_PROMISES, LayerTraits, RawSums, RowForm, ShareForm
from leapmpi.nn.norms import norm_of
from leapmpi.nn.rows import Rows, SparseMatrix, dense
from leapmpi.nn.share_forms import PartialStep
from leapmpi.nn.tensors import BlockTensors, PartialBlock

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig

# Time of an element added up along an edge, and of one streamed through memory for a product or a copy, in units of one
# multiply-add inside a product. Measured with one thread on 9,900 x 10 edges and 50,000 rows of 300 and 600 columns out
# of memory: kernels prefetch rows, so that products hardly wait for them.
_EDGE_ELEMENT, _STREAMED_ELEMENT = 20, 3


def as_row(number: Tensor | float, width: int) -> Tensor | float:
    """Expand a learned `number` (float[1]) to float[width]; return others as they are.

    What it multiplies has so many columns: its gradient is then summed by columns, in one order on any thread count.
    """
    return number.expand(width) if isinstance(number, Tensor) else number


class Weighted(nn.Module):
    """A module whose initial weights depend on the seed and their names: `fans` lists (in, out) by parameter.

    `limits` overrides the bound of parameters that are no maps.
    """

    fans: Mapping[str, tuple[int, int]] = MappingProxyType({})
    limits: Mapping[str, float] = MappingProxyType({})


class Projection(Weighted):
    """Multiplication of rows by a weight float[out, in], without bias: x float[n, in] -> float[n, out].

    `fans` overrides the widths (in, out) that set the range of the initial weights, where the weight is several maps.
    """

    def __init__(self, in_dim: int, out_dim: int, fans: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.fans = {"weight": fans or (in_dim, out_dim)}

    def forward(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """Multiply x, or x[rows] with `rows`, int64[n] numbers of rows of x."""
        return product(x, self.weight, rows)


class Layer(Weighted):
    """One layer; `number` counts from 1 at the input and names its dropout masks, `last` gives logits.

    `config` has the attributes of ModelConfig. Sub-classes set up their weights and define `project` and `aggregate`;
    the other methods have defaults. What a class promises beyond that are its `traits`, a keyword of its definition.
    """

    traits: ClassVar[LayerTraits] = NO_PROMISES
    """Promises of this very class."""

    linear = True
    """Whether projecting before or after aggregating gives the same result."""

    splits = True
    """Whether the layer is made of these parts; a user's own module is run as a whole, on raw rows."""

    projects = True
    """Whether `project` multiplies rows by weights; where it does not, none but raw rows feed the layer."""

    multiplied: Literal["either", "sources", "destinations"] = "either"
    """Rows that weights multiply, for predicted costs; with "either" there is a cost of each order."""

    adds_input = False
    """Whether `finish` reads raw rows of destinations even without a residual."""

    edge_data: tuple[str, ...] = ("weight",)
    """Data of edges that this layer reads: "weight", the sampler's weights; "edge_weight" and "edge_features", those of
    the dataset."""

    input_weights: tuple[str, ...] | None = None
    """Names of the projections that multiply input rows; None for all projections."""

    attention_dropout = 0.0
    """Fraction of attention weights dropped in training."""

    heads = 1
    """Weights of attention per edge."""

    carries = False
    """Whether attention is mixed with that of the layer below, edge by edge (carried_attention.py)."""

    _like: Tensor
    """float[0], of the type of the weights."""

    Options: type | None = None
    """Options of `--model-option`: a dataclass of fields made by `setting`, whose values are `self.options`."""

    def __init_subclass__(cls, traits: LayerTraits = NO_PROMISES, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.traits = traits

    def __init__(self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool) -> None:
        super().__init__()
        self.options: Any = parse_options(self.Options, config.options, config.name, "model")
        self.seed = config.seed
        self.number, self.in_dim, self.out_dim, self.last = number, in_dim, out_dim, last
        self.first_column = 0
        self.dropout = config.input_dropout if number == 1 else config.dropout
        self.norm = norm_of(config.norm, in_dim, number - 1) if number > 1 else None
        self.inputs: nn.Module | None = None
        """The input layer of a first layer, from rows of a typed graph to a matrix (typed/typed_inputs.py)."""
        # Not read from a weight: an embedding of learned rows has none.
        self.register_buffer("_like", torch.empty(0), persistent=False)
        self.bias: Tensor = nn.Parameter(torch.zeros(out_dim))
        self.residual = None
        if config.residual:
            self.residual = nn.Identity() if in_dim == out_dim else Projection(in_dim, out_dim)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, and so of what the layer reads and computes."""
        return self._like.dtype

    def prefix(self, x: Rows, vertices: Tensor, key: DropoutKey | None) -> Rows:
        """Normalise and drop out rows of `x` (float[rows, in]); `vertices` int64[rows] are original ids.

        Rows of a typed graph become a matrix before.
        """
        if self.inputs is not None:
            x = self.inputs(x)
        if self.norm is not None:
            x = self.normalised(dense(x), vertices)
        return drop_features(x, vertices, with_seed(key, self.seed), self.number, self.dropout, self.first_column)

    def normalised(self, x: Tensor, vertices: Tensor) -> Tensor:
        """Normalise rows float[rows, in] by `norm`; `vertices` int64[rows] are original ids."""
        assert self.norm is not None, "the layer normalises rows"
        return self.norm(x)

    def project(self, x: Rows) -> Tensor:
        """Multiply float[rows, in] by the neighbours' weights: float[rows, width]."""
        raise NotImplementedError

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Combine the in-neighbours of each destination: float[n_src, width] -> float[n_dst, width]."""
        raise NotImplementedError(f"{type(self).__name__} combines nothing")

    def self_part(self, x_dst: Rows) -> Tensor | None:
        """Compute the destination's own term, float[n_dst, in] after prefix -> float[n_dst, out].

        None if aggregation includes the destination.
        """
        return None

    def biased(self, h: Tensor) -> Tensor:
        """Add the bias to float[n_dst, out]."""
        return h + self.bias

    def activation(self, h: Tensor) -> Tensor:
        """Apply the element-wise function that follows every layer but the last."""
        return F.relu(h)

    def finish(self, own: Tensor | None, neighbours: Tensor, x_dst: Rows | None) -> Tensor:
        """Add both contributions: float[n_dst, out]. `x_dst` float[n_dst, in] is the input before prefix."""
        h = self.biased(neighbours if own is None else own + neighbours)
        h = h if self.last else self.activation(h)
        return h if self.residual is None else h + dense(self.residual(x_dst))

    def forward(self, block: BlockTensors, x: Rows, key: DropoutKey | None = None) -> Tensor:
        """Compute float[n_src, in] -> float[n_dst, out]; without `key` nothing is dropped."""
        return self._from_rows(block, self.prefix(x, block.mask_names(key, self.dropout), key), x, key)

    def _from_rows(self, block: BlockTensors, rows: Rows, x: Rows, key: DropoutKey | None) -> Tensor:
        """Compute the output of `forward` from `rows` after prefix and `x` before it, float[n_src, in] each."""
        own, pair = self.self_part(rows[: block.n_dst]), self.rows.pair
        if pair is not None:
            neighbours = pair.join(block, pair.source(rows), pair.own(rows[: block.n_dst], None), key)
        elif projects_first(self, block, rows):
            neighbours = self.aggregate(block, self.project(rows), key)
        else:
            neighbours = self.project(_aggregated(self, block, rows, key))
        return self.finish(own, neighbours, x[: block.n_dst])

    @property
    def rows(self) -> RowForm:
        """Projected rows."""
        return RowForm(self.out_dim, self.project, self.aggregate)

    @property
    def shares(self) -> ShareForm | None:
        """Shares of the aggregate; None where the layer offers none."""
        return None

    @property
    def sums(self) -> RawSums:
        """Sums of raw rows, offered by layers with the trait `sums_ahead`."""
        return raw_sums(self)


def raw_sums(layer: Layer) -> RawSums:
    """Describe raw sums as the aggregate of raw rows, which is then projected."""
    own_term = type(layer).self_part is not Layer.self_part

    def output(sums: Tensor, own: Rows | None) -> Tensor:
        return layer.finish(None if own is None else layer.self_part(own), layer.project(sums), own)

    # A residual reads own rows before prefix, the self part after it: one matrix serves both only if they are equal.
    return RawSums(
        offered=layer.traits.sums_ahead and layer.linear and (layer.residual is None or plain_prefix(layer)),
        needs_own=own_term or layer.residual is not None,
        holds_own=not own_term,
        compute=lambda block, rows: layer.aggregate(block, rows, None),
        output=output,
    )


def plain_prefix(layer: Layer) -> bool:
    """Return whether `prefix` leaves rows as they are, so that they can be read in place."""
    return layer.norm is None and not layer.dropout and layer.inputs is None


def reads_sources(layer: Layer) -> bool:
    """Return whether the layer reads original ids or in-degrees of sources that are not destinations."""
    return layer.dropout > 0 or layer.attention_dropout > 0 or layer.traits.reads_names


def reads_destinations(layer: Layer) -> bool:
    """Return whether `finish` reads the raw rows of destinations."""
    return layer.residual is not None or layer.adds_input


def reads_own(layer: Layer) -> bool:
    """Return whether destinations add a term of their own rows to the aggregate."""
    return type(layer).self_part is not Layer.self_part or reads_destinations(layer)


def source_rows(layer: Layer, x: Rows) -> Tensor:
    """Compute from rows after prefix what they give to neighbours: float[rows, width]."""
    pair = layer.rows.pair
    return layer.project(x) if pair is None else pair.source(x)


def share_step(layer: Layer, block: PartialBlock, x: Rows, key: DropoutKey | None) -> PartialStep:
    """Compute shares of `x`, and a function that passes their gradient on to the weights, called once at most.

    By autograd, unless the layer has the same bits sooner.
    """
    shares = layer.shares
    assert shares is not None, "shares are requested only of layers that offer some"
    if shares.by_hand is not None and (found := shares.by_hand(block, x)) is not None:
        return found
    computed = shares.partial(block, x, key)
    return computed.detach(), lambda gradient: pass_back(computed, gradient)


def share_steps(
    layer: Layer, block: PartialBlock, local: int, x: Rows, key: DropoutKey | None
) -> tuple[PartialStep, Callable[[], PartialStep]] | None:
    """Compute `share_step` for destinations from `local` on, and return a function for the first `local`.

    Gradients are passed on once each, those of the first `local` before the others. None where the two would repeat
    work.
    """
    shares = layer.shares
    assert shares is not None, "shares are requested only of layers that offer some"
    if shares.by_hand_apart is not None and (found := shares.by_hand_apart(block, local, x)) is not None:
        return found
    if not plain_prefix(layer) or projects_first(layer, block, x):
        return None
    mine, others = block.split(local)
    return share_step(layer, others, x, key), lambda: share_step(layer, mine, x, key)


def finishes_plainly(layer: Layer) -> bool:
    """Return whether `finish` adds both contributions, the bias, and a rectifier unless the layer is the last."""
    kind = type(layer)
    parts = (kind.finish, Layer.finish), (kind.biased, Layer.biased), (kind.activation, Layer.activation)
    return layer.residual is None and all(own is base for own, base in parts)


@torch.no_grad()
def finish_step(layer: Layer, neighbours: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
    """Compute `finish` in the memory of `neighbours`, and a function from the gradient of the result to theirs.

    The function adds to the gradient of the bias. The bits are those of autograd, which takes longer. None where the
    layer finishes in a way of its own.
    """
    if not finishes_plainly(layer):
        return None
    out = neighbours.add_(layer.bias)
    if not layer.last:
        out.relu_()

    @torch.no_grad()
    def backward(gradient: Tensor) -> Tensor:
        if not layer.last:
            # ReLU's own output tells where it passed: its input, overwritten by then, is not needed.
            gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        add_gradient(layer.bias, gradient.sum(0))
        return gradient

    return out, backward


def projects_first(layer: Layer, block: BlockTensors | PartialBlock, x: Rows) -> bool:
    """Return whether projecting every source is cheaper than projecting every destination's aggregate.

    Always so where aggregation is not linear, or rows are sparse, whose sums are not. Estimated from sizes alone, so
    equal blocks are treated equally.
    """
    if not layer.linear or isinstance(x, SparseMatrix):
        return True
    passes_on = torch.is_grad_enabled() and x.requires_grad
    before, after = costs(layer, block.n_src, block.n_dst, len(block.edges.indices), passes_on)
    return before < after


def costs(layer: Layer, sources: int, destinations: int, edges: int, passes_on: bool = False) -> tuple[int, int]:
    """Predict the cost of projecting before and (linear layers only) after aggregation, in multiply-adds.

    `passes_on`: whether the input needs a gradient too.
    """
    trains = torch.is_grad_enabled()

    def product(rows: int, width: int = layer.out_dim) -> int:
        once = rows * (layer.in_dim * width + _STREAMED_ELEMENT * (layer.in_dim + width))
        # Training multiplies once more for the weights, and once more for an input that needs a gradient.
        return once * (1 + trains + passes_on)

    own_width = layer.rows.own_width
    before = product(destinations if layer.multiplied == "destinations" else sources)
    before += _EDGE_ELEMENT * edges * layer.out_dim * (1 + trains)
    before += product(destinations, own_width) if own_width else 0
    # Sums of raw rows need a gradient for the layer below alone, those of projected rows for the weights too.
    after = product(destinations) + _EDGE_ELEMENT * edges * layer.in_dim * (1 + passes_on)
    return before, after if layer.multiplied == "either" else before


def sparse_cost(layer: Layer, sources: int, edges: int, entries: float) -> float:
    """Predict the cost of training the layer on sparse rows of `entries` entries each, in multiply-adds.

    They are projected first: a sum of weight rows for each source, then one of projected rows over the edges.
    """
    return 2 * _EDGE_ELEMENT * layer.out_dim * (sources * entries + edges)


def least_cost(layer: Layer, sources: int, destinations: int, edges: int) -> int:
    """Predict the cost of projecting and aggregating in the cheaper order that gives the same result."""
    before, after = costs(layer, sources, destinations, edges)
    return min(before, after) if layer.linear else before


def copying_cost(layer: Layer, rows: int) -> int:
    """Predict the cost of putting `rows` input rows together, in multiply-adds."""
    return 2 * _STREAMED_ELEMENT * rows * layer.in_dim


def _aggregated(layer: Layer, block: BlockTensors, rows: Rows, key: DropoutKey | None) -> Tensor:
    """Aggregate `rows`, or return the sums that a model before this one found in the same features."""
    if block.sums is None or layer.number > 1 or not (layer.traits.plain_sums and plain_prefix(layer)):
        return layer.aggregate(block, rows, key)
    kind = type(layer), rows.dtype
    if kind not in block.sums:
        block.sums[kind] = layer.aggregate(block, rows, key)
    return block.sums[kind]
