"""Latency and bandwidth between ranks, measured with the communicator of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.system.phase_timers import median_seconds

if TYPE_CHECKING:
    from leapmpi.comm.mpi_buffers import Array
    from leapmpi.comm.mpi_communicator import MPICommunicator
    from leapmpi.comm.world import World

_BYTES = 4 << 20
_REPEATS, _PINGS = 3, 20


def measured(world: World, on_gpu: bool) -> list[dict[str, Any]]:
    """Measure links: one entry per distance in ranks (1, 2, 4, ... up to half of them) and memory. Collective.

    Every rank sends to rank + distance, in three rounds such that no rank sends and receives at once. `mbytes` is the
    rate from each rank in 10^6 bytes per second. `microseconds` is the median time of a message of 8 bytes until both
    ends are done. `crosses_nodes` marks ranks that send to another node. Empty for one rank.
    """
    if world.size == 1:
        return []
    # Imported here: the communicator needs kernels that can be compiled.
    from leapmpi.comm.mpi_communicator import MPICommunicator
    from leapmpi.comm.world import cuda_aware, load_mpi

    # GPU memory is measured only if every rank has a GPU.
    host = MPICommunicator(world.comm)
    ways = [("host", host, False)]
    if all(_gathered(host, float(on_gpu))):
        ways.append(("gpu, staged", MPICommunicator(world.comm), True))
        if cuda_aware(load_mpi())[0]:
            ways.append(("gpu, direct", MPICommunicator(world.comm, direct=True), True))

    nodes = np.array(_gathered(host, float(world.node)))
    distances = [1 << power for power in range((world.size // 2).bit_length())]
    return [
        {
            "memory": memory,
            "distance": distance,
            "crosses_nodes": (nodes != np.roll(nodes, -distance)).tolist(),
            "mbytes": [
                round(_BYTES / 1e6 / each, 1) for each in _seconds(communicator, distance, _BYTES, _REPEATS, gpu)
            ],
            "microseconds": [round(each * 1e6, 1) for each in _seconds(communicator, distance, 8, _PINGS, gpu)],
        }
        for memory, communicator, gpu in ways
        for distance in distances
    ]


def rounds(size: int, distance: int) -> list[np.ndarray]:
    """Return the senders of each round, bool[size]. No rank sends and receives in one round."""
    ranks = np.arange(size)
    wraps = ranks + distance >= size
    odd = ranks // distance % 2 == 1
    return [~odd & ~wraps, odd & ~wraps, wraps]


def _seconds(communicator: MPICommunicator, distance: int, size: int, repeats: int, gpu: bool) -> list[float]:
    """Return the median seconds for `size` bytes from each rank to rank + distance, by rank."""
    result = np.zeros(communicator.size)
    for senders in rounds(communicator.size, distance):
        transfer = _transfer(communicator, distance, senders, size, gpu)
        spent = np.array(_gathered(communicator, median_seconds(transfer, repeats, communicator.barrier)))
        result[senders] = np.maximum(spent, np.roll(spent, -distance))[senders]
    return result.tolist()


def _transfer(
    communicator: MPICommunicator, distance: int, senders: np.ndarray, size: int, gpu: bool
) -> Callable[[], None]:
    """Return a function in which each rank of `senders` (bool[ranks]) sends `size` bytes to rank + distance."""
    rank, ranks = communicator.rank, communicator.size
    target, source = (rank + distance) % ranks, (rank - distance) % ranks
    sent, received = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    sent[target] = size * senders[rank]
    received[source] = size * senders[source]
    send: Array
    receive: Array
    if gpu:
        import torch

        send, receive = (torch.ones(int(each.sum()), dtype=torch.uint8, device="cuda") for each in (sent, received))
    else:
        send, receive = np.ones(sent.sum(), np.uint8), np.empty(received.sum(), np.uint8)
    return lambda: communicator.exchange(send, sent, receive, received, "control")


def _gathered(communicator: MPICommunicator, value: float) -> list[float]:
    """Return one number of each rank, by rank. Collective."""
    return communicator.all_gather_rows(np.array([value])).reshape(-1).tolist()
