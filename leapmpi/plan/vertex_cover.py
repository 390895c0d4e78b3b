"""The fewest rows and shares by which remote edges can be served: a minimum vertex cover of a bipartite graph.

Each remote edge needs one of its ends: the row of its source, or the share of its destination at the source's owner.
Vertices of degree one are taken care of first (Karp and Sipser, FOCS 1981): the other end of their edge is in some
minimum cover. What is left, the core, is solved exactly by augmenting paths (Hopcroft and Karp, SIAM J. Comput. 1973;
Koenig's theorem), or by the smaller side.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled

_UNMATCHED = -1


@compiled
def _take_other_end(vertex, indptr, ends, back, degree, covered, other_degree, other_covered, queue, tail, offset):
    """Add to the cover the other end of the one edge that `vertex` has left; return the new end of `queue`.

    Edges of the side of `vertex` are in (indptr, ends), those of the other in `back`. Vertices of the side of `vertex`
    that have one edge left then are queued, with `offset` added to their numbers.
    """
    back_indptr, back_ends = back
    for e in range(indptr[vertex], indptr[vertex + 1]):
        other = ends[e]
        # Only one end of the remaining edges is open; covered ones stay in the lists and are skipped.
        if not other_covered[other] and other_degree[other] > 0:
            other_covered[other] = True
            other_degree[other] = 0
            for k in range(back_indptr[other], back_indptr[other + 1]):
                neighbour = back_ends[k]
                if not covered[neighbour]:
                    degree[neighbour] -= 1
                    if degree[neighbour] == 1:
                        queue[tail] = offset + neighbour
                        tail += 1
            break
    return tail


@compiled
def _peel(indptr, sources, at_indptr, at_pairs, pair_degree, source_degree, pair_in, source_in, queue):
    """Update the cover by vertices of degree one. Vertices are numbered pairs first, then sources."""
    # The only edge of a vertex of degree one is covered at least as well by its other end, so taking that keeps an
    # optimum (Karp and Sipser, FOCS 1981). It may leave further vertices of degree one, which join the queue.
    pairs, head, tail = len(pair_in), 0, 0
    for p in range(pairs):
        if pair_degree[p] == 1 and not pair_in[p]:
            source = sources[indptr[p]]
            if source_degree[source] == 1:
                # With many owners most edges stand alone, and their rows need no queue.
                source_in[source] = True
                source_degree[source], pair_degree[p] = 0, 0
            else:
                queue[tail] = p
                tail += 1
    for s in range(len(source_in)):
        if source_degree[s] == 1 and not source_in[s]:
            queue[tail] = pairs + s
            tail += 1
    of_pairs, of_sources = (indptr, sources), (at_indptr, at_pairs)
    while head < tail:
        vertex = queue[head]
        head += 1
        if vertex < pairs:
            if pair_degree[vertex] == 1:
                sides = pair_degree, pair_in, source_degree, source_in
                tail = _take_other_end(vertex, indptr, sources, of_sources, *sides, queue, tail, 0)
        elif source_degree[vertex - pairs] == 1:
            sides = source_degree, source_in, pair_degree, pair_in
            tail = _take_other_end(vertex - pairs, at_indptr, at_pairs, of_pairs, *sides, queue, tail, pairs)


@compiled
def _by_source(indptr, sources, at_indptr, at_pairs):
    """List the edges by source; at_indptr int64[sources + 1] is zero at first."""
    for e in range(len(sources)):
        at_indptr[sources[e] + 1] += 1
    for s in range(len(at_indptr) - 1):
        at_indptr[s + 1] += at_indptr[s]
    place = at_indptr[:-1].copy()
    for p in range(len(indptr) - 1):
        for e in range(indptr[p], indptr[p + 1]):
            at_pairs[place[sources[e]]] = p
            place[sources[e]] += 1


@compiled
def _by_pair(of_pair, sources, place, sorted_sources):
    """List the sources of the edges by pair, stably; those of pair p from place[p] on."""
    for e in range(len(of_pair)):
        sorted_sources[place[of_pair[e]]] = sources[e]
        place[of_pair[e]] += 1


@compiled
def _match(indptr, sources, pair_open, source_open, pair_match, source_match):
    """Find a maximum matching of the open pairs and sources, into `pair_match` and `source_match`."""
    pairs = len(indptr) - 1
    distance, queue = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    place, stack = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    while True:
        # Layers of pairs by alternating paths from unmatched ones.
        head, tail, found = 0, 0, False
        for p in range(pairs):
            distance[p] = -1
            if pair_open[p] and pair_match[p] < 0:
                distance[p] = 0
                queue[tail] = p
                tail += 1
        while head < tail:
            p = queue[head]
            head += 1
            for e in range(indptr[p], indptr[p + 1]):
                s = sources[e]
                if not source_open[s]:
                    continue
                q = source_match[s]
                if q < 0:
                    found = True
                elif distance[q] < 0:
                    distance[q] = distance[p] + 1
                    queue[tail] = q
                    tail += 1
        if not found:
            return
        # Disjoint shortest augmenting paths, depth first without recursion.
        for p in range(pairs):
            place[p] = indptr[p]
        for root in range(pairs):
            if not pair_open[root] or pair_match[root] >= 0:
                continue
            depth, stack[0] = 0, root
            while depth >= 0:
                p = stack[depth]
                if place[p] == indptr[p + 1]:
                    distance[p] = -1
                    depth -= 1
                    continue
                s = sources[place[p]]
                place[p] += 1
                if not source_open[s]:
                    continue
                q = source_match[s]
                if q < 0:
                    # Flip the edges of the path.
                    while depth >= 0:
                        p = stack[depth]
                        s = sources[place[p] - 1]
                        pair_match[p], source_match[s] = s, p
                        depth -= 1
                elif distance[q] == distance[p] + 1:
                    depth += 1
                    stack[depth] = q


@compiled
def _koenig(indptr, sources, pair_open, source_open, pair_match, source_match, pair_in, source_in):
    """Add to the cover sources that alternating paths from unmatched pairs reach, and pairs they do not."""
    # Koenig's theorem: with a maximum matching, these sources and the pairs not reached are a minimum vertex cover.
    pairs = len(indptr) - 1
    reached, queue, head, tail = np.zeros(pairs, np.bool_), np.empty(pairs, np.int64), 0, 0
    for p in range(pairs):
        if pair_open[p] and pair_match[p] < 0:
            reached[p] = True
            queue[tail] = p
            tail += 1
    while head < tail:
        p = queue[head]
        head += 1
        for e in range(indptr[p], indptr[p + 1]):
            s = sources[e]
            if source_open[s] and not source_in[s]:
                source_in[s] = True
                q = source_match[s]
                if not reached[q]:
                    reached[q] = True
                    queue[tail] = q
                    tail += 1
    for p in range(pairs):
        if pair_open[p] and not reached[p]:
            pair_in[p] = True


def cover(
    indptr: np.ndarray,
    sources: np.ndarray,
    count: int,
    forced: np.ndarray | None = None,
    owners: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find a vertex cover: bool[pairs], served by a share, and bool[count], sources sent as rows.

    `sources` (int64[edges], below `count`) of pair p begin at indptr[p] (int64[pairs + 1]); it may name one twice.
    forced: bool[pairs], pairs that need a share whatever their edges. No cover has fewer members, unless `owners`
    (int64[pairs]) are given: then the smaller side of the core is taken for each owner, which is faster.
    """
    pairs = len(indptr) - 1
    pair_in = np.zeros(pairs, bool) if forced is None else forced.copy()
    source_in = np.zeros(count, bool)
    at_indptr, at_pairs = np.zeros(count + 1, np.int64), np.empty(len(sources), np.int64)
    _by_source(indptr, sources, at_indptr, at_pairs)

    # Degrees without the edges of pairs that are in anyway.
    pair_degree = np.where(pair_in, 0, np.diff(indptr))
    open_edges = np.repeat(~pair_in, np.diff(indptr))
    source_degree = np.bincount(sources[open_edges], minlength=count)
    queue = np.empty(2 * (pairs + count) + 1, np.int64)
    _peel(indptr, sources, at_indptr, at_pairs, pair_degree, source_degree, pair_in, source_in, queue)

    pair_open, source_open = (pair_degree > 0) & ~pair_in, (source_degree > 0) & ~source_in
    if not pair_open.any():
        return pair_in, source_in
    if owners is not None:
        # All edges of a source are of one owner.
        of_source = owners[at_pairs[np.minimum(at_indptr[:-1], len(at_pairs) - 1)]]
        size = int(owners.max()) + 1
        fewer_shares = np.bincount(owners[pair_open], minlength=size) <= np.bincount(
            of_source[source_open], minlength=size
        )
        return pair_in | (pair_open & fewer_shares[owners]), source_in | (source_open & ~fewer_shares[of_source])
    pair_match, source_match = np.full(pairs, _UNMATCHED, np.int64), np.full(count, _UNMATCHED, np.int64)
    _match(indptr, sources, pair_open, source_open, pair_match, source_match)
    _koenig(indptr, sources, pair_open, source_open, pair_match, source_match, pair_in, source_in)
    return pair_in, source_in


def cover_edges(
    of_pair: np.ndarray, sources: np.ndarray, count: int, forced: np.ndarray, owners: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find a `cover` of edges in any order: the two masks, and bool[edges], edges that a row serves and no share.

    of_pair: int64[edges], the pair of each edge; sources: int64[edges]; forced: bool[pairs].
    """
    indptr = np.concatenate(([0], np.cumsum(np.bincount(of_pair, minlength=len(forced)))))
    sorted_sources = np.empty_like(sources)
    _by_pair(of_pair, sources, indptr[:-1].copy(), sorted_sources)
    as_share, as_row = cover(indptr, sorted_sources, count, forced, owners)
    return as_share, as_row, ~as_share[of_pair]
