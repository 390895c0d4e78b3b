"""LABOR's estimates on average over the sources' random numbers, by enumeration.

A number is a bijection of the source's name, so that names can be made for any numbers: the sampler itself then draws
every outcome that there is.
"""

import math
from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import labor_0, labor_i
from leapmpi.sampling.source_numbers import law_of, source_number
from tests.support.kinds import KEY

pytestmark = pytest.mark.compiles

_WORD = 1 << 64
VERTICES, FANOUT = 6, 2


@pytest.fixture(scope="module")
def topology():
    rows = [[1, 2, 3, 4, 5], [0, 2, 3], [1, 3, 4, 5], [2, 4], [5], [0, 1, 3, 4]]
    indptr = np.cumsum([0, *map(len, rows)])
    return Topology(indptr, np.concatenate(rows).astype(np.int32), np.arange(VERTICES))


def backwards(number: int, shift: int) -> int:
    """The x for which x ^ (x >> shift) is `number`."""
    x = number
    for _ in range(64 // shift):
        x = number ^ (x >> shift)
    return x


def name_of(number: int, hashed: int) -> np.int64:
    """The name whose number is `number` (SplitMix64, backwards)."""
    x = backwards(number, 31) * pow(0x94D049BB133111EB, -1, _WORD) % _WORD
    x = backwards(x, 27) * pow(0xBF58476D1CE4E5B9, -1, _WORD) % _WORD
    x = (backwards(x, 30) - hashed) * pow(0x9E3779B97F4A7C15, -1, _WORD) % _WORD
    return np.uint64((x - 1) % _WORD).astype(np.int64)


class Numbered:
    """A sampler of one hop, and what all vertices draw when sources have given numbers."""

    def __init__(self, module, topology, **options) -> None:
        self.sampler = module.MEMBER.build(
            Setup(topology, (FANOUT,), np.arange(VERTICES), 7), module.Options(**options)
        )
        self.graph, chosen = topology, self.sampler.options
        self.law = law_of(KEY, 0, chosen.same_in_layers, chosen.kept_batches)
        self.degree = topology.degree(np.arange(VERTICES))
        self.sampler.begin(KEY, np.arange(VERTICES))

    def draw(self, numbers):
        """The edges, as destinations, sources and weights, when source t has the number numbers[t] in [0, 1)."""
        words = [int(number * _WORD) for number in numbers]
        names = np.array([name_of(word, int(self.law.hashed)) for word in words])
        assert [int(source_number(self.law, name)) for name in names] == words
        self.sampler.topology = replace(self.graph, original_id=names)
        drawn = self.sampler.draw(KEY, 0, np.arange(VERTICES), names, self.degree)
        rows = np.repeat(np.arange(VERTICES), np.diff(drawn.indptr))
        return rows, drawn.neighbours, None if drawn.weight is None else drawn.weight.astype(float)

    def outcomes(self, chance_of_edges):
        """Every set of edges that independent uniform numbers can lead to, and its chance.

        chance_of_edges: {source: the numbers below which its edges are kept}. Between two of them nothing changes.
        """
        intervals = []
        for source in range(VERTICES):
            cuts = sorted({0.0, 1.0, *chance_of_edges.get(source, ())})
            intervals.append([((a + b) / 2, b - a) for a, b in pairwise(cuts)])
        for chosen in product(*intervals):
            yield self.draw([middle for middle, _ in chosen]), math.prod(length for _, length in chosen)


def true_means(topology, values):
    rows = np.split(topology.indices, topology.indptr[1:-1])
    return np.array([values[row].mean() for row in rows])


def means(edges, values):
    """The plain mean over what each vertex drew, 0 where it drew nothing."""
    rows, sources, _ = edges
    count = np.bincount(rows, minlength=VERTICES)
    return np.bincount(rows, values[sources], VERTICES) / np.maximum(1, count)


def test_means_of_labor_0_are_unbiased(topology):
    """What is drawn depends on the order of the numbers alone; all orders are equally likely."""
    sampler, values, total = Numbered(labor_0, topology), np.random.default_rng(1).normal(size=VERTICES), 0.0
    for order in permutations(range(VERTICES)):
        total = total + means(sampler.draw((np.array(order) + 0.5) / VERTICES), values)
    np.testing.assert_allclose(total / math.factorial(VERTICES), true_means(topology, values), rtol=1e-12)


def test_means_of_labor_0_of_varying_size_are_unbiased_but_for_empty_draws(topology):
    sampler, values = Numbered(labor_0, topology, fixed_size=False), np.random.default_rng(2).normal(size=VERTICES)
    kept = np.minimum(1, FANOUT / sampler.degree)
    cuts = {
        u: [kept[v] for v in range(VERTICES) if u in topology.indices[topology.indptr[v] : topology.indptr[v + 1]]]
        for u in range(VERTICES)
    }
    found, chances = 0.0, 0.0
    for edges, chance in sampler.outcomes(cuts):
        found, chances = found + chance * means(edges, values), chances + chance
    assert chances == pytest.approx(1)
    empty = (1 - kept) ** sampler.degree
    assert (empty <= math.exp(-FANOUT)).all()
    assert empty.max() > 0
    np.testing.assert_allclose(found, true_means(topology, values) * (1 - empty), rtol=1e-12)


@pytest.mark.parametrize("rounds", [0, 2])
def test_sums_of_labor_i_are_unbiased(rounds, topology):
    sampler = Numbered(labor_i, topology, rounds=rounds, row_normalise=False)
    values, total = np.random.default_rng(3).normal(size=VERTICES), np.zeros(VERTICES)
    rows, sources, weights = sampler.draw(np.zeros(VERTICES))
    assert len(rows) == topology.edges  # all numbers are 0: the weights tell every edge's chance
    spread = np.bincount(rows, weights)  # as much as the variance of a mean of uniform draws asks for
    np.testing.assert_allclose(spread, sampler.degree * np.maximum(1, sampler.degree / FANOUT), rtol=1e-5)
    cuts = {u: 1 / weights[sources == u] for u in range(VERTICES)}
    chances = 0.0
    for (dst, src, weight), chance in sampler.outcomes(cuts):
        total += chance * np.bincount(dst, weight * values[src], VERTICES)
        chances += chance
    assert chances == pytest.approx(1)
    np.testing.assert_allclose(total, true_means(topology, values) * sampler.degree, rtol=1e-5, atol=1e-6)
    assert len({len(cut) for cut in map(set, cuts.values())}) > 1 or rounds == 0
