"""Scores of pairs of vertices by a run of a task on edges, and the best partners of vertices.

Embeddings stay where they were computed. Those of some sources at a time go to all ranks, and each rank scores the
pairs whose destination it owns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from leapmpi.errors import DataError
from leapmpi.exchange.context import RankContext
from leapmpi.inference.output.delivery import places_of
from leapmpi.nn.scorer import Scorer, relations_for
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard

_PAIRS_AT_ONCE = 1 << 16
_SOURCES_AT_ONCE, _SCORES_AT_ONCE = 256, 1 << 24
_KIND = "embeddings"


@dataclass(frozen=True)
class Ends:
    """Vertices that pairs name, as one rank sees them.

    ids: int64[k], their ids in the dataset, in the order in which they were named. own: int64, ascending, those of this
    rank, each once.
    """

    ids: np.ndarray
    own: np.ndarray


@dataclass(frozen=True)
class Partners:
    """The best partners of vertices, best first: original ids int64[k, n], -1 for none, and float32[k, n]."""

    ids: np.ndarray
    scores: np.ndarray


def find_ends(ctx: RankContext, own: np.ndarray, wanted: np.ndarray, where: str) -> Ends:
    """Find the vertices with the original ids `wanted` (int64[k]). Collective.

    own: int64, the original ids of this rank's vertices. Raises DataError, on all ranks alike, naming the row of
    `where` with a vertex that the graph lacks.
    """
    chosen, places = places_of(own, wanted)
    mine = chosen + ctx.local_range[0]
    pieces = np.stack([places, mine], axis=1).astype(np.int64)
    counts = ctx.communicator.all_gather_rows(np.array([len(pieces)])).reshape(-1)
    found = ctx.communicator.all_gather_pieces(pieces, counts, "ids")
    ids = np.full(len(wanted), -1, np.int64)
    ids[found[:, 0]] = found[:, 1]
    if (missing := np.flatnonzero(ids < 0)).size:
        row = int(missing[0])
        error = DataError(
            f"{where}: entry {row} names vertex {wanted[row]}, which the graph does not have ({len(missing):,} such "
            "entries); give names of vertices, or original ids, which count the rows of the source"
        )
        # All ranks hold the same gathered ids, and so raise this in step.
        error.agreed = True
        raise error
    return Ends(ids, np.unique(mine))


def pair_scores(
    ctx: RankContext, pairs: np.ndarray, own: np.ndarray, embeddings: np.ndarray, relation: int | None = None
) -> np.ndarray:
    """Score `pairs` (int64[k, 2], ids in the dataset, the same on all ranks), on all ranks. Collective.

    own: int64, ascending, those of their ends that this rank owns; embeddings: float[len(own), D]; relation: that of
    typed pairs. Returns float32[k], or float32[k, classes] where the task scores classes.
    """
    scorer, held = ctx.model.scorer, torch.from_numpy(embeddings)
    assert scorer is not None, "a model of a task on edges has one"
    # Without pairs the result still needs the columns that answers have.
    nothing = scorer(held[:0], held[:0], *_relations(scorer, relation, 0)).detach()
    found = [ctx.task.answer(nothing).numpy().astype(np.float32)]
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        chunk = pairs[first : first + _PAIRS_AT_ONCE]
        distinct, inverse = np.unique(chunk[:, 0], return_inverse=True)
        sources = _to_all(ctx, distinct, own, embeddings)
        home = home_of(chunk[:, 1], ctx.rank_offsets)
        mine = np.flatnonzero(home == ctx.rank)
        places = np.searchsorted(own, chunk[mine, 1])
        with torch.no_grad():
            ends = sources[torch.from_numpy(inverse[mine])], held[torch.from_numpy(places)]
            scores = scorer(*ends, *_relations(scorer, relation, len(mine)))
            scores = ctx.task.answer(scores).numpy().astype(np.float32)

        # Each rank has scored some; all get all, in the order of the pairs.
        order = np.argsort(home, kind="stable")
        arrived = ctx.communicator.all_gather_pieces(scores, np.bincount(home, minlength=ctx.ranks), _KIND)
        whole = np.empty_like(arrived)
        whole[order] = arrived
        found.append(whole)
    return np.concatenate(found)


def best_partners(
    ctx: RankContext,
    shard: TopologyShard,
    vertices: np.ndarray,
    embeddings: np.ndarray,
    top: int,
    relation: int | None = None,
) -> Partners:
    """Find the `top` vertices that each of `vertices` (int64[k], ids in the dataset) most likely has an edge to.

    Neither the vertex itself nor a vertex that it has an edge to counts, in a typed graph an edge of `relation`; there
    partners have the type that the relation leads to. embeddings: float[n, D], of this rank's vertices. Collective; the
    result is the same on all ranks.
    """
    known, first_own = _known_edges(shard, np.unique(vertices), relation), ctx.local_range[0]
    passed = _of_other_types(ctx, shard, relation)
    own = np.arange(*ctx.local_range)
    found = [(np.empty((0, top), np.int64), np.empty((0, top), np.float32))]
    for first in range(0, len(vertices), _SOURCES_AT_ONCE):
        chunk = vertices[first : first + _SOURCES_AT_ONCE]
        distinct, inverse = np.unique(chunk, return_inverse=True)
        sources = _to_all(ctx, distinct, own, embeddings)
        ids, scores = _best_here(ctx, sources, distinct, known, embeddings, top, relation, passed)
        names = np.where(ids >= 0, shard.own.original_id[np.maximum(ids - first_own, 0)], -1) if len(own) else ids

        # The best of all ranks: equal scores by ascending original id.
        counts = np.full(ctx.ranks, len(distinct))
        names, scores = (ctx.communicator.all_gather_pieces(each, counts, _KIND) for each in (names, scores))
        wide = [np.concatenate(np.split(each, ctx.ranks), axis=1) for each in (names, scores)]
        order = np.lexsort((wide[0], -wide[1]), axis=1)[:, :top]
        best = [np.take_along_axis(each, order, axis=1)[inverse] for each in wide]
        found.append((best[0], best[1]))
    return Partners(np.concatenate([ids for ids, _ in found]), np.concatenate([scores for _, scores in found]))


def _relations(scorer: Scorer, relation: int | None, count: int) -> list[torch.Tensor]:
    """Return the argument of `scorer` for `count` pairs of `relation`, if it takes one."""
    return relations_for(scorer, None if relation is None else np.full(count, relation), torch.device("cpu"))


def _of_other_types(ctx: RankContext, shard: TopologyShard, relation: int | None) -> torch.Tensor | None:
    """Return bool[own vertices], those that `relation` does not lead to; None in a plain graph."""
    types = ctx.sampler.types
    if types is None or relation is None:
        return None
    own = shard.own.original_id[: shard.end - shard.first]
    return torch.from_numpy(types.of_original(own) != types.ends[relation, 1])


def _best_here(
    ctx: RankContext,
    sources: torch.Tensor,
    ids: np.ndarray,
    known: np.ndarray,
    embeddings: np.ndarray,
    top: int,
    relation: int | None,
    passed: torch.Tensor | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best of this rank's vertices for each of `sources`: ids int64[k, top], -1 for none, and scores.

    ids: int64[k] ascending, those of the sources. known: int64[e, 2], edges that do not count, by source. passed:
    bool[own vertices], those that are no partners.
    """
    scorer, first_own = ctx.model.scorer, ctx.local_range[0]
    assert scorer is not None, "a model of a task on edges has one"
    best = torch.full((len(ids), top), -torch.inf), torch.full((len(ids), top), -1, dtype=torch.int64)
    step = max(1, _SCORES_AT_ONCE // max(1, len(ids)))
    # Known edges are sorted by source, so those of these sources are cut out before the exact test.
    low, high = np.searchsorted(known[:, 0], [ids[0], ids[-1] + 1]) if len(ids) else (0, 0)
    edges = known[low:high]
    edges = edges[np.isin(edges[:, 0], ids)]
    for start in range(0, len(embeddings), step):
        end = min(start + step, len(embeddings))
        with torch.no_grad():
            rows = torch.from_numpy(embeddings[start:end])
            scores = scorer.all_pairs(sources, rows, *_relations(scorer, relation, len(ids))).float()
        if passed is not None:
            scores[:, passed[start:end]] = -torch.inf
        # Edges that the graph has, and a vertex with itself, are not predictions.
        here = edges[(edges[:, 1] >= first_own + start) & (edges[:, 1] < first_own + end)]
        scores[np.searchsorted(ids, here[:, 0]), here[:, 1] - first_own - start] = -torch.inf
        itself = (ids >= first_own + start) & (ids < first_own + end)
        scores[np.flatnonzero(itself), ids[itself] - first_own - start] = -torch.inf
        # Only the best so far and this step's scores are held: memory does not grow with the graph.
        numbers = torch.arange(first_own + start, first_own + end).expand(len(ids), -1)
        every = torch.cat([best[0], scores], dim=1), torch.cat([best[1], numbers], dim=1)
        chosen = every[0].topk(top, dim=1)
        best = chosen.values, every[1].gather(1, chosen.indices)
    ids_of_best = torch.where(best[0] > -torch.inf, best[1], -1)
    return ids_of_best.numpy(), best[0].numpy()


def _known_edges(shard: TopologyShard, sources: np.ndarray, relation: int | None) -> np.ndarray:
    """Return int64[e, 2]: the edges from `sources` (int64[k] ascending) to this rank's vertices, by source. Local.

    Only those of `relation`, if it is given.
    """
    found = [np.empty((0, 2), np.int64)]
    count = shard.end - shard.first
    # In pieces: the ids of all edges of a rank at once would take several times the memory of its lists.
    for low, high in pairwise([*range(0, count, _PAIRS_AT_ONCE), count]):
        indptr = shard.own.indptr[low : high + 1].astype(np.int64)
        ids = shard.ids_of(shard.own.indices[indptr[0] : indptr[-1]])
        ends = np.repeat(np.arange(shard.first + low, shard.first + high), np.diff(indptr))
        chosen = np.isin(ids, sources)
        if relation is not None and shard.own.relation is not None:
            chosen &= shard.own.relation[indptr[0] : indptr[-1]] == relation
        found.append(np.stack([ids[chosen], ends[chosen]], axis=1))
    edges = np.concatenate(found)
    return edges[np.argsort(edges[:, 0], kind="stable")]


def _to_all(ctx: RankContext, distinct: np.ndarray, own: np.ndarray, embeddings: np.ndarray) -> torch.Tensor:
    """Return the embeddings of `distinct` (int64[k] ascending), whichever rank owns them: float[k, D]. Collective."""
    home = home_of(distinct, ctx.rank_offsets)
    rows = embeddings[np.searchsorted(own, distinct[home == ctx.rank])]
    counts = np.bincount(home, minlength=ctx.ranks)
    return torch.from_numpy(ctx.communicator.all_gather_pieces(np.ascontiguousarray(rows), counts, _KIND))


def flat_partners(vertices: np.ndarray, partners: Partners) -> tuple[np.ndarray, np.ndarray]:
    """Return original ids int64[m, 2] of each of `vertices` (int64[k]) with each of its partners, and float32[m]."""
    there = partners.ids >= 0
    sources = np.repeat(vertices, there.sum(axis=1))
    return np.stack([sources, partners.ids[there]], axis=1), partners.scores[there]
