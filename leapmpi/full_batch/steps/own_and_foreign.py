"""The partial block of a layer whose owners send sums: own destinations, then those of other ranks."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.full_batch.layer_graphs import LayerPlan
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import Edges, EdgeWeights, PartialBlock
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.edge_lookup import drawn_weights


def partial_block(topology: Topology, plan: LayerPlan, device: torch.device) -> PartialBlock:
    """What the rows of the matrix of `plan`, whose kind is partial, contribute to own and to foreign destinations."""
    assert plan.by_kind is not None, "the kind is not raw"
    assert plan.by_kind.foreign is not None, "the kind is partial"
    block, routes, foreign = plan.block, plan.by_kind, plan.by_kind.foreign

    # All destinations, their edges, and the row of each edge and of each destination itself, -1 where it is elsewhere.
    destinations = np.concatenate((block.dst, foreign.destinations))
    indptr = np.concatenate((block.indptr, block.indptr[-1] + foreign.indptr[1:]))
    rows = np.concatenate((routes.source_rows[block.indices], foreign.rows))
    self_rows = np.concatenate((routes.source_rows[: block.n_dst], foreign.self_rows))

    # The edges that start here.
    kept = rows >= 0
    of_edge = np.repeat(np.arange(len(destinations)), np.diff(indptr))
    kept_indptr = indptr_of(np.bincount(of_edge[kept], minlength=len(destinations)))
    local = np.flatnonzero(self_rows >= 0)

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    weight_of_draws = None
    if block.weight is not None:
        assert foreign.weight is not None, "a sampler weights the edges of all destinations or of none"
        weight_of_draws = tensor(np.concatenate((block.weight, foreign.weight))[kept])
    weights = None
    if topology.edge_weight is not None and topology.weight_sum is not None:
        neighbours = np.concatenate((block.src[block.indices], foreign.neighbours))
        _, weight, drawn = drawn_weights(topology, indptr, neighbours, destinations)
        sums = topology.weight_sum[destinations], topology.weight_sum[routes.vertices]
        weights = EdgeWeights(tensor(weight[kept]), tensor(drawn), *map(tensor, sums))
    numbers = rows[kept].astype(np.int32 if on_host(device) else np.int64)
    return PartialBlock(
        edges=Edges(tensor(kept_indptr), tensor(numbers), len(routes.vertices)),
        sampled=tensor(np.diff(indptr)),
        dst_degree=tensor(topology.degree(destinations)),
        src_original=tensor(topology.original_id[routes.vertices]),
        src_degree=tensor(topology.degree(routes.vertices)),
        local=(tensor(local), tensor(self_rows[local])),
        weight=weight_of_draws,
        weights=weights,
    )
