"""Node-wise sampling: the twin, the rules of a sample, independence of partition and batching, uniformity."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, VAL, DrawKey
from tests.support import twin
from tests.support.draw_digest import block_edges, digest_edges, unique_edges

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 7, 1, 2)

graphs = st.builds(
    twin.random_topology,
    vertices=st.integers(1, 60),
    edges=st.integers(0, 900),
    seed=st.integers(0, 2**32 - 1),
    hubs=st.sampled_from([1.0, 4.0]),
)
fanout_lists = st.lists(st.sampled_from([-1, 1, 2, 3, 10, 33, 1000, 2**40]), min_size=1, max_size=3).map(tuple)


def roots_of(topology: Topology, seed: int, share: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.permutation(topology.vertices)[: int(share * topology.vertices) + 1].astype(np.int64)


def star(degree: int, centres: int) -> Topology:
    """`centres` vertices that all have the same `degree` in-neighbours, themselves without any."""
    vertices = centres + degree
    indptr = np.concatenate([np.arange(centres + 1) * degree, np.full(degree, centres * degree)]).astype(np.int64)
    indices = np.tile(np.arange(centres, vertices, dtype=np.int32), centres)
    return Topology(indptr, indices, np.arange(vertices, dtype=np.int64))


def drawn_positions(degree: int, fanout: int, centres: int, key: DrawKey = KEY) -> np.ndarray:
    """int64[centres, fanout]: the positions drawn for each centre of a star."""
    topology = star(degree, centres)
    (block,) = NodeWiseSampler(topology, (fanout,)).sample(key, np.arange(centres))
    return (block.src[block.indices] - centres).reshape(centres, fanout)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(graphs, fanout_lists, st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_blocks_equal_those_of_the_twin(topology, fanouts, seed, pick):
    key, roots = DrawKey(VAL, seed, 3, 4), roots_of(topology, pick)
    blocks = NodeWiseSampler(topology, fanouts).sample(key, roots)
    expected = twin.sample(topology, fanouts, key, roots)
    assert len(blocks) == len(expected)
    for block, plain in zip(blocks, expected, strict=True):
        assert (block.hop, block.n_dst, block.src.tolist()) == (plain.hop, plain.n_dst, plain.src)
        assert (block.indptr.tolist(), block.indices.tolist()) == (plain.indptr, plain.indices)
        assert (block.src_original == topology.original_id[block.src]).all()
        assert (block.src_degree == topology.degree(block.src)).all()
        assert (block.src.dtype, block.indptr.dtype, block.indices.dtype) == (np.int64, np.int64, np.int32)


@pytest.mark.parametrize("degree", [63, 64, 65, 129, 1000, 20_000])
@pytest.mark.parametrize("fanout", [1, 10, 60, 500])
def test_subsets_of_long_lists_equal_those_of_the_twin(degree, fanout):
    fanout = min(fanout, degree - 1)
    positions = drawn_positions(degree, fanout, centres=5)
    hashed = twin.fold(twin.key_hash(KEY), 0)
    assert positions.tolist() == [twin.subset(twin.fold(hashed, v), degree, fanout) for v in range(5)]


@settings(derandomize=True, deadline=None)
@given(graphs, fanout_lists, st.integers(0, 99))
def test_a_sample_keeps_its_rules(topology, fanouts, pick):
    roots = roots_of(topology, pick)
    blocks = NodeWiseSampler(topology, fanouts).sample(KEY, roots)
    assert blocks[0].dst.tolist() == roots.tolist()
    for block, fanout in zip(blocks, fanouts, strict=True):
        degree = topology.degree(block.dst)
        taken = degree if fanout == -1 else np.minimum(degree, fanout)
        assert np.diff(block.indptr).tolist() == taken.tolist()
        assert len(set(block.src.tolist())) == block.n_src
        for i, v in enumerate(block.dst):
            drawn = block.src[block.indices[block.indptr[i] : block.indptr[i + 1]]]
            row = topology.indices[topology.indptr[v] : topology.indptr[v + 1]]
            assert np.isin(drawn, row).all()
            assert (np.diff(topology.original_id[drawn]) > 0).all()  # distinct, and in a fixed order
    for outer, inner in pairwise(blocks):
        assert inner.dst.tolist() == outer.src.tolist()


@settings(derandomize=True, deadline=None)
@given(graphs, fanout_lists, st.integers(0, 99))
def test_numbering_of_the_vertices_changes_nothing_in_original_ids(topology, fanouts, pick):
    new_id = np.random.default_rng(pick).permutation(topology.vertices)
    other, roots = twin.renumbered(topology, new_id), roots_of(topology, pick)
    blocks = NodeWiseSampler(topology, fanouts).sample(KEY, roots)
    others = NodeWiseSampler(other, fanouts).sample(KEY, new_id[roots])
    for block, same in zip(blocks, others, strict=True):
        assert block.src_original.tolist() == same.src_original.tolist()
        assert block.indptr.tolist() == same.indptr.tolist()
        assert block.indices.tolist() == same.indices.tolist()
        assert block.src_degree.tolist() == same.src_degree.tolist()


@settings(derandomize=True, deadline=None)
@given(graphs, fanout_lists, st.integers(0, 99), st.integers(1, 5))
def test_micrographs_drawn_separately_unite_to_the_joint_sample(topology, fanouts, pick, groups):
    sampler, roots = NodeWiseSampler(topology, fanouts), roots_of(topology, pick, share=0.8)
    joint = block_edges(sampler.sample(KEY, roots), topology)
    shares = np.array_split(np.random.default_rng(pick).permutation(roots), groups)
    separate = np.concatenate([block_edges(sampler.sample(KEY, share), topology) for share in shares])
    assert unique_edges(separate).tolist() == unique_edges(joint).tolist()
    assert digest_edges(separate) == digest_edges(joint)


@pytest.mark.parametrize("threads", [2, 3, 16])
@pytest.mark.parametrize("fanouts", [(3, 2), (40, 100), (-1, 5)])
def test_threads_change_nothing(threads, fanouts):
    topology = twin.random_topology(500, 20_000, seed=4, hubs=6.0)
    roots = roots_of(topology, 1)
    one = NodeWiseSampler(topology, fanouts).sample(KEY, roots)
    many = NodeWiseSampler(topology, fanouts, threads).sample(KEY, roots)
    for block, same in zip(one, many, strict=True):
        assert block.src.tolist() == same.src.tolist()
        assert block.indices.tolist() == same.indices.tolist()


def test_a_sampler_is_reusable_and_its_results_outlive_the_next_call():
    topology = twin.random_topology(300, 5000, seed=1)
    sampler, roots = NodeWiseSampler(topology, (5, 5)), roots_of(topology, 1)
    other = DrawKey(TRAIN, 8, 0, 0)
    sampler.sample(other, np.arange(300))  # the working memory has its final size from here on
    first = sampler.sample(KEY, roots)
    kept = [(b.src.copy(), b.indices.copy(), b.indptr.copy()) for b in first]
    sampler.sample(other, np.arange(300))
    arrays = [(b.src, b.indices, b.indptr) for b in first]
    assert all((x == y).all() for now, then in zip(arrays, kept, strict=True) for x, y in zip(now, then, strict=True))
    for block, (src, indices, indptr) in zip(sampler.sample(KEY, roots), kept, strict=True):
        assert block.src.tolist() == src.tolist()
        assert block.indices.tolist() == indices.tolist()
        assert block.indptr.tolist() == indptr.tolist()


def test_every_word_of_the_key_and_the_hop_matter():
    keys = [KEY, KEY._replace(stream=VAL), KEY._replace(seed=8), KEY._replace(epoch=0), KEY._replace(iteration=0)]
    drawn = {tuple(drawn_positions(1000, 5, 1, key)[0].tolist()) for key in keys}
    assert len(drawn) == len(keys)
    outer, inner = NodeWiseSampler(star(40, 1), (5, 5)).sample(KEY, np.array([0]))
    again = inner.indices[: inner.indptr[1]]
    assert set(inner.src[again].tolist()) != set(outer.src[outer.indices].tolist())


def test_subsets_are_uniform():
    positions = drawn_positions(degree=6, fanout=3, centres=40_000)
    counts = np.unique(positions @ [36, 6, 1], return_counts=True)[1]
    assert len(counts) == 20
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("degree", "fanout"), [(64, 40), (100, 40), (5000, 3), (30_000, 100)])
def test_positions_are_distinct_and_ascend(degree, fanout):
    assert (np.diff(drawn_positions(degree, fanout, centres=20)) > 0).all()


@pytest.mark.parametrize(("degree", "fanout", "centres"), [(100, 40, 5000), (100, 10, 5000), (5000, 3, 50_000)])
def test_positions_of_long_lists_are_uniform(degree, fanout, centres):
    counts = np.bincount(drawn_positions(degree, fanout, centres).ravel(), minlength=degree)
    mean = centres * fanout / degree
    statistic = ((counts - mean) ** 2 / mean).sum() / (1 - fanout / degree) * (degree - 1) / degree
    spread = np.sqrt(2 * (degree - 1))
    assert abs(statistic - (degree - 1)) < 4 * spread


def test_draws_of_one_vertex_over_iterations_are_uniform():
    topology = star(degree=5, centres=1)
    sampler = NodeWiseSampler(topology, (2,))
    pairs = []
    for iteration in range(3000):
        (block,) = sampler.sample(DrawKey(TRAIN, 0, 0, iteration), np.array([0]))
        pairs.append(tuple(block.src[block.indices].tolist()))
    counts = np.array([pairs.count(pair) for pair in set(pairs)])
    assert len(counts) == 10
    assert ((counts - 300) ** 2 / 300).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001


def test_no_roots_gives_empty_blocks():
    topology = twin.random_topology(10, 30, seed=0)
    blocks = NodeWiseSampler(topology, (3, -1)).sample(KEY, np.empty(0, np.int64))
    assert [(b.n_dst, b.n_src, b.edges, b.indptr.tolist()) for b in blocks] == [(0, 0, 0, [0])] * 2
    assert block_edges(blocks, topology).shape == (0, 3)


def test_isolated_roots_have_no_edges():
    topology = Topology(np.zeros(4, np.int64), np.empty(0, np.int32), np.arange(3))
    blocks = NodeWiseSampler(topology, (3, 3)).sample(KEY, np.array([2, 0]))
    assert [(b.src.tolist(), b.edges, b.indptr.tolist()) for b in blocks] == [([2, 0], 0, [0, 0, 0])] * 2


def test_read_only_arrays_and_wide_indices_are_taken():
    topology = twin.random_topology(50, 400, seed=2)
    wide = Topology(topology.indptr, topology.indices.astype(np.int64), topology.original_id)
    for array in (wide.indptr, wide.indices, wide.original_id):
        array.flags.writeable = False
    roots = roots_of(topology, 0)
    expected = NodeWiseSampler(topology, (4, 4)).sample(KEY, roots)
    assert NodeWiseSampler(wide, (4, 4)).sample(KEY, roots)[1].src.tolist() == expected[1].src.tolist()


@pytest.mark.parametrize("roots", [[0, 1, 0], [-1], [10]])
def test_unsuitable_roots_are_refused_and_leave_the_sampler_sound(roots):
    topology = twin.random_topology(10, 40, seed=3)
    sampler = NodeWiseSampler(topology, (2,))
    with pytest.raises(ValueError, match="roots must"):
        sampler.sample(KEY, np.array(roots))
    expected = twin.sample(topology, (2,), KEY, np.arange(10))
    assert sampler.sample(KEY, np.arange(10))[0].src.tolist() == expected[0].src


@pytest.mark.parametrize("fanouts", [(), (0,), (10, -2), (True,), (2.5,), ("all",), (2**63,)])
def test_unusable_fanouts_are_refused(fanouts):
    topology = twin.random_topology(5, 10, seed=0)
    with pytest.raises(ConfigError, match="fan-out"):
        NodeWiseSampler(topology, fanouts)


def test_edges_and_digest_of_a_small_sample_by_hand():
    topology = Topology(np.array([0, 2, 3, 3], np.int64), np.array([1, 2, 0], np.int32), np.array([10, 20, 30]))
    blocks = NodeWiseSampler(topology, (-1, -1)).sample(KEY, np.array([0]))
    rows = block_edges(blocks, topology)
    assert rows.tolist() == [[0, 10, 20], [0, 10, 30], [1, 10, 20], [1, 10, 30], [1, 20, 10]]
    assert digest_edges(rows[::-1]) == digest_edges(np.concatenate([rows, rows])) == digest_edges(rows)
    assert digest_edges(rows[1:]) != digest_edges(rows)


def test_memory_does_not_grow_with_the_number_of_batches():
    topology = twin.random_topology(50_000, 500_000, seed=6)
    sampler, peaks = NodeWiseSampler(topology, (10, 10)), []
    batches = np.random.default_rng(0).permutation(50_000)[:20_000].reshape(10, 2000)
    sampler.sample(KEY, batches[0])  # loads the kernels
    tracemalloc.start()
    try:
        for iteration in range(200):
            sampler.sample(KEY, batches[iteration % 10])
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[-1] <= 1.02 * peaks[9]


@pytest.mark.parametrize("room", range(0, 400, 25))
def test_places_start_over_where_their_numbers_end(room):
    """At any point of a sample; what was known before is known after."""
    topology, roots = twin.random_topology(120, 2400, seed=4), np.arange(0, 120, 9)
    fresh, worn = (NodeWiseSampler(topology, (4, 3)) for _ in range(2))
    worn._frontier._base = np.iinfo(np.int32).max - room
    for iteration in range(3):
        key = DrawKey(TRAIN, 0, 0, iteration)
        for block, same in zip(fresh.sample(key, roots), worn.sample(key, roots), strict=True):
            assert block.src.tolist() == same.src.tolist()
            assert block.indices.tolist() == same.indices.tolist()
