"""Chunks of destinations: their counts are those of sets, and rounds take no more than the limit."""

import numpy as np
import pytest
from mpi4py import MPI

from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.inference.chunks import ChunkBytes, cut, needed_by_layer
from tests.support.twin import random_topology

EACH = ChunkBytes(destination=100, edge=8, source=40, remote=200, sent=16)


@pytest.fixture(scope="module")
def topology():
    return random_topology(300, 4000, seed=3, hubs=2.0)


@pytest.fixture(scope="module")
def lists(topology):
    return OwnLists(topology, 0, 300, np.array([0, 300]))


@pytest.fixture
def alone():
    return MPICommunicator(MPI.COMM_SELF)


@pytest.mark.parametrize("limit", [1, 4000, 40_000, 10**9])
def test_counts_are_those_of_sets(lists, topology, alone, limit):
    wanted = np.arange(0, 300, 3)
    found = cut(lists, alone, wanted, EACH, limit)
    assert np.concatenate([wanted[chunk] for chunk in found]).tolist() == wanted.tolist()
    sizes = []
    for chunk, counts in zip(found, found.counts, strict=True):
        edges = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in wanted[chunk]]
        sources = {*np.concatenate(edges).tolist(), *wanted[chunk].tolist()}
        assert counts.tolist() == [len(edges), sum(map(len, edges)), len(sources), 0]
        sizes.append(counts @ EACH.of_own)
        assert len(edges) == 1 or sizes[-1] <= limit
    assert found.bytes == max(sizes)


def test_a_larger_chunk_would_not_fit(lists, topology, alone):
    wanted = np.arange(300)
    found = cut(lists, alone, wanted, EACH, 20_000)
    begin = 0
    for end in found.ends[:-1]:
        longer = wanted[begin : end + 1]
        edges = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in longer]
        sources = {*np.concatenate(edges).tolist(), *longer.tolist()}
        assert np.dot([len(longer), sum(map(len, edges)), len(sources), 0], EACH.of_own) > 20_000
        begin = end


def test_layers_compute_what_the_layer_above_reads(lists, topology, alone):
    wanted = np.array([5, 17])
    needed = needed_by_layer(lambda *_: lists, alone, np.array([0, 300]), wanted, 2)
    found = [needed[0].read, *(each.destinations for each in needed)]
    expected = [{5, 17}]
    for _ in range(2):
        read = {int(u) for v in expected[0] for u in topology.indices[topology.indptr[v] : topology.indptr[v + 1]]}
        expected.insert(0, expected[0] | read)
    assert [each.tolist() for each in found] == [sorted(each) for each in expected]
