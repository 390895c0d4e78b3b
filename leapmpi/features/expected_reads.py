"""Expected reads of each row by a rank: by analysis where that holds, else counted in a dry run.

The analysis gives the chance of a vertex to be in an iteration (vertex-inclusion probability): Kaler et al.,
"Communication-efficient graph neural networks with probabilistic neighborhood expansion analysis and caching"
(SALIENT++, MLSys 2023), for the draws of this program. Roots are a uniform share of the training vertices, and each hop
draws for all vertices found so far, not only for those that the last hop added. The hops of one destination are exact;
draws of different destinations are taken as independent. It needs the lists of all vertices.

The dry run counts the iterations that read a vertex: Yang et al., "GNNLab: a factored system for sample-based GNN
training over GPUs" (EuroSys 2022), their PreSC, on random streams that training does not use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.features.access import AccessPattern
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator
    from leapmpi.features.shards.row_request import RowCache


class _DryRun(NamedTuple):
    """A dry run of about `iterations` iterations: several short epochs, or a part of a long one."""

    first_epoch: int
    iterations: int
    whole_epochs: bool


_PREDICTING = _DryRun(2, 16, False)
"""Rows look better than they are in the epochs that chose them; epoch 1 is that of `leapmpi plan`."""

_CHOOSING = _DryRun(18, 128, True)
"""After the epochs that predict. A few iterations would rank rows by chance."""


@compiled
def spread(indptr, first_edge, indices, included, fanout, drew, left_out):
    """Spread the chances by one hop, along the edges from `first_edge` on whose sources are `indices`.

    Edges may be given in pieces, in their order. indptr: int64[n + 1], the lists of all edges of n vertices;
    included: float64[n], the chance of each vertex to be a destination of this hop. Updates drew (float64[n]), the
    chance of each vertex to have drawn a given neighbour up to this hop. Adds to left_out[v] (float64[n]) the logarithm
    of the chance that no vertex has drawn v. A negative fan-out draws every neighbour.
    """
    end_edge = first_edge + len(indices)
    for u in range(len(included)):
        begin, end = indptr[u], indptr[u + 1]
        if included[u] <= 0 or begin == end:
            continue

        # A vertex that was not a destination before draws a given neighbour with the chance fan-out / degree.
        if begin >= first_edge:
            degree = end - begin
            share = 1.0 if fanout < 0 or fanout >= degree else fanout / degree
            drew[u] += (included[u] - drew[u]) * share
        missed = np.log1p(-drew[u]) if drew[u] < 1 else -np.inf
        for e in range(max(begin, first_edge), min(end, end_edge)):
            left_out[indices[e - first_edge]] += missed


def choose(access: AccessPattern, count: int) -> np.ndarray:
    """Choose the remote vertices that this rank reads most: int64, ascending, at most `count`.

    Vertices that are never read are left out; of equal ones the lower ids come first. Collective where draws are.
    """
    scores = read_scores(access)
    scores[access.local] = 0
    useful = np.flatnonzero(scores > 0)
    best = np.argsort(-scores[useful], kind="stable")[:count]
    return np.sort(useful[best])


def read_scores(access: AccessPattern) -> np.ndarray:
    """Score each vertex for the choice of rows to keep: float64[n], larger for those read more often."""
    return inclusion(access) if _analysed(access) else _counted_reads(access, _CHOOSING)


def expected_reads(access: AccessPattern) -> np.ndarray:
    """Estimate how often this rank will read each vertex: float64[n], in units that all ranks share.

    Never from the dry run that `read_scores` chooses by.
    """
    return inclusion(access) if _analysed(access) else _counted_reads(access, _PREDICTING)


def _analysed(access: AccessPattern) -> bool:
    """Return whether `inclusion` describes this rank's reads: node-wise ones from a whole topology."""
    return type(access.sampler.drawing) is NodeWiseSampler


def inclusion(access: AccessPattern) -> np.ndarray:
    """Compute the chance that this rank reads each vertex in an iteration: float64[n]. The topology is whole."""
    topology = access.topology
    assert isinstance(topology, Topology), "a sampler of a whole topology draws"
    return included(topology.indptr, topology.indices, access.chances(), access.sampler.fanouts)


def included(indptr: np.ndarray, indices: np.ndarray, roots: np.ndarray, fanouts: tuple[int, ...]) -> np.ndarray:
    """Compute the chance of each vertex to be in a sampled subgraph: float64[n].

    indptr, indices: in-neighbours of all vertices; roots: float64[n], the chance of each vertex to be a root; fanouts:
    from the root outward, -1 for all.
    """
    return reads_by_hops(roots, fanouts, partial(spread, indptr, 0, indices)).rows


class Reads(NamedTuple):
    """Chances that an iteration reads each list, and each row: float64[vertices]."""

    lists: np.ndarray
    rows: np.ndarray


READS_BYTES = 40
"""Most bytes for each vertex while `reads_by_hops` runs."""


def reads_by_hops(
    roots: np.ndarray, fanouts: tuple[int, ...], hop: Callable[[np.ndarray, int, np.ndarray, np.ndarray], None]
) -> Reads:
    """Compute the chance of each vertex to draw, and to be in a sampled subgraph at all.

    roots, fanouts: as in `included`; hop(included, fanout, drew, left_out): spreads the chances as `spread` does.
    """
    lists, chance, drew = roots, roots, np.zeros(len(roots))
    for fanout in fanouts:
        # A vertex draws at the last hop if it was reached before it. Chances of the hop before are freed first.
        lists, left_out = chance, np.negative(roots)
        with np.errstate(divide="ignore"):
            np.log1p(left_out, out=left_out)
        hop(chance, fanout, drew, left_out)
        chance = np.negative(np.expm1(left_out, out=left_out), out=left_out)
    return Reads(lists, chance)


def read_counts(access: AccessPattern, epoch: int = 0, most: int | None = None) -> np.ndarray:
    """Count the iterations of a dry run in which this rank read each vertex: float64[n].

    The dry run draws from epoch number `epoch` of its random streams. It ends after `most` iterations, or with the
    epoch.
    """
    counts = np.zeros(access.topology.vertices)
    for key, roots, batch in islice(access.dry_run(epoch), most):
        counts[access.sampler.sample(key, roots, batch)[-1].src] += 1
    return counts


def _counted_reads(access: AccessPattern, dry: _DryRun) -> np.ndarray:
    """Count the iterations of a dry run in which this rank read each vertex: float64[n]."""
    epochs = max(1, dry.iterations // max(1, access.iterations))
    reads = np.zeros(access.topology.vertices)
    for epoch in range(dry.first_epoch, dry.first_epoch + epochs):
        reads += read_counts(access, epoch, None if dry.whole_epochs else dry.iterations)
    return reads


def predicted_hits(access: AccessPattern, ids: np.ndarray) -> tuple[float, float]:
    """Predict how often this rank will read a vertex of `ids` (int64[k], remote), and any remote vertex.

    Both over one iteration where they are computed, or over the whole dry run: the same on every rank.
    """
    reads = expected_reads(access)
    reads[access.local] = 0
    return float(reads[ids].sum()), float(reads.sum())


def hottest_rows(
    access: AccessPattern, count: int, communicator: Communicator, cache: RowCache | None
) -> tuple[np.ndarray, float]:
    """Choose the `count` own vertices (int64, ascending) most read by all ranks; also return their share of reads.

    `cache` holds what this rank asks no other for. Of equal ones the lower ids come first. Collective.
    """
    scores = _of_all_ranks(read_scores(access), access, communicator, cache)
    chosen = np.sort(np.argsort(-scores, kind="stable")[:count])
    reads = _of_all_ranks(expected_reads(access), access, communicator, cache)
    total = float(reads.sum())
    return chosen + access.local.start, float(reads[chosen].sum()) / total if total else 1.0


def _of_all_ranks(
    scores: np.ndarray, access: AccessPattern, communicator: Communicator, cache: RowCache | None
) -> np.ndarray:
    """Sum all ranks' `scores` (float64[n]) of this rank's vertices: float64[own vertices]. Collective."""
    if cache is not None:
        scores[cache.ids] = 0
    return summed_by_owner(scores, access.rank_offsets, communicator)


def summed_by_owner(values: np.ndarray, rank_offsets: np.ndarray, communicator: Communicator) -> np.ndarray:
    """Sum all ranks' `values` (float64[n], by vertex) at the owners: float64[own vertices]. Collective.

    rank_offsets: int64[ranks + 1].
    """
    counts = np.diff(rank_offsets)
    own = int(counts[communicator.rank])
    received = np.empty(own * len(counts))
    communicator.exchange(np.asarray(values, np.float64), counts, received, np.full(len(counts), own), "control")
    return received.reshape(len(counts), own).sum(axis=0)
