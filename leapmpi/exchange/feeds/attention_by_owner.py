"""Attention with the rows of one other rank at a time: shares of the softmax are combined as they arrive.

Each owner's edges give the logarithm of their sum of exponentials and the mean by them, from which the softmax over all
edges follows (online softmax; SAR, MLSys 2022). In the backward pass rows are sent once more, and shares recomputed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.own_first import OwnFirstFeed, edges_from, gradient_or_zeros, names_of, prefixed
from leapmpi.exchange.feeds.owner_by_owner import Round
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.models.gat import GATLayer
from leapmpi.nn.tensors import BlockTensors, Edges


class AttentionByOwnerFeed(OwnFirstFeed):
    """`own` gives three groups of columns: logarithms, means, and the destinations' scores as targets."""

    layer: GATLayer

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        self.of_own = _Source(self, self.routes.local_positions)
        self.rounds = [Round(ctx, self.routes, distance) for distance in range(1, ctx.ranks)]
        self.sources = [_Source(self, self.routes.received_positions[each.received]) for each in self.rounds]

    def own(self, rows: Tensor) -> Tensor:
        z = self.layer.project(rows)
        target = self.layer.scores(z)[: self.block.n_dst, self.layer.heads :]
        share = self.of_own.share(z, target, self._key)
        return torch.cat([share, target], dim=1)

    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        phases, heads, logs, means = self.ctx.phases, self.layer.heads, None, None
        for each, source in zip(self.rounds, self.sources, strict=True):
            # Own shares are computed once, while rows of the first of the others travel.
            finish = each.send(below)
            if logs is None or means is None:
                with phases("compute"):
                    self._of_own = own()
                    logs, means = self._of_own[:, :heads].clone(), self._of_own[:, heads:-heads].clone()
                    self._target = self._of_own[:, -heads:].clone()
            arrived = finish()
            with phases("compute"), torch.no_grad():
                share = source.share(self._projected(source, arrived, key), self._target, key)
                # Both means are rescaled to the new sum of exponentials, so no exponential overflows.
                both = torch.logaddexp(logs, share[:, :heads])
                means = self._scaled(means, logs - both) + self._scaled(share[:, heads:], share[:, :heads] - both)
                logs = both
        assert logs is not None, "there are other ranks"
        assert means is not None, "there are other ranks"
        self._logs, self._means = logs, means.clone()
        return means

    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        return joined

    def own_gradient(self, gradient: Tensor) -> Tensor:
        of_share = self._share_gradient(self._of_own[:, : -self.layer.heads], gradient)
        return torch.cat([of_share, gradient_or_zeros(self._target)], dim=1)

    def backward_others(self, gradient: Tensor, backward_own: Callable[[], Tensor]) -> Tensor:
        phases, below, of_below = self.ctx.phases, self._below, torch.zeros_like(self._below)
        self._target.requires_grad_()
        for each, source in zip(self.rounds, self.sources, strict=True):
            # Sent once more: kept rows of all owners would take the memory that one at a time saves.
            rows = each.send(below)()
            with phases("compute"):
                rows.requires_grad_()
                share = source.share(self._projected(source, rows, self._key), self._target, self._key)
                pass_back(share, self._share_gradient(share.detach(), gradient))
                sent = gradient_or_zeros(rows)
            del rows, share
            returned = each.transfer.start_back(sent)()
            with phases("compute"):
                of_below.index_add_(0, each.sent_rows, returned)

        # Own rows are backpropagated last: as targets, they receive gradients from every owner's share.
        with phases("compute"):
            of_below += backward_own()
        del self._of_own, self._target, self._logs, self._means
        return of_below

    def _projected(self, source: _Source, rows: Tensor, key: DropoutKey | None) -> Tensor:
        return self.layer.project(prefixed(self.layer, rows, source.names, key))

    def _scaled(self, means: Tensor, logs: Tensor) -> Tensor:
        """Multiply `means` by the exponentials of `logs`, float[n_dst, heads]."""
        return means * logs.exp().repeat_interleave(means.shape[1] // logs.shape[1], dim=1)

    def _share_gradient(self, share: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of a `share`, from the `gradient` of the mean over all edges."""
        heads, weight = self.layer.heads, share[:, : self.layer.heads] - self._logs
        of_mean = self._scaled(gradient, weight)
        apart = of_mean * (share[:, heads:] - self._means)
        return torch.cat([apart.unflatten(1, (heads, -1)).sum(2), of_mean], dim=1)


class _Source:
    """The edges from the sources at `places` of a block, int64[k]."""

    def __init__(self, step: AttentionByOwnerFeed, places: Tensor) -> None:
        self.layer, block = step.layer, step.block
        every = block.edges_with_self
        self.edges, _ = edges_from(every, every.indices, places)
        self.names = names_of(self.layer, block, places)
        self.vertices = block.known_original
        if self.layer.attention_dropout:
            self.vertices = torch.cat([block.dst_original, block.src_original[places]])
        # Masks name both ends of an edge: destinations come first, then the sources of this round.
        self.named = Edges(self.edges.indptr, self.edges.indices + block.n_dst, self.edges.sources + block.n_dst)

    def share(self, z: Tensor, target: Tensor, key: DropoutKey | None) -> Tensor:
        """Compute the share of these edges, float[n_dst, heads + width]: logarithms and means."""
        return torch.cat(self.layer.attention_share(self.edges, z, target, (self.named, self.vertices), key), dim=1)
