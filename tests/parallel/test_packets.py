"""Bytes whose number only their sender knows arrive whole, whether or not they fit into the first message."""

import numpy as np
import pytest

from leapmpi.comm.communicator import CommunicationError
from leapmpi.comm.flow_control import FRAGMENT
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.comm.packets import Packets

CODE = 6  # that of uint8


@pytest.fixture
def communicator(world_comm):
    return MPICommunicator(world_comm)


def sent(origin, to, size, number):
    """What rank `origin` sends to rank `to` in exchange `number`."""
    return ((np.arange(size) * (origin + 3) + 5 * to + number) % 251).astype(np.uint8)


def check_exchange(communicator, packets, size_between, number):
    """One exchange of size_between(origin, to) bytes for every pair of ranks."""
    ranks, rank = range(communicator.size), communicator.rank
    parts = [sent(rank, to, size_between(rank, to), number) for to in ranks]
    received, theirs = packets.exchange(np.concatenate(parts), np.array([len(each) for each in parts]), CODE)
    assert theirs.tolist() == [size_between(origin, rank) for origin in ranks]
    expected = np.concatenate([sent(origin, rank, size_between(origin, rank), number) for origin in ranks])
    assert np.array_equal(received, expected)


def test_sizes_may_grow_shrink_and_differ_between_pairs(communicator):
    packets = Packets(communicator)
    for number, scale in enumerate([0, 100, 5000, 5100, 9000, 10, 0, 3 * FRAGMENT // 7, FRAGMENT, 2 * FRAGMENT + 1, 7]):

        def size_between(origin, to, scale=scale, number=number):
            return scale * ((origin + 2 * to + number) % 4) // 2

        check_exchange(communicator, packets, size_between, number)


@pytest.mark.parametrize("seed", range(8))
def test_any_sizes_in_a_row(communicator, seed):
    packets = Packets(communicator)
    # Small and large ones alike.
    scales = (2.0 ** np.random.default_rng(seed).uniform(0, 18, 6)).astype(int).tolist()
    for number, scale in enumerate(scales):
        check_exchange(communicator, packets, lambda origin, to, s=scale: s * (1 + origin + to) % (1 << 18), number)


def test_another_type_than_expected_is_refused(communicator):
    if communicator.size != 2:
        pytest.skip("more ranks would leave messages under way, one sends none")
    own = CODE if communicator.rank else CODE - 1
    sizes = np.full(communicator.size, 8)
    with pytest.raises(CommunicationError, match="expected"):
        Packets(communicator).exchange(np.zeros(8 * communicator.size, np.uint8), sizes, own)
    communicator.barrier()
