"""Sampler `random-walk`: the fan-out vertices visited most often by short random walks from a destination.

Ying et al., "Graph convolutional neural networks for web-scale recommender systems" (PinSAGE, KDD 2018), section 3.1.
`walks` walks take up to `steps` steps to uniform in-neighbours, and end after each step with chance `stop`. Visits to
all vertices but the start are counted; of equal counts the smaller original id comes first. Edges connect a destination
with the most visited vertices, in-neighbours or not. Their weights are proportional to visits, so means are means over
visits. They estimate the mean over a neighbourhood weighted by importance, not over in-neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.sampler import NAMED_LISTS, Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled

_LARGEST_WORD = 2**64 - 1


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for random-walk."""

    walks: int = setting(50, "walks from each destination", least=1, below=1001)
    steps: int = setting(2, "steps of a walk at most", least=1, below=101)
    stop: float = setting(0.5, "chance that a walk ends after a step", least=0, below=1)


@compiled
def _count_visit(name, vertex, count, names, seen, visits):
    """Count a visit in the first `count` entries, sorted by name; return their new number."""
    place = np.searchsorted(names[:count], name)
    if place < count and names[place] == name:
        visits[place] += 1
        return count
    for k in range(count, place, -1):
        names[k], seen[k], visits[k] = names[k - 1], seen[k - 1], visits[k - 1]
    names[place], seen[place], visits[place] = name, vertex, 1
    return count + 1


@compiled
def _walk(hashed, start, walks, steps, stop, topology_indptr, topology_indices, original_id, names, seen, visits):
    """Count visits of the walks from `start` to other vertices; return the number of vertices visited."""
    count = 0
    for walk in range(walks):
        word, here = fold(hashed, walk), start
        for step in range(steps):
            degree = topology_indptr[here + 1] - topology_indptr[here]
            if degree == 0:
                break
            here = np.int64(topology_indices[topology_indptr[here] + np.int64(bounded(fold(word, 2 * step), degree))])
            if here != start:
                count = _count_visit(original_id[here], here, count, names, seen, visits)
            if fold(word, 2 * step + 1) < stop:
                break
    return count


@compiled
def _drop_least(visits, count, most):
    """Zero all but the `most` largest of visits[:count]; of equal ones the first stay."""
    for _ in range(count - most):
        least = -1
        for k in range(count):
            if visits[k] > 0 and (least < 0 or visits[k] <= visits[least]):
                least = k
        visits[least] = 0


@compiled
def _write(i, count, degree, seen, visits, counts, out, weight):
    """Write the most visited ones of seen[:count] to row `i`; weights of a row add up to its degree."""
    _drop_least(visits, count, out.shape[1])
    total = 0
    for k in range(count):
        total += visits[k]
    for k in range(count):
        if visits[k] > 0:
            out[i, counts[i]] = seen[k]
            weight[i, counts[i]] = visits[k] * (degree / total)
            counts[i] += 1


@compiled
def _draw(
    first, end, hashed, vertices, original, degree, walks, steps, stop,
    topology_indptr, topology_indices, original_id, counts, out, weight,
):  # fmt: skip
    """Write the draws of destinations first..end-1 to their rows of `out` (int64[n, most]) and `weight`."""
    names, seen = np.empty(walks * steps, np.int64), np.empty(walks * steps, np.int64)
    visits = np.empty(walks * steps, np.int64)
    for i in range(first, end):
        base = fold(hashed, original[i])
        law = walks, steps, stop, topology_indptr, topology_indices, original_id
        count = _walk(base, vertices[i], *law, names, seen, visits)
        _write(i, count, degree[i], seen, visits, counts, out, weight)


@compiled
def _draw_visited(first, end, visited, visited_names, degree, counts, out, weight):
    """Write draws from known visits: ids int64[n, visits], -1 for none, and their original ids."""
    size = visited.shape[1]
    names, seen, visits = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(first, end):
        count = 0
        for k in range(size):
            if visited[i, k] >= 0:
                count = _count_visit(visited_names[i, k], visited[i, k], count, names, seen, visits)
        _write(i, count, degree[i], seen, visits, counts, out, weight)


class RandomWalk(HopSampler):
    """Local sampler."""

    weighted = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        self.options = options
        self.stop = np.uint64(int(options.stop * _LARGEST_WORD))
        """Threshold below which the word of a step ends a walk."""

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        options, topology = self.options, self.topology
        law = options.walks, options.steps, self.stop
        arrays = vertices, original, degree, *law, topology.indptr, topology.indices, topology.original_id
        hashed = self.hashed(key, hop)
        return self._most_visited(hop, len(vertices), lambda a, b, *rows: _draw(a, b, hashed, *arrays, *rows))

    def draw_visited(self, hop: int, visited: np.ndarray, names: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw for destinations whose walks visit `visited`, int64[n, walks x steps]; -1: no visit, or the start.

        names: int64[n, walks x steps], their original ids; degree: int64[n].
        """
        arrays = visited, names, degree
        return self._most_visited(hop, len(visited), lambda a, b, *rows: _draw_visited(a, b, *arrays, *rows))

    def hashed(self, key: DrawKey, hop: int) -> np.uint64:
        """Return the hash of all walks of a hop; those of a destination fold in its original id."""
        return np.uint64(fold(key_hash(key), hop))

    def _most_visited(self, hop: int, n: int, work: Callable[..., None]) -> Drawn:
        """Return the draws of `n` destinations found by work(first, end, counts, out, weight)."""
        fanout, visited = self.fanouts[hop], self.options.walks * self.options.steps
        most = visited if fanout == ALL else min(fanout, visited)

        # Each destination has a row of `most` entries; its first counts[i] are used.
        out, weight = np.empty((n, most), np.int64), np.empty((n, most), np.float32)
        counts = np.zeros(n, np.int64)
        self.share_work(np.ones(n, np.int64), lambda a, b: work(a, b, counts, out, weight))
        kept = np.arange(most) < counts[:, None]
        return Drawn(indptr_of(counts), out[kept], weight[kept])


MEMBER = SamplerMember(RandomWalk, Options, sharded=NAMED_LISTS)
