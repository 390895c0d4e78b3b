"""Blocks of several micro-batches as one: each destination once, with the edges that it has in all of them."""

from dataclasses import replace

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.raw_sums import merged
from leapmpi.sampling.edge_lookup import with_weights
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.graphs import random_graph

KEY = DrawKey(TRAIN, 3, 0, 1)


def edges_of(block, destination):
    """The sources of the edges of the vertex `destination`, in their order."""
    (at,) = np.flatnonzero(block.dst == destination)
    own = slice(*block.indptr[at : at + 2].tolist())
    assert block.src[block.indices[own]].tolist() == block.neighbours[own].tolist()
    return block.neighbours[own].tolist()


@pytest.fixture(params=[False, True], ids=["plain", "weights of edges"])
def blocks(request):
    graph = random_graph(200, 6)
    topology = Topology(graph.indptr, graph.indices, graph.original_id)
    if request.param:
        weight = np.random.default_rng(1).random(len(graph.indices)).astype(np.float32)
        sums = np.array([part.sum(dtype=np.float64) for part in np.split(weight, graph.indptr[1:-1])])
        topology = replace(topology, edge_weight=weight, weight_sum=sums)
    sampler = NodeWiseSampler(topology, (3, 4), 1)
    roots = np.split(np.random.default_rng(0).permutation(200)[:30], 3)
    return [with_weights(sampler.sample(KEY, each)[-1], topology) for each in roots]


def test_a_single_block_is_left_alone(blocks):
    block, places = merged(blocks[:1])
    assert block is blocks[0]
    assert places == [None]


def test_each_destination_is_there_once_with_its_edges(blocks):
    block, places = merged(blocks)
    assert len(np.unique(block.src)) == block.n_src
    assert set(block.dst.tolist()) == {vertex for each in blocks for vertex in each.dst.tolist()}
    for each, place in zip(blocks, places, strict=True):
        np.testing.assert_array_equal(block.dst[place], each.dst)
        for vertex in each.dst:
            assert edges_of(block, vertex) == edges_of(each, vertex)


def test_what_is_known_of_destinations_and_edges_stays_with_them(blocks):
    block, places = merged(blocks)
    for each, place in zip(blocks, places, strict=True):
        np.testing.assert_array_equal(block.dst_original[place], each.dst_original)
        np.testing.assert_array_equal(block.dst_degree[place], each.dst_degree)
        if each.edge_weight is not None:
            np.testing.assert_array_equal(block.dst_weight_sum[place], each.dst_weight_sum)
            np.testing.assert_array_equal(block.drawn_weight[place], each.drawn_weight)
            sums = np.add.reduceat(block.edge_weight, block.indptr[:-1][np.diff(block.indptr) > 0])
            found = dict(zip(block.dst[np.diff(block.indptr) > 0].tolist(), sums.tolist(), strict=True))
            for vertex, drawn in zip(each.dst.tolist(), each.drawn_weight, strict=True):
                assert found.get(vertex, 0.0) == pytest.approx(drawn, rel=1e-5)


def test_names_of_destinations_alone_are_kept_where_no_more_is_known(blocks):
    known = [replace(each, src_original=each.src_original[: each.n_dst]) for each in blocks]
    block, places = merged(known)
    assert len(block.src_original) == block.n_dst
    for each, place in zip(known, places, strict=True):
        np.testing.assert_array_equal(block.src_original[place], each.src_original)
