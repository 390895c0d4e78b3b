"""Weighted sums over what is drawn, on average over all that can be drawn, are the sums over all in-neighbours."""

from itertools import product

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.column_norms import ByNorm, column_norms
from leapmpi.sampling.inclusion import CountedInclusion
from leapmpi.sampling.layer_tables import TableSampler
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import graph_saint
from leapmpi.sampling.samplers.ladies import chance_scale
from leapmpi.system.counter_rng import DrawKey
from tests.support import twin
from tests.support.kinds import KEY, make

pytestmark = pytest.mark.compiles


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


def test_weights_of_weighted_draws_are_one_over_the_chance():
    unbiased_over_iterations("weighted, unbiased", twin.random_topology(25, 220, seed=3, hubs=2.0), 3, 800)


def with_lonely_vertex():
    """A graph of 7 vertices, edges one way or both, and an eighth without any."""
    graph = twin.random_topology(7, 20, seed=6)
    return Topology(np.append(graph.indptr, graph.indptr[-1]), graph.indices, np.append(graph.original_id, 10**6))


def saint_draws(draws: str, topology) -> list[tuple[list[int], float]]:
    """What one draw may hold, and its chance."""
    if draws == "node":
        norms = ByNorm(topology).norms
        return [([v], norms[v] / norms.sum()) for v in range(8)]
    rows = np.split(topology.indices, topology.indptr[1:-1])
    ends = [([v, u], len(rows[v])) for v in range(8) for u in (rows[v] if len(rows[v]) else [v])]
    return [(edge, 1 / (8 * max(1, count))) for edge, count in ends]


def saint_means(sampler, outcomes, values, losses):
    """Mean sums of each vertex over the subgraphs that hold it, and mean loss, over `outcomes` by their chances."""
    total, seen, loss = np.zeros(8), np.zeros(8), 0.0
    for number, (drawn, chance) in enumerate(outcomes):
        sampler.subgraph = lambda key, drawn=drawn: drawn
        key, members = DrawKey(1, 0, 0, number), np.unique(drawn)
        (block,) = sampler.sample(key, members)
        total[members] += chance * sums(block, values)
        seen[members] += chance
        loss += chance * (sampler.root_weights(key, members, len(members)) * losses[members]).sum()
    return total / seen, loss


def saint(topology, **options):
    return graph_saint.GraphSaint(Setup(topology, (1,), np.arange(8), 7), graph_saint.Options(**options))


@pytest.mark.parametrize(("draws", "size", "times"), [("node", 2, 2), ("node", 3, 3), ("edge", 4, 2), ("edge", 2, 1)])
def test_graph_saint_by_enumeration(draws, size, times):
    """Sums and loss are exact on average over all subgraphs that can be drawn."""
    topology = with_lonely_vertex()
    values, losses = np.random.default_rng(3).normal(size=8), np.random.default_rng(4).normal(size=8)
    outcomes = [
        (np.concatenate([held for held, _ in several]).astype(int), np.prod([chance for _, chance in several]))
        for several in product(saint_draws(draws, topology), repeat=times)
    ]
    assert sum(chance for _, chance in outcomes) == pytest.approx(1)
    found, loss = saint_means(saint(topology, draws=draws, size=size), outcomes, values, losses)
    np.testing.assert_allclose(found, true_sums(topology, values), rtol=1e-5)
    assert loss == pytest.approx(losses.mean())


def test_graph_saint_by_counts(topology):
    """With the counts of all subgraphs that there are, sums and loss are exact on average over these."""
    sampler = saint(topology, draws="walk", size=6)
    sampler.inclusion = CountedInclusion(topology)
    outcomes = [(np.array(drawn), 1 / 512) for drawn in product(range(8), repeat=3)]
    for drawn, _ in outcomes:
        sampler.inclusion.count(drawn)
    values, losses = np.random.default_rng(3).normal(size=8), np.random.default_rng(4).normal(size=8)
    found, loss = saint_means(sampler, outcomes, values, losses)
    np.testing.assert_allclose(found, true_sums(topology, values), rtol=1e-5)
    assert loss == pytest.approx(losses.mean())


@pytest.mark.parametrize("draws", ["node", "edge", "walk"])
def test_graph_saint_holds_each_vertex_as_often_as_it_reckons(draws):
    topology, times = with_lonely_vertex(), 1500
    sampler, held = saint(topology, draws=draws, size=4, walk_length=3, coverage=2000), np.zeros(8)
    for iteration in range(times):
        held[np.unique(sampler.subgraph(DrawKey(1, 0, 0, iteration)))] += 1
    chance = sampler.inclusion.chances(np.arange(8))
    # Counted chances vary too, which adds a third to the variance here.
    assert (np.abs(held / times - chance) <= 4.5 * np.sqrt(1.4 * chance * (1 - chance) / times)).all()


@pytest.mark.parametrize("kind", ["labor-i", "weighted", "fast-gcn", "ladies"])
def test_normalised_rows_add_up_to_the_degree(kind):
    topology = twin.random_topology(60, 900, seed=3)
    for block in make(kind, topology, (4, 3)).sample(KEY, np.arange(0, 60, 4)):
        drawn = np.diff(block.indptr) > 0
        np.testing.assert_allclose(sums(block, np.ones(60))[drawn], block.src_degree[: block.n_dst][drawn], rtol=1e-5)
