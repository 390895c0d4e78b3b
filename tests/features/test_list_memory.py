"""Lists in a file: the reads that are expected of them, and the blocks that are kept in memory."""

from pathlib import Path

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology, layout, with_lists_in
from leapmpi.features import list_memory
from leapmpi.features.list_memory import hold_most_read
from leapmpi.sampling.block import indptr_of
from leapmpi.system.unnamed_files import mapped_file

EDGES = 4096
"""Edges of a block of a small topology."""


def topology_of(lists):
    """A topology of these lists, with its edges in a file and a weight on each."""
    indptr = indptr_of(np.array([len(each) for each in lists]))
    indices, n = np.concatenate(lists).astype(np.int32), len(lists)
    like = Topology(indptr, indices, np.arange(n), np.ones(len(indices), np.float32), np.ones(n))
    found = with_lists_in(like, mapped_file(layout(like.list_arrays)[-1], "lists take"))
    found.indices[:], found.edge_weight[:] = indices, 1
    return found


def locked_bytes():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck")]
    return int(line.split()[1]) * 1024


def test_the_blocks_most_read_are_kept_in_memory(monkeypatch):
    # Eight blocks of one list each, read 8, 1, 7, 2, ... times.
    reads = np.array([8, 1, 7, 2, 6, 3, 5, 4], float)
    topology = topology_of([np.zeros(EDGES)] * len(reads))
    asked = []

    def keep(addresses, sizes):
        asked.append((addresses, sizes))
        return int(sizes.sum())

    monkeypatch.setattr(list_memory, "keep_in_memory", keep)
    held = hold_most_read(topology, reads, -1, 3 * EDGES * 8)
    assert held == (type(held)(3 * EDGES * 8, 21 / 36, False))
    for (addresses, sizes), array in zip(asked, topology.list_arrays.values(), strict=True):
        np.testing.assert_array_equal((addresses - array.ctypes.data) // (EDGES * array.itemsize), [0, 2, 4])
        np.testing.assert_array_equal(sizes, [EDGES * array.itemsize] * 3)


def test_memory_holds_what_it_says_and_no_more():
    topology, before = topology_of([np.zeros(5 * EDGES)] * 20), locked_bytes()
    room = 40 * EDGES * 8
    held = hold_most_read(topology, np.arange(20.0), 10, room)
    if held.refused:
        pytest.skip("the system limits locked memory (ulimit -l)")
    assert 0 < held.nbytes <= room
    assert held.nbytes <= locked_bytes() - before <= room
    assert 0.3 < held.share < 1
    assert hold_most_read(topology, np.arange(20.0), 10, 100).nbytes == 0, "no block has room"


def test_a_limit_on_locked_memory_is_reported(monkeypatch):
    monkeypatch.setattr(list_memory, "keep_in_memory", lambda addresses, sizes: int(sizes[:1].sum()))
    held = hold_most_read(topology_of([np.zeros(EDGES)] * 6), np.array([1.0, 0, 1, 0, 1, 0]), -1, 1 << 30)
    assert held.refused
    assert held.share == pytest.approx(1 / 3)
