"""MPI as its contract with device memory has it: a plain library takes pointers of the host, a CUDA-aware one both.

A plain library that is given a device pointer reads it as an address of the host, and crashes or sends garbage.
"""

import ctypes
from collections import Counter
from typing import Any

import numpy as np

from leapmpi.comm.mpi_buffers import DeviceBytes
from tests.support.stand_in_gpu import ADDRESSES, DeviceTensor, Refused, gpu


class ContractComm:
    """Communicator that takes device pointers if it is `aware`, else refuses them, and counts messages by memory."""

    def __init__(self, comm: Any, aware: bool) -> None:
        self._comm, self.aware = comm, aware
        self.messages: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Isend(self, buffer: list[Any], dest: int, tag: int = 0) -> Any:
        return self._comm.Isend([self._taken(buffer[0], writes=False), *buffer[1:]], dest, tag)

    def Irecv(self, buffer: list[Any], source: int, tag: int = -1) -> Any:
        return self._comm.Irecv([self._taken(buffer[0], writes=True), *buffer[1:]], source, tag)

    def Ibcast(self, buffer: Any, root: int) -> Any:
        return self._comm.Ibcast(self._of_host(buffer), root=root)

    def Ialltoall(self, mine: Any, theirs: Any) -> Any:
        return self._comm.Ialltoall(self._of_host(mine), self._of_host(theirs))

    def Iallgather(self, mine: Any, theirs: Any) -> Any:
        return self._comm.Iallgather(self._of_host(mine), self._of_host(theirs))

    def Iallreduce(self, mine: list[Any], sums: list[Any], op: Any) -> Any:
        self._of_host(mine[0])
        return self._comm.Iallreduce(mine, sums, op=op)

    def _of_host(self, buffer: Any) -> Any:
        """Take a buffer of a collective, which carries numbers of the host."""
        if isinstance(buffer, DeviceBytes):
            raise Refused("a collective of numbers of the host was given device memory")
        return buffer

    def _taken(self, buffer: Any, writes: bool) -> Any:
        """Take a buffer of a message: the host's memory, or, once the device has ended its work on it, the device's."""
        if not isinstance(buffer, DeviceBytes):
            self.messages["host"] += 1
            return buffer
        if not self.aware:
            raise Refused("MPI that is not CUDA-aware was given a device pointer")
        assert isinstance(buffer.owner, DeviceTensor)
        self.messages["device"] += 1
        first = buffer.__cuda_array_interface__["data"][0] - ADDRESSES
        assert first > 0
        gpu.order.host_uses(buffer.owner.memory, writes, (first, first + len(buffer)))
        return np.frombuffer((ctypes.c_ubyte * len(buffer)).from_address(first), np.uint8)
