"""`random-walk`: the fan-out vertices that short random walks from a destination visit most often.

Ying et al., "Graph convolutional neural networks for web-scale recommender systems" (PinSAGE, KDD 2018), section 3.1.
`walks` walks take up to `steps` steps to uniform in-neighbours, and after each step end with chance `stop`. Visits to
all vertices but the start are counted; of equal counts the smaller original id comes first. Edges connect a destination
with the most visited vertices, in-neighbours or not, and their weights are proportional to visits: means are means over
visits. They do not estimate the mean over in-neighbours, but over a neighbourhood weighted by importance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.setting import setting
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled

_LARGEST_WORD = 2**64 - 1


@dataclass(frozen=True)
class Options:
    walks: int = setting(50, "walks from each destination", least=1, below=1001)
    steps: int = setting(2, "steps of a walk at most", least=1, below=101)
    stop: float = setting(0.5, "chance that a walk ends after a step", least=0, below=1)


@compiled
def _count_visit(name, vertex, count, names, seen, visits):
    """Count a visit in the first `count` entries, which are in order of names; returns how many there are now."""
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
    """Count visits of the walks from `start` to other vertices; returns the number of vertices visited."""
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
def _draw(
    first, end, hashed, vertices, original, degree, walks, steps, stop,
    topology_indptr, topology_indices, original_id, counts, out, weight,
):  # fmt: skip
    """Write what destinations first..end-1 draw to their rows of `out` (int64[n, most]) and `weight`."""
    most = out.shape[1]
    names, seen = np.empty(walks * steps, np.int64), np.empty(walks * steps, np.int64)
    visits = np.empty(walks * steps, np.int64)
    for i in range(first, end):
        base = fold(hashed, original[i])
        law = walks, steps, stop, topology_indptr, topology_indices, original_id
        count = _walk(base, vertices[i], *law, names, seen, visits)
        _drop_least(visits, count, most)

        # Weights of a row add up to its degree.
        total = 0
        for k in range(count):
            total += visits[k]
        for k in range(count):
            if visits[k] > 0:
                out[i, counts[i]] = seen[k]
                weight[i, counts[i]] = visits[k] * (degree[i] / total)
                counts[i] += 1


class RandomWalk(HopSampler):
    """Local."""

    weighted = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        self.options = options
        self.stop = np.uint64(int(options.stop * _LARGEST_WORD))
        """A walk ends after a step whose word is below."""

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        options, topology, fanout = self.options, self.topology, self.fanouts[hop]
        visited = options.walks * options.steps
        most = visited if fanout == ALL else min(fanout, visited)

        # A row of `most` entries for each destination, of which the first counts[i] are written.
        out, weight = np.empty((len(vertices), most), np.int64), np.empty((len(vertices), most), np.float32)
        counts, hashed = np.zeros(len(vertices), np.int64), np.uint64(fold(key_hash(key), hop))
        law = options.walks, options.steps, self.stop
        arrays = topology.indptr, topology.indices, topology.original_id, counts, out, weight
        cost = np.ones(len(vertices), np.int64)
        self.share_work(cost, lambda a, b: _draw(a, b, hashed, vertices, original, degree, *law, *arrays))
        kept = np.arange(most) < counts[:, None]
        return Drawn(indptr_of(counts), out[kept], weight[kept])


build = RandomWalk
