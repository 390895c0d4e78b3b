"""Edges as roots: their order, their negatives, and draws that leave them out."""

from dataclasses import replace

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.candidates import Candidates, HardLists
from leapmpi.sampling.negative_sampler import NEGATIVES
from leapmpi.sampling.training_edges import TrainingEdges
from leapmpi.system.counter_rng import PRESAMPLE, TRAIN, DrawKey
from tests.support import kinds, twin
from tests.support.draw_digest import block_edges

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 7, 1, 2)
NAMES = ("node-wise", "with-replacement", "labor-0", "weighted", "temporal")
ABLE = [kind for kind in kinds.KINDS if kind.startswith(NAMES)]


@pytest.fixture(scope="module")
def whole() -> Topology:
    """A symmetric topology with hubs."""
    topology = twin.random_topology(150, 1200, seed=5, hubs=3.0)
    destination = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    return of_pairs(np.stack([topology.indices, destination], axis=1), topology.original_id, both_ways=True)


def of_pairs(edges: np.ndarray, original: np.ndarray, both_ways: bool = False) -> Topology:
    """The topology with `edges` int64[k, 2], sources and destinations, and their reverses if `both_ways`."""
    edges = np.unique(np.concatenate([edges, edges[:, ::-1]]) if both_ways else edges, axis=0)
    edges = edges[np.lexsort((original[edges[:, 0]], edges[:, 1]))]
    indptr = np.zeros(len(original) + 1, np.int64)
    np.cumsum(np.bincount(edges[:, 1], minlength=len(original)), out=indptr[1:])
    return Topology(indptr, edges[:, 0].astype(np.int32), original)


def pairs_of(topology: Topology) -> np.ndarray:
    """All edges int64[m, 2]."""
    return np.stack([topology.indices, np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))], axis=1)


def renumbered(topology: Topology, seed: int) -> tuple[Topology, np.ndarray]:
    """The same graph as another partition would number it, and the new number of each vertex."""
    new = np.random.default_rng(seed).permutation(topology.vertices)
    original = np.empty_like(topology.original_id)
    original[new] = topology.original_id
    return of_pairs(new[pairs_of(topology)], original), new


def targets_of(topology: Topology) -> np.ndarray:
    return TrainingEdges(topology, both_ways=True).batches(3, 0, 60)[1]


@pytest.mark.parametrize("kind", ABLE)
def test_draws_are_those_of_a_graph_without_the_target_edges(kind, whole):
    targets = targets_of(whole)
    both = {tuple(each) for each in np.concatenate([targets, targets[:, ::-1]]).tolist()}
    left = of_pairs(np.array([each for each in pairs_of(whole).tolist() if tuple(each) not in both]), whole.original_id)
    roots, named = np.unique(targets), {tuple(each) for each in whole.original_id[np.array(sorted(both))].tolist()}

    # A draw that leaves nothing out sees them: the check below would notice.
    sampler = kinds.make(kind, whole, (6, 4))
    seen = block_edges(sampler.sample(KEY, roots), whole)[:, :0:-1]
    assert {tuple(each) for each in seen.tolist()} & named
    sampler.leave_out(KEY, targets)
    found = block_edges(sampler.sample(KEY, roots), whole)
    assert not {tuple(each) for each in found[:, :0:-1].tolist()} & named
    if kind.startswith("weighted"):  # whose weights are in-degrees of the whole graph
        return
    assert np.array_equal(found, block_edges(kinds.make(kind, left, (6, 4)).sample(KEY, roots), left))
    drawn = sampler.neighbours(KEY, 1, roots)
    assert np.array_equal(drawn.neighbours, kinds.make(kind, left, (6, 4)).neighbours(KEY, 1, roots).neighbours)


def test_draws_by_edge_weight_are_those_of_a_graph_without_the_target_edges(whole, monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "weighted", ("weights=edge",))
    rng, targets, pairs = np.random.default_rng(2), targets_of(whole), pairs_of(whole)
    # A weight names its edge, so that those of the graph that is left can be looked up.
    weight = rng.permutation(whole.edges).astype(np.float32)
    kept = ~(pairs[:, None] == np.concatenate([targets, targets[:, ::-1]])).all(axis=2).any(axis=1)
    left = replace(of_pairs(pairs[kept], whole.original_id), edge_weight=weight[kept])
    sampler, roots = kinds.make("weighted", replace(whole, edge_weight=weight), (6, 4)), np.unique(targets)
    sampler.leave_out(KEY, targets)
    found = block_edges(sampler.sample(KEY, roots), whole)
    assert np.array_equal(found, block_edges(kinds.make("weighted", left, (6, 4)).sample(KEY, roots), left))


def test_training_draws_are_refused_until_their_targets_are_named(whole):
    sampler = kinds.make("node-wise", whole, (3,))
    sampler.leave_out(KEY, targets_of(whole))
    sampler.sample(KEY._replace(stream=PRESAMPLE, iteration=9), np.arange(5))
    with pytest.raises(ValueError, match="were left out"):
        sampler.sample(KEY._replace(iteration=3), np.arange(5))
    assert [kind for kind in kinds.KINDS if kinds.make(kind, whole, (3, 2)).leaves_edges_out] == ABLE


def test_an_epoch_visits_each_edge_once_in_an_order_that_no_partition_changes(whole):
    other, _ = renumbered(whole, 1)
    for both_ways, count in ((True, whole.edges // 2), (False, whole.edges)):
        orders = []
        for topology in (whole, other):
            edges = TrainingEdges(topology, both_ways)
            batches = edges.batches(3, 1, 100)
            assert (len(edges), len(batches)) == (count, -(-count // 100))
            orders.append(topology.original_id[np.concatenate(list(batches))])
        assert np.array_equal(*orders)
        assert len(np.unique(np.sort(orders[0], axis=1) if both_ways else orders[0], axis=0)) == count
    with pytest.raises(IndexError):
        batches[len(batches)]
    assert not np.array_equal(batches[0], TrainingEdges(other, False).batches(3, 2, 100)[0])


@pytest.mark.parametrize("name", [each for each in NEGATIVES.names() if not NEGATIVES.load(each).sampler.shared])
def test_negatives_depend_on_the_edge_alone_and_are_no_edges(name, whole):
    other, new = renumbered(whole, 2)
    targets = targets_of(whole)
    kind = NEGATIVES.load(name).sampler
    found = kind(Candidates(whole)).draw(KEY, targets, 5)
    assert np.array_equal(new[found], kind(Candidates(other)).draw(KEY, new[targets], 5))
    edges = {tuple(each) for each in pairs_of(whole).tolist()}
    drawn = [(u, w) for (u, _), row in zip(targets.tolist(), found.tolist(), strict=True) for w in row]
    # A hub may find no other candidate in 16 tries.
    wrong = sum(each in edges or each[0] == each[1] for each in drawn)
    assert wrong <= (0 if name == "uniform" else 0.03 * len(drawn))
    assert len({tuple(row) for row in found.tolist()}) > 50
    if name == "in-batch":
        assert np.isin(found, targets[:, 1]).all()


def test_hard_negatives_are_those_of_the_file_in_any_partition(whole):
    other, new = renumbered(whole, 2)
    targets = targets_of(whole)
    sources = np.unique(targets[:, 0])
    listed, rng = sources[::2], np.random.default_rng(0)
    edges = {tuple(each) for each in pairs_of(whole).tolist()}
    pairs = np.stack([np.repeat(listed, 6), rng.integers(0, whole.vertices, 6 * len(listed))], axis=1)
    named = np.array([(u, v) for u, v in pairs.tolist() if u != v and (u, v) not in edges])
    triples = np.insert(whole.original_id[named], 1, 0, axis=1)
    hard = NEGATIVES.load("hard").sampler

    found = hard(Candidates(whole), HardLists(triples, whole)).draw(KEY, targets, 5)
    shuffled = HardLists(rng.permutation(triples), other)
    assert np.array_equal(new[found], hard(Candidates(other), shuffled).draw(KEY, new[targets], 5))
    lists = {source: set(named[named[:, 0] == source, 1].tolist()) for source in named[:, 0].tolist()}
    for (source, _), row in zip(targets.tolist(), found.tolist(), strict=True):
        assert source not in lists or set(row) <= lists[source]
    # Ends without a list draw as uniform ones do.
    others = ~np.isin(targets[:, 0], named[:, 0])
    uniform = NEGATIVES.load("uniform").sampler(Candidates(whole)).draw(KEY, targets, 5)
    assert others.any()
    assert np.array_equal(found[others], uniform[others])


def test_hard_negatives_of_an_unknown_vertex_are_refused(whole):
    with pytest.raises(ConfigError, match="names vertex 10000000000, which the dataset lacks"):
        HardLists(np.array([[int(whole.original_id[0]), 0, 10**10]]), whole)


def test_negatives_by_degree_have_their_chances():
    degree = np.arange(10) ** 2
    indptr = np.concatenate([[0], np.cumsum(degree)])
    # Sources that no target names, so that no candidate is an edge.
    topology = Topology(
        indptr, np.concatenate([np.arange(10, 10 + d) for d in [*degree]]).astype(np.int32), np.arange(99)
    )
    topology = Topology(np.concatenate([indptr, np.full(89, indptr[-1])]), topology.indices, topology.original_id)
    targets = np.stack([np.full(4000, 98), np.arange(4000) % 10], axis=1)
    found = NEGATIVES.load("degree").sampler(Candidates(topology)).draw(KEY, targets[:10], 4000)
    share = np.bincount(found.reshape(-1), minlength=99)[:10] / found.size
    assert np.abs(share - degree**0.75 / (degree**0.75).sum()).max() < 0.01
