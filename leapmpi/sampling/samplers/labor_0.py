"""Sampler `labor-0`: destinations share their sources' random numbers, so that they tend to draw the same neighbours.

Balin and Catalyurek, "Layer-neighbor sampling - defusing neighborhood explosion in GNNs" (NeurIPS 2023), section 3.2
with no importance rounds. Each source t has one random number r_t per iteration and hop, the same for all destinations
on all ranks. With `fixed-size`, as in the paper's sequential Poisson variant, a destination takes the fan-out
in-neighbours with the smallest numbers. That is a uniform subset, so its plain mean is unbiased. Without, it takes
every t with r_t < fan-out / degree: as many as the fan-out in expectation. The mean over these is unbiased, except that
with a chance of at most exp(-fan-out) there are none, and it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.hop_sampler import ALL, HopSampler, capped_indptr
from leapmpi.sampling.relation_lists import RELATION_MASK
from leapmpi.sampling.sampler import NAMED_LISTS, Drawn, Setup
from leapmpi.sampling.source_numbers import law_of, source_number
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled

_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for labor-0."""

    fixed_size: bool = setting(True, "exactly fan-out neighbours, or as many on average")
    same_in_layers: bool = setting(False, "a source has one number for all hops of an iteration")
    kept_batches: int = setting(1, "consecutive batches for which a source keeps its number (kappa)", least=1)


@compiled
def _sift_down(numbers, positions, count):
    """Restore the heap, largest number first, after its first entry was replaced."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            return
        if child + 1 < count and numbers[child + 1] > numbers[child]:
            child += 1
        if numbers[i] >= numbers[child]:
            return
        numbers[i], numbers[child] = numbers[child], numbers[i]
        positions[i], positions[child] = positions[child], positions[i]
        i = child


@compiled
def _sift_up(numbers, positions, i):
    """Restore the heap after entry `i` was appended."""
    while i > 0:
        parent = (i - 1) // 2
        if numbers[parent] >= numbers[i]:
            return
        numbers[i], numbers[parent] = numbers[parent], numbers[i]
        positions[i], positions[parent] = positions[parent], positions[i]
        i = parent


@compiled
def _draw_smallest(first, end, law, vertices, relation, degree, indptr, topology_indptr, topology_indices, names, out):
    """Write the neighbours with the smallest numbers, ascending by position, for destinations first..end-1."""
    numbers = np.empty(0, np.uint64)
    for i in range(first, end):
        # `drawn` holds positions in the list of in-neighbours until the last lines replace them.
        drawn, start, of_relation = out[indptr[i] : indptr[i + 1]], topology_indptr[vertices[i]], relation[i]
        taken = len(drawn)
        if taken == degree[i]:
            for j in range(taken):
                drawn[j] = topology_indices[start + j]
            continue

        # Keep the smallest numbers in a heap, the largest of them first.
        if len(numbers) < taken:
            numbers = np.empty(2 * taken, np.uint64)
        for j in range(degree[i]):
            number = source_number(law, names[topology_indices[start + j]] | of_relation)
            if j < taken:
                numbers[j], drawn[j] = number, j
                _sift_up(numbers, drawn, j)
            elif number < numbers[0]:
                numbers[0], drawn[0] = number, j
                _sift_down(numbers, drawn, taken)

        drawn.sort()
        for j in range(taken):
            drawn[j] = topology_indices[start + drawn[j]]


@compiled
def _pick_below(
    first, end, law, vertices, relation, degree, fanout, topology_indptr, topology_indices, names, indptr, out, _
):
    """Take every neighbour with a number below fan-out / degree; see HopSampler.count_and_write. No weights."""
    counting = len(out) == 0
    for i in range(first, end):
        start, taken, of_relation, takes_all = topology_indptr[vertices[i]], 0, relation[i], fanout[i] >= degree[i]
        limit = _MOST // np.uint64(max(1, degree[i])) * np.uint64(min(fanout[i], degree[i]))
        for e in range(start, start + degree[i]):
            if takes_all or source_number(law, names[topology_indices[e]] | of_relation) < limit:
                if not counting:
                    out[indptr[i] + taken] = topology_indices[e]
                taken += 1
        if counting:
            indptr[i + 1] = taken


class Labor0(HopSampler):
    """Local sampler: a source's number depends only on its original id and the key."""

    leaves_edges_out = True
    draws_from_copies = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        self.options = options

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        options, fanout, topology = self.options, self.fanout(hop), self.topology
        law = law_of(key, hop, options.same_in_layers, options.kept_batches)
        graph = topology.indptr, topology.indices, topology.original_id
        # A source has a number per relation.
        relation = np.zeros_like(original) if topology.relation is None else original & RELATION_MASK

        # The number of edges is known: take the smallest numbers.
        if options.fixed_size or (isinstance(fanout, int) and fanout == ALL):
            indptr = capped_indptr(degree, fanout)
            out = np.empty(indptr[-1], np.int64)
            lists = vertices, relation, degree, indptr
            self.share_work(degree, lambda a, b: _draw_smallest(a, b, law, *lists, *graph, out))
            return Drawn(indptr, out)

        # The number of edges is random: count, then write.
        limit = np.full(len(degree), fanout, np.int64)
        drawn = self.count_and_write(_pick_below, degree, law, vertices, relation, degree, limit, *graph)
        return Drawn(drawn.indptr, drawn.neighbours)


MEMBER = SamplerMember(Labor0, Options, sharded=NAMED_LISTS, typed=True)
