"""Names of the sources of lists: those of the whole graph, from owners alone."""

import numpy as np
import pytest

import leapmpi
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.sampling.sharded import owner_names
from leapmpi.sampling.sharded.topology_shard import load_shard_of_topology, shard_of
from tests.support import datasets

PLAIN = datasets.Variant("single", "hash", 4)


@pytest.mark.parametrize("answered", [1, 1 << 18])
def test_owners_name_the_sources_of_lists(answered, folder, world, monkeypatch):
    monkeypatch.setattr(owner_names, "_ANSWERED", answered)
    datasets.build(world.comm, folder, {PLAIN})
    dataset = open_dataset(PLAIN.folder(folder))
    offsets, parts = rank_offsets(dataset.offsets, world.size), parts_of_rank(dataset.parts, world.size, world.rank)
    whole, opened = load_topology(dataset), []
    shard = load_shard_of_topology(dataset, parts, numbered=True)
    monkeypatch.setattr(type(dataset), "part", lambda _, part: opened.append(part))
    found = owner_names.name_sources(shard, MPICommunicator(world.comm), offsets)
    wanted = shard_of(whole, shard.first, shard.end, True)
    assert not opened
    for name, array in wanted.own.arrays.items():
        assert np.array_equal(array, found.own.arrays[name])
    assert np.array_equal(found.outside, wanted.outside)


@pytest.mark.parametrize("strategy", ["leap", "pull"])
def test_training_opens_the_parts_of_others_for_no_names(strategy, folder, world, monkeypatch):
    datasets.build(world.comm, folder, {PLAIN})
    dataset = open_dataset(PLAIN.folder(folder))
    opened, part = set(), type(dataset).part
    monkeypatch.setattr(type(dataset), "part", lambda self, number: opened.add(number) or part(self, number))
    run = folder / f"names-{strategy}-{world.size}"
    leapmpi.train(
        dataset.folder, run=run, topology="sharded", strategy=strategy, batch_size=20, fanout="3,3", hidden=4,
        epochs=1, eval_limit=9, threads=1, log_level="error", device="cpu", overwrite=True,
    )  # fmt: skip
    assert opened <= {0, *parts_of_rank(dataset.parts, world.size, world.rank)}


@pytest.mark.parametrize("answered", [1, 1 << 18])
def test_original_ids_come_without_in_degrees_in_the_order_of_the_vertices(answered, folder, world, monkeypatch):
    monkeypatch.setattr(owner_names, "_ANSWERED", answered)
    datasets.build(world.comm, folder, {PLAIN})
    dataset, sent = open_dataset(PLAIN.folder(folder)), []
    offsets, parts = rank_offsets(dataset.offsets, world.size), parts_of_rank(dataset.parts, world.size, world.rank)
    communicator, shard = MPICommunicator(world.comm), load_shard_of_topology(dataset, parts)
    exchange = communicator.exchange
    monkeypatch.setattr(communicator, "exchange", lambda rows, *rest: sent.append(rows) or exchange(rows, *rest))
    ids = np.random.default_rng(world.rank).integers(0, dataset.vertices, 30 * (world.rank != 1))
    found = owner_names.names_by_owner(ids, shard, communicator, offsets)
    assert found.dtype == np.int64
    assert found.tolist() == load_topology(dataset).original_id[ids].tolist()
    assert all(rows.shape[1:] == (1,) for rows in sent[1::2])
