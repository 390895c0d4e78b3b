"""Weighted sums over what is drawn, on average over all that can be drawn, are the sums over all in-neighbours."""

from itertools import product

import numpy as np
import pytest

from leapmpi.sampling.column_norms import ByNorm, column_norms
from leapmpi.sampling.keys import DrawKey
from leapmpi.sampling.layer_tables import TableSampler
from leapmpi.sampling.samplers.ladies import chance_scale
from tests.sampling import twin
from tests.sampling.kinds import KEY, make


@pytest.fixture(scope="module")
def topology():
    return twin.random_topology(8, 30, seed=5)


def sums(block, values: np.ndarray) -> np.ndarray:
    """The weighted sum of `values` (float64[n]) over the edges of each destination."""
    weight = np.ones(block.edges) if block.weight is None else block.weight.astype(np.float64)
    terms = weight * values[block.src[block.indices]]
    return np.array([terms[a:b].sum() for a, b in zip(block.indptr, block.indptr[1:], strict=False)])


def true_sums(topology, values):
    return np.array(
        [values[topology.indices[a:b]].sum() for a, b in zip(topology.indptr, topology.indptr[1:], strict=False)]
    )


class Fixed(TableSampler):
    """A sampler whose table is given: what remains of a layer-wise sampler once it has drawn."""

    def begin(self, key, batch):
        pass


def expected_sums(topology, tables_and_chances, values) -> np.ndarray:
    """The mean over tables, by their chances, of what all vertices sum up."""
    sampler = make("fast-gcn, unbiased", topology, (1,))
    sampler.begin = lambda key, batch: None
    total = np.zeros(topology.vertices)
    for table, chance in tables_and_chances:
        sampler._tables = [table]
        (block,) = sampler.sample(KEY, np.arange(topology.vertices))
        total += chance * sums(block, values)
    return total


def test_fast_gcn_by_enumeration(topology):
    importance, size = ByNorm(topology), 3
    q = importance.norms / importance.total
    values = np.random.default_rng(0).normal(size=8)
    outcomes = []
    for drawn in product(np.flatnonzero(q), repeat=size):
        table = np.zeros(8)
        np.add.at(table, list(drawn), 1 / (size * q[list(drawn)]))
        outcomes.append((table, q[list(drawn)].prod()))
    assert sum(chance for _, chance in outcomes) == pytest.approx(1)
    np.testing.assert_allclose(expected_sums(topology, outcomes, values), true_sums(topology, values), rtol=1e-6)


def test_fast_gcn_tables_are_those_of_its_draws(topology):
    sampler = make("fast-gcn, unbiased", topology, (1, 1))
    sampler.begin(KEY, np.arange(8))
    norms = column_norms(topology, np.arange(8), loops=True)
    times = sampler._tables[1] * norms * 30 / norms.sum()
    assert times.sum() == pytest.approx(30)
    assert np.abs(times - times.round()).max() < 1e-9
    counts = np.zeros(8)
    for iteration in range(200):
        sampler.begin(DrawKey(1, 0, 0, iteration), np.arange(8))
        counts += (sampler._tables[0] * norms * 30 / norms.sum()).round()
    expected = 6000 * norms / norms.sum()
    drawn = expected > 0
    assert ((counts - expected)[drawn] ** 2 / expected[drawn]).sum() < 24.3  # at most 7 degrees of freedom, p = 0.001


def test_column_norms_are_those_of_the_matrix(topology):
    matrix = np.zeros((8, 8))
    for v in range(8):
        row = topology.indices[topology.indptr[v] : topology.indptr[v + 1]]
        matrix[v, row] = 1 / max(1, len(row))
    looped = (matrix > 0) + np.eye(8)
    looped /= looped.sum(1, keepdims=True)
    found = column_norms(topology, np.arange(8), loops=True)
    np.testing.assert_allclose(found / 2.0**40, (looped**2).sum(0), rtol=1e-9, atol=1e-11)
    for rows in (np.arange(8), np.array([2, 5])):
        norms = column_norms(topology, rows)
        np.testing.assert_allclose(norms / 2.0**40, (matrix[rows] ** 2).sum(0), rtol=1e-9, atol=1e-11)


def test_ladies_by_enumeration(topology):
    frontier, size = np.array([0, 3, 4]), 3
    norms = column_norms(topology, frontier)
    candidates = np.flatnonzero(norms)
    chance = np.minimum(1, chance_scale(norms[candidates].astype(float), size) * norms[candidates])
    assert chance.sum() == pytest.approx(size)
    values, outcomes = np.random.default_rng(1).normal(size=8), []
    for kept in product((False, True), repeat=len(candidates)):
        table, kept = np.zeros(8), np.array(kept)
        table[candidates[kept]] = 1 / chance[kept]
        outcomes.append((table, np.where(kept, chance, 1 - chance).prod()))
    found = expected_sums(topology, outcomes, values)[frontier]
    np.testing.assert_allclose(found, true_sums(topology, values)[frontier], rtol=1e-6)


def test_ladies_keeps_each_candidate_as_often_as_its_weight_says(topology):
    big = twin.random_topology(60, 1200, seed=2, hubs=2.0)
    sampler, roots = make("ladies, unbiased", big, (1, 1)), np.arange(0, 60, 5)
    kept, weights = np.zeros(60), np.zeros(60)
    for iteration in range(1500):
        sampler.begin(DrawKey(1, 0, 0, iteration), roots)
        kept += sampler._tables[0] > 0
        weights = np.maximum(weights, sampler._tables[0])
    chance = 1 / weights[weights > 0]
    assert (np.abs(kept[weights > 0] / 1500 - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / 1500) + 1e-12).all()


def unbiased_over_iterations(kind, topology, fanout, times, spread=4.5):
    """Assert that the mean over iterations of weighted sums lies within `spread` standard errors of the sums."""
    values, roots = np.random.default_rng(2).normal(size=topology.vertices), np.arange(topology.vertices)
    sampler, found = make(kind, topology, (fanout,)), []
    for iteration in range(times):
        (block,) = sampler.sample(DrawKey(1, 0, 0, iteration), roots)
        found.append(sums(block, values))
    error = np.std(found, axis=0) / np.sqrt(times)
    assert (np.abs(np.mean(found, axis=0) - true_sums(topology, values)) <= spread * error + 1e-6).all()
    assert error.max() > 0


@pytest.mark.parametrize(("kind", "fanout"), [("labor-i, unbiased", 3), ("weighted, unbiased", 3)])
def test_weights_are_one_over_the_chance(kind, fanout):
    unbiased_over_iterations(kind, twin.random_topology(25, 220, seed=3, hubs=2.0), fanout, 1200)


@pytest.mark.parametrize("draws", [2, 3])
def test_graph_saint_by_enumeration(draws, topology):
    """With the counts of all subgraphs that can be drawn, sums and loss are exact on average over these."""
    sampler = make("graph-saint, vertices", topology, (1,))
    sampler.vertex_count[:], sampler.edge_count[:], sampler.subgraphs = 0, 0, 0
    outcomes = [np.array(drawn) for drawn in product(range(8), repeat=draws)]
    sampler.count(outcomes)
    values, losses = np.random.default_rng(3).normal(size=8), np.random.default_rng(4).normal(size=8)
    total, seen, loss = np.zeros(8), np.zeros(8), 0.0
    for number, drawn in enumerate(outcomes):
        sampler.subgraph = lambda key, drawn=drawn: drawn
        key, members = DrawKey(1, 0, 0, number), np.unique(drawn)
        (block,) = sampler.sample(key, members)
        total[members] += sums(block, values)
        seen[members] += 1
        loss += (sampler.root_weights(key, members, len(members)) * losses[members]).sum()
    np.testing.assert_allclose(total / seen, true_sums(topology, values), rtol=1e-5)
    assert loss / len(outcomes) == pytest.approx(losses.mean())


@pytest.mark.parametrize("kind", ["labor-i", "weighted", "fast-gcn", "ladies"])
def test_normalised_rows_add_up_to_the_degree(kind):
    topology = twin.random_topology(60, 900, seed=3)
    for block in make(kind, topology, (4, 3)).sample(KEY, np.arange(0, 60, 4)):
        drawn = np.diff(block.indptr) > 0
        np.testing.assert_allclose(sums(block, np.ones(60))[drawn], block.src_degree[: block.n_dst][drawn], rtol=1e-5)
