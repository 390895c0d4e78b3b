"""Draws of typed graphs: as from a plain graph of each relation, whatever the numbering, the threads or the others."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.config.sections import SamplingConfig
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.relation_lists import reached_in_training, relation_fanouts, scoring_fanouts
from tests.support.kinds import KEY
from tests.support.same_blocks import same_blocks
from tests.support.typed_draws import SCHOLARS, TYPED, made, typed_topology

pytestmark = pytest.mark.compiles


def plain_of(topology: Topology, relation: int) -> Topology:
    """The plain graph of one relation, whose vertices have the names of its lists."""
    kept = topology.relation == relation
    counts = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        topology,
        indptr=counts[topology.indptr],
        indices=topology.indices[kept],
        original_id=topology.original_id + (relation << 47),
        edge_weight=topology.edge_weight[kept],
        edge_time=topology.edge_time[kept],
        relation=None,
        types=None,
    )


def named(drawn, topology: Topology, vertices: np.ndarray) -> np.ndarray:
    """float64[edges, 4]: destination, relation, source (original ids) and weight, in order."""
    original = topology.original_id
    weight = np.ones(len(drawn.neighbours)) if drawn.weight is None else drawn.weight
    destinations = np.repeat(original[vertices], np.diff(drawn.indptr))
    relation = np.zeros(len(weight)) if drawn.relation is None else drawn.relation
    return np.stack([destinations, relation, original[drawn.neighbours], weight], axis=1)


@pytest.mark.parametrize("kind", TYPED)
def test_one_type_and_one_relation_draw_as_a_plain_graph(kind):
    types = GraphTypes((VertexType("paper", 90),), (Relation("paper", "cites", "paper"),), "paper")
    topology = typed_topology(types, 900, 1)
    typed, plain = made(kind, topology), made(kind, replace(topology, relation=None, types=None))
    roots = np.arange(0, 90, 3)
    found = typed.sample(KEY, roots)
    same_blocks([replace(block, relation=None) for block in found], plain.sample(KEY, roots))
    assert all(block.relation.dtype == np.uint8 and len(block.relation) == block.edges for block in found)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([*TYPED, "weighted, by edge"]), st.integers(1, 600), st.integers(0, 2**16))
def test_each_relation_draws_as_a_plain_graph_of_it(kind, edges, seed):
    topology = typed_topology(SCHOLARS, edges, seed)
    options = ("weights=edge",) if kind == "weighted, by edge" else ()
    if kind.startswith("weighted") and not options:
        options = ("weights=uniform",)  # degrees of sources are those of all relations together
    typed = made(kind, topology, options=options)
    papers = np.arange(60)
    drawn = named(typed.neighbours(KEY, 1, papers, papers), topology, papers)
    assert set(drawn[:, 1].tolist()) <= {0.0, 1.0, 3.0, 4.0}
    for r in (0, 1, 3, 4):
        plain = plain_of(topology, r)
        expected = made(kind, plain, options=options).neighbours(KEY, 1, papers, papers)
        assert (
            drawn[drawn[:, 1] == r][:, [0, 2, 3]].tolist() == named(expected, topology, papers)[:, [0, 2, 3]].tolist()
        )


@pytest.mark.parametrize("kind", TYPED)
def test_numbering_threads_and_groups_of_roots_change_nothing(kind):
    new_id = np.random.default_rng(3).permutation(105)
    topology, other = typed_topology(SCHOLARS, 500, 2), typed_topology(SCHOLARS, 500, 2, new_id)
    one, two = made(kind, topology), made(kind, other, threads=2)
    roots = np.arange(60)
    for block in one.sample(KEY, roots):
        drawn = named(one.neighbours(KEY, block.hop, block.dst, roots), topology, block.dst)
        assert drawn[:, 2].tolist() == topology.original_id[block.neighbours].tolist()
        assert drawn[:, 1].tolist() == block.relation.tolist()
        apart = [two.neighbours(KEY, block.hop, part, new_id[roots]) for part in np.array_split(new_id[block.dst], 3)]
        again = [
            named(each, other, part) for each, part in zip(apart, np.array_split(new_id[block.dst], 3), strict=True)
        ]
        assert np.concatenate(again).tolist() == drawn.tolist()


@pytest.mark.parametrize("kind", TYPED)
def test_no_draw_leaves_its_relation_or_the_schema(kind):
    types = replace(SCHOLARS, vertices=tuple(replace(each, vertices=400) for each in SCHOLARS.vertices))
    topology = typed_topology(types, 12_000, 5)
    destinations = np.repeat(np.arange(1200), np.diff(topology.indptr))

    def code(relation, destination, source):
        return (relation.astype(np.int64) * 1200 + destination) * 1200 + source

    every = np.sort(code(topology.relation, destinations, topology.indices))
    sampler = made(kind, topology, (10, 10, 10))
    allowed, count = relation_fanouts(types, (10, 10, 10)) != 0, 0
    for iteration in range(3):
        key = KEY._replace(iteration=iteration)
        for block in sampler.sample(key, np.arange(0, 400, 1 + iteration)):
            destination = np.repeat(block.dst, np.diff(block.indptr))
            found = code(block.relation, destination, block.neighbours)
            assert (every[np.searchsorted(every, found)] == found).all()
            assert allowed[block.hop, np.unique(block.relation)].all()
            order = np.diff(block.relation.astype(int) + 10 * np.repeat(np.arange(block.n_dst), np.diff(block.indptr)))
            assert (order >= 0).all(), "edges of a destination ascend by relation"
            count += block.edges
    assert count > 20_000


def test_no_draw_leaves_its_relation_in_a_million():
    """In ten millions with LEAPMPI_SOAK set."""
    types = replace(SCHOLARS, vertices=tuple(replace(each, vertices=20_000) for each in SCHOLARS.vertices))
    topology = typed_topology(types, 400_000, 6)
    destinations = np.repeat(np.arange(60_000), np.diff(topology.indptr))
    every = (topology.relation.astype(np.int64) * 60_000 + destinations) * 60_000 + topology.indices
    every.sort()
    sampler, papers, drawn = made("node-wise", topology, (8,)), np.arange(20_000), 0
    iterations, least = (17, 10**7) if "LEAPMPI_SOAK" in os.environ else (2, 10**6)
    for iteration in range(iterations):
        found = sampler.neighbours(KEY._replace(iteration=iteration), 0, papers)
        destination = np.repeat(papers, np.diff(found.indptr))
        code = (found.relation.astype(np.int64) * 60_000 + destination) * 60_000 + found.neighbours
        assert (every[np.searchsorted(every, code)] == code).all()
        drawn += len(code)
    assert drawn > least


def test_fan_outs_by_relation():
    given = ("paper:cites:paper=10,0", "author:*:paper=2", "*:names:*=all")
    found = relation_fanouts(SCHOLARS, (5, 4), given)
    #                      writes, cites, written_by, names, reviews, heads
    assert found.tolist() == [[2, 10, 0, -1, 2, 0], [2, 0, 4, -1, 2, 4]]
    sampling = SamplingConfig(fanout=(5, 4), relation_fanout=given)
    assert (reached_in_training(SCHOLARS, sampling).relations == (found != 0)).all()
    scored = scoring_fanouts(SCHOLARS, sampling, (-1, -1))
    assert scored.tolist() == np.where(found != 0, -1, 0).tolist()
    assert scoring_fanouts(SCHOLARS, sampling, (5, 4)).tolist() == found.tolist()


@pytest.mark.parametrize("kind", ["node-wise", "labor-0", "with-replacement", "labor-0, fixed-size=no"])
def test_each_relation_has_its_fan_out(kind):
    topology, papers = typed_topology(SCHOLARS, 900, 3), np.arange(60)
    sampler = made(kind, topology, (3,), relation_fanout=("*:cites:*=all", "*:names:*=0"))
    drawn, degree = sampler.neighbours(KEY, 0, papers), np.diff(topology.indptr)
    counts = np.zeros((60, 6), int)
    np.add.at(counts, (np.repeat(papers, np.diff(drawn.indptr)), drawn.relation), 1)
    whole = np.zeros_like(counts)
    kept = np.repeat(np.arange(105), degree)
    np.add.at(whole, (kept[kept < 60], topology.relation[kept < 60]), 1)
    assert (counts[:, 1] == whole[:, 1]).all()
    assert (counts[:, 3] == 0).all()
    if "fixed-size=no" not in kind:
        limit = np.where(whole > 0, 3, 0) if kind == "with-replacement" else np.minimum(whole, 3)
        assert (counts[:, [0, 4]] == limit[:, [0, 4]]).all()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("paper:cits:paper=3", "fits no relation of the dataset; it has author:writes:paper"),
        ("paper:cites:paper", "gives no relation its fan-outs"),
        ("paper:cites:paper=3,2,1", "has 3 fan-outs, and --fanout has 2"),
        ("paper:cites:paper=-3", "is not a fan-out"),
    ],
)
def test_wrong_fan_outs_of_relations_are_refused(text, part):
    with pytest.raises(ConfigError, match="relation_fanout") as caught:
        relation_fanouts(SCHOLARS, (4, 3), (text,))
    assert part in str(caught.value)
