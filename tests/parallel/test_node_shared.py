"""The topology of a node: one copy that all its ranks see, or equal private ones where memory cannot be shared."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from leapmpi.comm import shared_memory
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.errors import DataError, ResourceError
from leapmpi.features import node_shared
from leapmpi.features.node_shared import share_topology
from tests.support import datasets

NAMES = ("indptr", "indices", "original_id")


@pytest.fixture(scope="module")
def dataset(world, folder):
    wanted = datasets.Variant("single", "uneven", 7)
    datasets.build(world.comm, folder, {wanted})
    return open_dataset(wanted.folder(folder))


def check_equal(topology, dataset):
    private = load_topology(dataset)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(topology, name), getattr(private, name))
        assert getattr(topology, name).dtype == getattr(private, name).dtype


def mapped_inodes():
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "leapmpi-topology" in line}


def test_all_ranks_see_one_copy(world, dataset):
    before = mapped_inodes()
    topology, held = share_topology(world, dataset)
    assert held == "one copy per node"
    check_equal(topology, dataset)
    (inode,) = mapped_inodes() - before
    assert len(set(world.comm.allgather(inode))) == 1
    # What one rank writes, the others read.
    world.comm.barrier()
    if world.rank == world.size - 1:
        topology.original_id[0] = -77
    world.comm.barrier()
    assert topology.original_id[0] == -77


def test_no_name_and_no_handle_is_left(world, dataset):
    handles = len(os.listdir("/proc/self/fd"))
    topology, _ = share_topology(world, dataset)
    assert len(os.listdir("/proc/self/fd")) <= handles + 1  # Python's mmap keeps one of its own
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "leapmpi-topology" in line]
    assert all(line.endswith("/memfd:leapmpi-topology (deleted)") for line in lines)
    del topology


@pytest.mark.parametrize("which", ["one rank", "all ranks"])
@pytest.mark.parametrize("reason", ["no such process", "a stranger's file"])
def test_ranks_that_cannot_reach_it_hold_equal_copies(world, dataset, which, reason, monkeypatch, tmp_path):
    fails = world.rank == world.size - 1 if which == "one rank" else world.rank > 0
    stranger = tmp_path / "stranger"
    stranger.write_bytes(bytes(10))
    genuine = os.open

    def fail(path, flags, *more, **keywords):
        if not str(path).startswith("/proc/"):
            return genuine(path, flags, *more, **keywords)
        if reason == "no such process":
            raise FileNotFoundError(2, "No such file or directory")
        return genuine(stranger, flags)

    if fails:
        monkeypatch.setattr(shared_memory.os, "open", fail)
    topology, held = share_topology(world, dataset)
    monkeypatch.undo()
    assert held == ("a copy per rank" if world.size > 1 else "one copy per node")
    check_equal(topology, dataset)


def test_too_little_memory_is_reported_on_all_ranks(dataset, monkeypatch, world):
    monkeypatch.setattr(node_shared, "layout", lambda arrays: [0, 0, 0, 1 << 60])
    with pytest.raises(ResourceError, match="memory available"):
        share_topology(world, dataset)
    world.comm.barrier()


def test_a_damaged_part_is_reported_on_all_ranks(dataset, monkeypatch, world):
    filled = node_shared.fill_topology

    def fill(dataset, part, topology):
        if part == 3:
            raise DataError("part-00003.h5: damaged")
        time.sleep(0.01)
        filled(dataset, part, topology)

    monkeypatch.setattr(node_shared, "fill_topology", fill)
    with pytest.raises(DataError, match="part-00003"):
        share_topology(world, dataset)
    world.comm.barrier()
