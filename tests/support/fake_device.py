"""Device memory without a device: tensors that behave towards `communicator` as a GPU's do, and what MPI gets.

Work on a device tensor is queued, as on a CUDA stream, and happens when somebody synchronises with it or a later
operation on device tensors follows it in the queue. Whoever hands such memory to MPI unsynchronised sends old bytes.
"""

from typing import Any, ClassVar

import numpy as np
import torch


class FakeDevice(torch.Tensor):
    """A tensor in host memory that says it is on a GPU."""

    queue: ClassVar[list] = []

    # Operations that run on the device, in the order of its queue; the others look at shapes only.
    _ORDERED = frozenset({"copy_", "__setitem__", "__iadd__", "add_"})

    @staticmethod
    def of(array: np.ndarray) -> "FakeDevice":
        """A device tensor with a copy of `array`."""
        return torch.from_numpy(array.copy()).as_subclass(FakeDevice)

    @property
    def is_cuda(self) -> bool:
        return True

    def numpy(self):
        raise TypeError("device memory cannot be read by the host")

    def synchronise(self) -> None:
        """Do all queued work."""
        while FakeDevice.queue:
            FakeDevice.queue.pop(0)()

    def host(self) -> np.ndarray:
        """The content, after all queued work."""
        self.synchronise()
        return self.as_subclass(torch.Tensor).numpy()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in cls._ORDERED:
            cls.synchronise(None)
        return super().__torch_function__(func, types, args, kwargs)


def launch(tensor: FakeDevice, work) -> None:
    """Queue `work`, a function of the tensor's memory, on the device."""
    memory = tensor.as_subclass(torch.Tensor)
    FakeDevice.queue.append(lambda: work(memory))


class SpyComm:
    """A communicator that notes which buffers it is handed to send or fill."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.handed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Isend(self, buffer: list, dest: int, tag: int = 0) -> Any:
        self.handed.append(buffer[0])
        return self._comm.Isend(buffer, dest, tag)

    def Irecv(self, buffer: list, source: int, tag: int = -1) -> Any:
        self.handed.append(buffer[0])
        return self._comm.Irecv(buffer, source, tag)
