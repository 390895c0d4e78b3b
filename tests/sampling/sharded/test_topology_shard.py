"""Shards read from part files: the lists of their own vertices, and names of what these draw from."""

import shutil

import h5py
import numpy as np
import pytest

from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology, topology_bytes
from leapmpi.errors import DataError
from leapmpi.sampling.sharded.topology_shard import (
    load_shard_of_topology,
    original_ids,
    shard_bytes,
    shard_of,
    with_names,
)

PARTS = [range(4), range(1, 2), range(2, 4), range(3)]


@pytest.fixture(scope="module")
def dataset(small_data):
    return open_dataset(small_data)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("parts", PARTS)
def test_lists_are_those_of_the_whole_topology(parts, numbered, dataset):
    whole, shard = load_topology(dataset), load_shard_of_topology(dataset, parts, numbered=numbered)
    assert (shard.vertices, shard.edges) == (whole.vertices, whole.edges)
    for vertex in range(shard.first, shard.end):
        (number,) = shard.own_numbers(np.array([vertex]))
        listed = shard.own.indices[shard.own.indptr[number] : shard.own.indptr[number + 1]]
        wanted = whole.indices[whole.indptr[vertex] : whole.indptr[vertex + 1]]
        assert shard.ids_of(listed).tolist() == wanted.tolist()
        assert shard.own.original_id[number] == whole.original_id[vertex]
        assert shard.own.degree(np.array([number]))[0] == len(wanted)
        assert shard.first_edge + shard.own.indptr[number] == whole.indptr[vertex]


@pytest.mark.parametrize("parts", PARTS)
def test_bytes_are_foretold(parts, dataset):
    whole = load_topology(dataset)
    for named in (False, True):
        shard = load_shard_of_topology(dataset, parts, numbered=named)
        if named:
            shard = with_names(shard, whole.original_id[shard.outside], whole.degree(shard.outside))
        assert shard.nbytes == shard_bytes(shard_of(whole, shard.first, shard.end, False), named)
    assert topology_bytes(dataset, parts=parts) == load_shard_of_topology(dataset, parts).nbytes
    assert topology_bytes(dataset) == whole.nbytes


def test_no_array_is_as_long_as_the_graph(dataset):
    shard = load_shard_of_topology(dataset, range(1, 2))
    assert all(len(array) <= shard.end - shard.first + 1 for array in (shard.own.indptr, shard.own.original_id))
    assert len(shard.own.indices) == dataset.edge_offsets[2] - dataset.edge_offsets[1]


def test_vertices_of_others_are_refused(dataset):
    shard = load_shard_of_topology(dataset, range(1, 2))
    for vertex in (shard.first - 1, shard.end):
        with pytest.raises(ValueError, match="the shard holds the vertices"):
            shard.own_numbers(np.array([shard.first, vertex]))


def test_original_ids_come_in_the_order_asked_for(dataset):
    ids = np.random.default_rng(0).integers(0, dataset.vertices, 500)
    assert original_ids(dataset, ids).tolist() == load_topology(dataset).original_id[ids].tolist()
    assert original_ids(dataset, ids[:0]).tolist() == []


def test_a_damaged_part_is_named(small_data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(small_data, folder)
    path = folder / "part-00001.h5"
    path.chmod(0o644)
    with h5py.File(path, "r+") as file:
        file["topology/indices"][3] += 1
    dataset = open_dataset(folder)
    load_shard_of_topology(dataset, range(2, 4))
    with pytest.raises(DataError, match=r"part-00001\.h5"):
        load_shard_of_topology(dataset, range(1, 3))
