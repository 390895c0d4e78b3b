"""Layers of typed graphs that add up means over the relations which end at a destination.

    h'_v = act( s_v sum_r W_r mean_{u in N_r(v)} h_u + W_self[type(v)] h_v + b[type(v)] )

Where roots bound draws by their times, sum_r A_r mean_{u in N_r(v)} age_u is added (leapmpi/sampling/ages.py).

N_r(v) are the drawn in-neighbours of v under relation r; s_v is 1, or one over the relations of the schema that end at
the type of v, whichever of them v has drawn: the output is a function of the vertex alone (rule R1b).

Of shares the owner adds up all relations, so that one row travels for each destination and owner. R-GCN: Schlichtkrull
et al. (ESWC 2018), equation 2, with a matrix for own rows per type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from leapmpi.config.setting import setting
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer_forms import LayerTraits, RawSums, RowForm, ShareForm
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.share_forms import SUM, PartialStep
from leapmpi.nn.tensors import BlockTensors, PartialBlock
from leapmpi.nn.typed.relation_sums import NO_WEIGHT, OwnRows, relation_sums
from leapmpi.nn.typed.typed_layer import TypedLayer
from leapmpi.sampling.ages import AGES

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema

SUM_OF_RELATIONS, MEAN_OF_RELATIONS = "sum", "mean"


@dataclass(frozen=True)
class Options:
    """Settings of `--model-option` for all models of relations."""

    relations: str = setting(
        SUM_OF_RELATIONS,
        "how relations that end at a type are combined; a mean divides by those of the schema",
        choices=(SUM_OF_RELATIONS, MEAN_OF_RELATIONS),
    )


class RelationLayer(TypedLayer, traits=LayerTraits()):
    """Layer that sums means by relation, each with a matrix of its own; sub-classes share their `weights`."""

    Options: type[Options] = Options
    scale: Tensor
    """float64[R']: what the mean of each relation is multiplied by."""

    def __init__(
        self, config: ModelConfig, number: int, in_dim: int, out_dim: int, last: bool, *, schema: TypedSchema
    ) -> None:
        super().__init__(config, number, in_dim, out_dim, last, schema=schema)
        self.own = nn.Parameter(torch.empty(len(self.types.destinations), out_dim, in_dim))
        self.neighbour = nn.Parameter(torch.empty(len(self.types.relations), out_dim, in_dim))
        self.fans = {"own": (in_dim, out_dim), "neighbour": (in_dim, out_dim)}
        # Zeros: a model begins without ages.
        self.age = nn.Parameter(torch.zeros(len(self.types.relations), out_dim, AGES)) if schema.ages else None
        ending = self.types.ending[self.types.ends] if self.options.relations == MEAN_OF_RELATIONS else 1
        scale = np.ones(len(self.types.relations)) / ending
        self.register_buffer("scale", torch.from_numpy(scale), persistent=False)

    def weights(self) -> Tensor:
        """Compute the matrices of the relations, float[R', out, in]."""
        return self.neighbour

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        """Add up the means of all relations, and the destinations' own terms: float[n_dst, out]."""
        every = torch.arange(block.n_dst, device=block.dst_original.device)
        own = every if block.own_rows is None else block.own_rows
        return self.aged(block, self._summed(block, dense(z), self._own(block.dst_original, own, every)))

    def aged(self, block: BlockTensors, h: Tensor) -> Tensor:
        """Add to `h` (float[n_dst, out]) the mean ages of the sources by relation, where blocks have them.

        They depend on the draws alone, so the rank of the destination adds them, whatever crosses ranks.
        """
        if self.age is None or block.ages is None:
            return h
        numbers = [self.place_of.get(r, NO_WEIGHT) for r in block.groups.relations]
        rows, share = block.ages.to(h.dtype), block.relation_share(h.dtype)
        return h + relation_sums(rows, block.groups, share, self.age, numbers)

    @property
    def rows(self) -> RowForm:
        return replace(super().rows, by_number=True)

    @property
    def sums(self) -> RawSums:
        return RawSums(False, True, False, self._no_sums, self._no_output)

    @property
    def shares(self) -> ShareForm | None:
        # Rows among shares have the same width.
        raw_share = self._of_relations if self.in_dim == self.out_dim else None
        added = None if self.age is None else self.aged
        return ShareForm(SUM, self.out_dim, self.partial, raw_share=raw_share, by_hand_apart=self._apart, added=added)

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Add up the terms of these rows over all relations, with the own terms of destinations that live here."""
        return self._share(block, dense(self.prefix(x, block.src_original, key)))

    def _share(self, block: PartialBlock, rows: Tensor) -> Tensor:
        """Compute `partial` of rows after prefix."""
        destinations, local = block.local
        return self._summed(block, rows, self._own(block.src_original[local], local, destinations))

    def _apart(self, block: PartialBlock, first: int, x: Rows) -> tuple[PartialStep, Callable[[], PartialStep]] | None:
        """Compute shares for destinations from `first` on, and those before it later, from rows that are made once."""
        if self.norm is not None or self.dropout:
            return None
        made = dense(x if self.inputs is None else self.inputs(x))
        rows = made if made.grad_fn is None else made.detach().requires_grad_()
        mine, others = block.split(first)
        of_others = self._share(others, rows)

        def backward_others(gradient: Tensor) -> None:
            # The second of two gradients: that of the rows is complete now.
            if len(gradient):
                pass_back(of_others, gradient)
            if rows is not made:
                assert rows.grad is not None, "the gradient of own shares comes first"
                pass_back(made, rows.grad)

        def own() -> PartialStep:
            shares = self._share(mine, rows)
            return shares.detach(), lambda gradient: pass_back(shares, gradient)

        return (of_others.detach(), backward_others), own

    def _of_relations(self, block: BlockTensors | PartialBlock, rows: Rows) -> Tensor:
        """Add up the relations' terms of `rows` (float[n_src, in] after prefix): float[n_dst, out]."""
        return self._summed(block, dense(rows), None)

    def _summed(self, block: BlockTensors | PartialBlock, rows: Tensor, own: OwnRows | None) -> Tensor:
        """Add up the relations' terms of `rows`, float[n_src, in] after prefix, and `own` ones: float[n_dst, out].

        A mean is multiplied by the matrix of its relation, once for each destination that has drawn from it.
        """
        weights = self.weights() * self.scale.to(rows.dtype).view(-1, 1, 1)
        numbers = [self.place_of.get(r, NO_WEIGHT) for r in block.groups.relations]
        given = None if own is None else (own, self.own, self.bias)
        return relation_sums(rows, block.groups, block.relation_share(rows.dtype), weights, numbers, given)

    def _own(self, original: Tensor, rows: Tensor, destinations: Tensor) -> OwnRows:
        """Sort by type the numbers of `rows` and their `destinations`, vertices with `original` ids: int64[k] each."""
        return OwnRows.of(self.type_places[self.schema.types_of(original)], len(self.own), rows, destinations)

    def _no_sums(self, block: BlockTensors, rows: Rows) -> Tensor:
        raise NotImplementedError("sums of typed rows depend on the weights of the input layer")

    def _no_output(self, sums: Tensor, own: Rows | None) -> Tensor:
        raise NotImplementedError("sums of typed rows depend on the weights of the input layer")
