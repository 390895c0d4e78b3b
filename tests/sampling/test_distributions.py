"""What samplers draw, and how often: uniform or weighted draws, budgets, numbers shared by destinations."""

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.clusters import clusters_of
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.sampling.test_node_wise import star
from tests.support import kinds, twin
from tests.support.kinds import KEY, make

pytestmark = pytest.mark.compiles


def positions(kind: str, degree: int, fanout: int, centres: int) -> list[np.ndarray]:
    """What each centre of a star draws, as positions in its list."""
    (block,) = make(kind, star(degree, centres), (fanout,)).sample(KEY, np.arange(centres))
    return np.split(block.src[block.indices] - centres, block.indptr[1:-1])


def over_iterations(kind: str, topology: Topology, fanout: int, root: int, times: int) -> np.ndarray:
    """int64[n]: how often `root` drew each vertex in so many iterations."""
    sampler, counts = make(kind, topology, (fanout,)), np.zeros(topology.vertices, np.int64)
    for iteration in range(times):
        (block,) = sampler.sample(DrawKey(TRAIN, 0, 0, iteration), np.array([root]))
        np.add.at(counts, block.src[block.indices], 1)
    return counts


def chi_square(counts: np.ndarray, mean: np.ndarray | float) -> float:
    return float(((counts - mean) ** 2 / mean).sum())


def test_draws_with_replacement_are_independent_and_uniform():
    drawn = np.stack(positions("with-replacement", degree=5, fanout=3, centres=20_000))
    triples = np.bincount(drawn @ [25, 5, 1])
    # A multiset with one number, two, or three of them can be drawn in 1, 3 or 6 orders.
    times = {(a, b, c): {1: 1, 2: 3, 3: 6}[len({a, b, c})] for a in range(5) for b in range(a, 5) for c in range(b, 5)}
    found = np.array([triples[25 * a + 5 * b + c] if 25 * a + 5 * b + c < len(triples) else 0 for a, b, c in times])
    assert found.sum() == 20_000
    assert chi_square(found, 20_000 / 125 * np.array(list(times.values()))) < 65.2  # 34 degrees of freedom, p = 0.001


def test_draws_with_replacement_may_exceed_the_degree():
    assert [len(row) for row in positions("with-replacement", degree=2, fanout=7, centres=3)] == [7, 7, 7]


def test_labor_subsets_of_one_destination_are_uniform():
    counts, topology = {}, star(degree=5, centres=1)
    sampler = make("labor-0", topology, (2,))
    for iteration in range(3000):
        (block,) = sampler.sample(DrawKey(TRAIN, 0, 0, iteration), np.array([0]))
        pair = tuple(block.src[block.indices].tolist())
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 10
    assert chi_square(np.array(list(counts.values())), 300) < 27.9  # 9 degrees of freedom, p = 0.001


def test_labor_destinations_with_equal_lists_draw_the_same():
    rows = positions("labor-0", degree=50, fanout=6, centres=40)
    assert {tuple(row.tolist()) for row in rows} == {tuple(rows[0].tolist())}
    assert len(rows[0]) == 6


def test_labor_of_varying_size_takes_the_fan_out_on_average():
    kind, topology = "labor-0, fixed-size=no", star(degree=20, centres=1)
    counts = over_iterations(kind, topology, 5, 0, 2000)[1:]
    assert chi_square(counts, 500) / (1 - 5 / 20) < 45.3  # 20 independent counts, p = 0.001
    sizes = [len(row) for row in positions(kind, degree=3, fanout=5, centres=2)]
    assert sizes == [3, 3]


def test_labor_draws_fewer_vertices_than_independent_destinations():
    topology, roots = twin.random_topology(3000, 60_000, seed=1), np.arange(0, 3000, 4)
    inputs = {
        kind: make(kind, topology, (5, 5)).sample(KEY, roots)[-1].n_src for kind in ("node-wise", "labor-0", "labor-i")
    }
    assert inputs["labor-i"] < 0.97 * inputs["labor-0"] < 0.8 * inputs["node-wise"]


def test_dependent_batches_keep_most_numbers_and_renew_all_in_turn():
    kind, topology = "labor-0, dependent", star(degree=600, centres=1)
    sampler = make(kind, topology, (200,))
    drawn = []
    for iteration in range(7):
        (block,) = sampler.sample(DrawKey(TRAIN, 0, 0, iteration), np.array([0]))
        drawn.append(set(block.src[block.indices].tolist()))
    # A third of the numbers is new in each batch; of what they decide, a third stays by chance.
    shared = [len(drawn[0] & other) / 200 for other in drawn]
    expected = [1, 7 / 9, 5 / 9, 1 / 3, 1 / 3, 1 / 3, 1 / 3]
    assert np.abs(np.array(shared) - expected).max() < 0.12
    (outer, inner) = make(kind, star(40, 1), (5, 5)).sample(KEY, np.array([0]))
    assert inner.indices[: inner.indptr[1]].tolist() == outer.indices.tolist()


@pytest.mark.parametrize("kind", ["weighted", "weighted, unbiased"])
def test_weighted_draws_have_the_chances_of_their_weights(kind):
    topology = twin.random_topology(40, 500, seed=2, hubs=2.0)
    root = int(np.argmax(np.diff(topology.indptr)))
    row, degree = topology.indices[topology.indptr[root] : topology.indptr[root + 1]], np.diff(topology.indptr)
    weight = {"weighted": 2**20 // np.maximum(1, degree), "weighted, unbiased": np.maximum(1, degree)}[kind][row]
    chance, certain = np.zeros(len(row)), np.zeros(len(row), bool)
    while True:
        chance = np.where(certain, 1.0, (6 - certain.sum()) * weight / weight[~certain].sum())
        if (chance <= 1).all():
            break
        certain |= chance >= 1
    counts = over_iterations(kind, topology, 6, root, 3000)[row]
    assert counts.sum() == 6 * 3000
    assert (np.abs(counts / 3000 - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / 3000)).all()


def test_random_walks_weigh_vertices_by_visits():
    # A cycle with a chord: one step from 0 goes to 1 or 3, two steps come to 2 from both.
    topology = Topology(
        np.array([0, 2, 3, 4, 5]), np.array([1, 3, 2, 0, 2], np.int32), np.array([10, 20, 30, 40], np.int64)
    )
    kinds.KINDS["random-walk, long"] = ("walks=1000", "steps=2", "stop=0")
    try:
        (block,) = make("random-walk, long", topology, (3,)).sample(KEY, np.array([0]))
    finally:
        del kinds.KINDS["random-walk, long"]
    assert block.src[block.indices].tolist() == [1, 2, 3]
    share = block.weight / block.weight.sum()
    assert block.weight.sum() == pytest.approx(2)  # the degree
    assert share[1] == pytest.approx(0.5)
    assert abs(share[0] - 0.25) < 0.04


def test_layer_wise_samplers_keep_their_budget():
    topology, roots = twin.random_topology(400, 12_000, seed=3, hubs=2.0), np.arange(0, 400, 9)
    drawn = {kind: [] for kind in ("ladies, unbiased", "fast-gcn, unbiased")}
    for kind, sizes in drawn.items():
        sampler = make(kind, topology, (4, 4))
        for iteration in range(40):
            block = sampler.sample(KEY._replace(iteration=iteration), roots)[0]
            sizes.append(len(np.unique(block.src[block.indices])))
    assert abs(np.mean(drawn["ladies, unbiased"]) - 30) < 3
    assert max(drawn["fast-gcn, unbiased"]) <= 30


def test_clusters_cut_few_edges_keep_their_room_and_ignore_the_numbering():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 50)
    pairs = np.array([(u, v) for u in range(400) for v in rng.choice(np.flatnonzero(group == group[u]), 8)])
    pairs = np.concatenate([pairs, rng.integers(0, 400, (300, 2))])
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    indptr = np.searchsorted(pairs[:, 0], np.arange(401)).astype(np.int64)
    shuffled = rng.permutation(400)
    topology = Topology(indptr, pairs[:, 1].astype(np.int32), np.arange(400, dtype=np.int64))
    topology = twin.renumbered(Topology(indptr, topology.indices, topology.original_id), shuffled)
    label = clusters_of(topology, 8)
    inside = (label[topology.indices] == np.repeat(label, np.diff(topology.indptr))).mean()
    assert inside > 0.6  # an eighth at random
    assert np.bincount(label).max() <= 60
    new_id = rng.permutation(400)
    assert clusters_of(twin.renumbered(topology, new_id), 8)[new_id].tolist() == label.tolist()


def test_cluster_gcn_visits_every_training_vertex_once_an_epoch():
    topology, train = twin.random_topology(200, 2000, seed=1), np.arange(0, 200, 3)
    sampler = make("cluster-gcn", topology, (2, 2), train=train)
    parts = list(sampler.batches(train, 7, 1, 50))
    assert sorted(np.concatenate(parts).tolist()) == train.tolist()
    assert [part.tolist() for part in sampler.batches(train, 7, 2, 50)] != [part.tolist() for part in parts]
    weights = [sampler.root_weights(KEY, part, len(part)) for part in parts]
    assert sum(w * len(part) for w, part in zip(weights, parts, strict=True)) == pytest.approx(len(parts))
