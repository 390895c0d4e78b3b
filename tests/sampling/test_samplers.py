"""Every sampler: edges that exist, and the same draws for any numbering, threads, ranks and grouping of roots."""

import dataclasses
import itertools

import numpy as np
import pytest

from leapmpi.config.options import SAMPLERS, parse_options
from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block, DrawnBlock
from leapmpi.sampling.construction.build import build_sampler
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, ITERATION_GLOBAL, LOCAL
from tests.support import twin
from tests.support.kinds import KEY, KINDS, SEED, make, weighted_edges

pytestmark = pytest.mark.compiles

FANOUTS = (4, 3)
VISITS_FROM_AFAR = ("random-walk",)
"""Samplers whose edges join vertices that are not neighbours."""


@pytest.fixture(scope="module")
def topology():
    return twin.random_topology(120, 2400, seed=4, hubs=3.0)


def batch_of(sampler, topology) -> np.ndarray:
    """The roots of the iteration of KEY."""
    train = np.arange(topology.vertices)
    return np.asarray(sampler.batches(train, SEED, KEY.epoch, 25)[KEY.iteration])


def test_all_samplers_are_tested():
    assert {kind.partition(",")[0] for kind in KINDS} == set(SAMPLERS.names())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_keeps_the_rules(kind, topology):
    sampler = make(kind, topology, FANOUTS)
    assert sampler.family in (LOCAL, ITERATION_GLOBAL, FRONTIER_GLOBAL)
    roots = batch_of(sampler, topology)
    assert len(set(roots.tolist())) == len(roots) > 1
    blocks = sampler.sample(KEY, roots)
    assert blocks[0].dst.tolist() == roots.tolist()
    assert len(blocks) == len(FANOUTS)
    assert sum(block.edges for block in blocks) > 0
    for block in blocks:
        assert len(set(block.src.tolist())) == block.n_src
        assert (block.weight is not None) == sampler.weighted
        for i, v in enumerate(block.dst):
            edges = slice(block.indptr[i], block.indptr[i + 1])
            drawn, row = block.src[block.indices[edges]], topology.indices[topology.indptr[v] : topology.indptr[v + 1]]
            assert kind.startswith(VISITS_FROM_AFAR) or np.isin(drawn, row).all()
            steps = np.diff(topology.original_id[drawn])
            assert (steps >= 0).all() if kind == "with-replacement" else (steps > 0).all()
            if block.weight is not None:
                assert (block.weight[edges] > 0).all()
                assert np.isfinite(block.weight[edges]).all()
    for outer, inner in itertools.pairwise(blocks):
        assert inner.dst.tolist() == outer.src.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_numbering_and_threads_change_nothing(kind, topology):
    new_id = np.random.default_rng(3).permutation(topology.vertices)
    other = twin.renumbered(topology, new_id)
    sampler, twin_sampler = make(kind, topology, FANOUTS), make(kind, other, FANOUTS, threads=2)
    roots = batch_of(sampler, topology)
    same_roots = twin_sampler.batches(new_id, SEED, KEY.epoch, 25)[KEY.iteration]
    assert sorted(new_id[roots].tolist()) == sorted(np.asarray(same_roots).tolist())
    edges = weighted_edges(sampler.sample(KEY, roots), topology)
    assert edges.tolist() == weighted_edges(twin_sampler.sample(KEY, new_id[roots]), other).tolist()
    weights = [
        each.root_weights(KEY, ids, len(roots)) for each, ids in ((sampler, roots), (twin_sampler, new_id[roots]))
    ]
    assert np.broadcast_to(weights[0], len(roots)).tolist() == np.broadcast_to(weights[1], len(roots)).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_micrographs_drawn_separately_unite_to_the_joint_sample(kind, topology):
    sampler = make(kind, topology, FANOUTS)
    batch = batch_of(sampler, topology)
    joint = weighted_edges(sampler.sample(KEY, batch, batch), topology)
    groups = np.array_split(np.random.default_rng(1).permutation(batch), 4)
    separate = np.concatenate([weighted_edges(sampler.sample(KEY, each, batch), topology) for each in groups])
    assert np.unique(separate, axis=0).tolist() == np.unique(joint, axis=0).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_are_those_of_the_sample(kind, topology):
    sampler = make(kind, topology, FANOUTS)
    batch = batch_of(sampler, topology)
    blocks = sampler.sample(KEY, batch[:7], batch)
    for block in blocks:
        again = make(kind, topology, FANOUTS).neighbours(KEY, block.hop, block.dst[::-1].copy(), batch)
        rows = np.split(again.neighbours, again.indptr[1:-1])[::-1]
        assert np.concatenate(rows).tolist() == block.src[block.indices].tolist()
        if block.weight is not None:
            weights = np.split(again.weight, again.indptr[1:-1])[::-1]
            assert np.concatenate(weights).tolist() == block.weight.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_last_hop_without_numbers_is_the_same_and_gets_them_when_they_are_read(kind, topology):
    numbered, late = (make(kind, topology, FANOUTS) for _ in range(2))
    roots = batch_of(numbered, topology)
    blocks, drawn = numbered.sample(KEY, roots), late.sample_unnumbered(KEY, roots)
    # Another sample must not change what has been drawn, though working memory is used again.
    late.sample_unnumbered(KEY, roots[::2], roots)

    # First by ids alone, then all arrays.
    assert isinstance(drawn[-1], DrawnBlock)
    for names in (("neighbours", "indptr", "dst", "dst_original", "dst_degree", "weight"), fields_of_blocks()):
        for block, same in zip(blocks, drawn, strict=True):
            assert (same.hop, same.n_dst, same.edges) == (block.hop, block.n_dst, block.edges)
            for name in names:
                expected, found = getattr(block, name), getattr(same, name)
                assert (found is None) == (expected is None), name
                if isinstance(expected, np.ndarray):
                    assert found.dtype == expected.dtype, name
                    np.testing.assert_array_equal(found, expected, name)


def fields_of_blocks() -> list[str]:
    return [field.name for field in dataclasses.fields(Block) if field.name != "tensors"]


@pytest.mark.parametrize("kind", KINDS)
def test_other_iterations_draw_otherwise(kind, topology):
    sampler = make(kind, topology, (2, 2))
    roots = batch_of(sampler, topology)
    drawn = {weighted_edges(sampler.sample(KEY._replace(iteration=i), roots), topology).tobytes() for i in range(6)}
    assert (len(drawn) > 1) == (kind != "temporal, latest"), "the latest edges are the same in each"


@pytest.mark.parametrize("kind", KINDS)
def test_no_roots_and_wrong_roots(kind, topology):
    sampler = make(kind, topology, FANOUTS)
    assert [block.n_src for block in sampler.sample(KEY, np.empty(0, np.int64))] == [0, 0]
    for wrong in ([3, 3], [-1], [topology.vertices]):
        with pytest.raises(ValueError, match="roots must"):
            sampler.sample(KEY, np.array(wrong))
    assert len(sampler.sample(KEY, batch_of(sampler, topology))) == 2


def test_every_batch_of_shuffled_roots_is_visited_once(topology):
    sampler = make("node-wise", topology, FANOUTS)
    train = np.arange(3, 110)
    parts = sampler.batches(train, SEED, 0, 25)
    assert len(parts) == sampler.iterations(train, 25) == 5
    assert sorted(np.concatenate(parts).tolist()) == train.tolist()


@pytest.mark.parametrize(
    ("sampler", "texts", "sentence"),
    [
        ("labor-0", ("fixed-size",), "write it as name=value"),
        ("labor-0", ("fixed-siz=1",), "did you mean 'fixed-size'"),
        ("labor-0", ("kept-batches=0",), "too small"),
        ("labor-0", ("kept-batches=1", "kept_batches=2"), "given twice"),
        ("node-wise", ("x=1",), "it has none"),
    ],
)
def test_wrong_options_get_a_sentence(sampler, texts, sentence):
    kind = SAMPLERS.load(sampler).options
    with pytest.raises(ConfigError, match=sentence):
        parse_options(kind, texts, sampler)


@pytest.mark.parametrize("sampler", ["fast-gcn", "node-wise"])
def test_a_maximum_refuses_samplers_that_weigh_edges(sampler, topology):
    values = {"sampling.sampler": sampler, "sampling.fanout": "4,3", "model.options.aggregate": "max"}
    config, train = Config.from_values(values), np.arange(120)
    if sampler == "node-wise":
        build_sampler(config, topology, train)
    else:
        with pytest.raises(ConfigError, match=r"max has no use for the edge weights of --sampler fast-gcn; give"):
            build_sampler(config, topology, train)
