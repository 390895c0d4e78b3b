"""Streams and events of a stand-in for a GPU, on which work is done at once, and a checker of their order.

Every operation reads and writes memory on a stream. Two uses of the same memory, one of which writes it, must be
ordered: by a stream, by an event that a stream or the host has waited for, or by a wait of the host. Vector clocks tell
(Fidge 1988): the clock of a stream says up to which operation of each other stream it comes after. Threads of the host
count as one, since they hand work to each other by locks and queues.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Clock = dict[int, int]
"""By number of a stream, its last operation that comes before."""


def join(clock: Clock, other: Clock) -> None:
    for stream, time in other.items():
        clock[stream] = max(clock.get(stream, 0), time)


Extent = tuple[int, int]
"""Addresses of the first byte of a tensor, and of the one after its last."""


@dataclass(frozen=True)
class Use:
    """Operation number `time` of a stream on some bytes of an allocation, and the line that queued it."""

    stream: int
    time: int
    line: str
    writes: bool
    extent: Extent

    def before(self, clock: Clock) -> bool:
        """Return whether what has this clock comes after the operation."""
        return clock.get(self.stream, 0) >= self.time


@dataclass
class Memory:
    """Uses of one allocation that no later write covers.

    `made_on` is the stream that gets the memory when it is given back, `kept_for` those that it waits for then.
    """

    made_on: int
    uses: list[Use] = field(default_factory=list)
    kept_for: set[int] = field(default_factory=set)


@dataclass
class _Travelling:
    """Copy from pinned memory of the host that may be under way: its memory, and the bytes that it must keep."""

    memory: Tensor
    digest: int
    use: Use


class StreamOrder:
    """Checker of one stand-in; `found` are the uses that nothing orders, as sentences."""

    def __init__(self, line: Callable[[], str]) -> None:
        self.found: list[str] = []
        self._line = line
        self._host: Clock = {}
        self._clocks: dict[int, Clock] = {}
        self._memory: dict[int, Memory] = {}
        self._travelling: list[_Travelling] = []
        self._lock = threading.RLock()

    def operation(self, reads: list[Tensor], writes: list[Tensor]) -> tuple[int, int]:
        """Note an operation on the thread's stream; its stream and number."""
        with self._lock:
            stream = current_stream().number
            clock = self._clocks.setdefault(stream, {})
            join(clock, self._host)
            clock[stream] = clock.get(stream, 0) + 1
            for writing, tensors in ((False, reads), (True, writes)):
                for each in tensors:
                    self._used(each, Use(stream, clock[stream], self._line(), writing, extent_of(each)), clock)
            return stream, clock[stream]

    def made(self, tensor: Tensor) -> None:
        """Note that memory was taken on the thread's stream."""
        with self._lock:
            self._of(tensor)

    def host_uses(self, tensor: Tensor, writes: bool, extent: Extent) -> None:
        """Note that something other than a stream, such as MPI, uses bytes of the device from now on."""
        with self._lock:
            self._check(self._of(tensor), self._host, Use(-1, 0, self._line(), writes, extent))

    def travels(self, source: Tensor, operation: tuple[int, int]) -> None:
        """Note that an operation reads pinned memory of the host."""
        with self._lock:
            use = Use(*operation, self._line(), False, extent_of(source))
            self._travelling.append(_Travelling(source, _digest(source), use))

    def recorded(self, stream: int) -> Clock:
        """Return what comes before an event recorded now."""
        with self._lock:
            clock = self._clocks.setdefault(stream, {})
            join(clock, self._host)
            return dict(clock)

    def waits(self, stream: int, clock: Clock) -> None:
        """Note that a stream waits for an event."""
        with self._lock:
            join(self._clocks.setdefault(stream, {}), clock)

    def host_waits(self, clock: Clock) -> None:
        """Note that the host waits for an event."""
        with self._lock:
            join(self._host, clock)
            for each in list(self._travelling):
                if each.use.before(self._host):
                    self._travelling.remove(each)
                    self._arrived(each)

    def keep(self, tensor: Tensor, stream: int) -> None:
        """Note that memory is given back only after what `stream` does now (record_stream)."""
        self._of(tensor).kept_for.add(stream)

    def _of(self, tensor: Tensor) -> Memory:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._memory:
            self._memory[key] = Memory(current_stream().number)
            weakref.finalize(storage, self._freed, key)
        return self._memory[key]

    def _freed(self, key: int) -> None:
        # The stream that the memory was made on gets it for its next operation.
        with self._lock:
            memory = self._memory.pop(key)
            clock = dict(self._clocks.get(memory.made_on, {}))
            join(clock, self._host)
            for use in memory.uses:
                if use.stream not in memory.kept_for and not use.before(clock):
                    self.found.append(f"{use.line}: memory is given back while stream {use.stream} may use it")

    def _used(self, tensor: Tensor, use: Use, clock: Clock) -> None:
        memory = self._of(tensor)
        self._check(memory, clock, use)
        if use.writes:
            memory.uses = [each for each in memory.uses if not _within(each.extent, use.extent)]
        memory.uses.append(use)

    def _check(self, memory: Memory, clock: Clock, use: Use) -> None:
        for other in memory.uses:
            meets = other.extent[0] < use.extent[1] and use.extent[0] < other.extent[1]
            if meets and (use.writes or other.writes) and not other.before(clock):
                streams = f"streams {use.stream} and {other.stream}"
                self.found.append(f"{use.line} and {other.line}: nothing orders uses on {streams}")

    def _arrived(self, copy: _Travelling) -> None:
        if _digest(copy.memory) != copy.digest:
            self.found.append(f"{copy.use.line}: pinned memory was changed before its copy had ended")


def extent_of(tensor: Tensor) -> Extent:
    """Return the addresses between which `tensor`, which has elements, is stored."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _within(part: Extent, whole: Extent) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def _digest(memory: Tensor) -> int:
    return zlib.crc32(memory.contiguous().view(-1).view(torch.uint8).numpy())


class Stream:
    """Stream of the stand-in."""

    order: StreamOrder
    """The checker that is at work."""
    on_wait: Callable[[], None]
    """Called when the host waits."""
    _made = 0

    def __init__(self, device: Any = None, **_: Any) -> None:
        Stream._made += 1
        self.number, self.device = Stream._made, device

    def synchronize(self) -> None:
        Stream.on_wait()
        self.order.host_waits(self.order.recorded(self.number))

    def wait_stream(self, other: Stream) -> None:
        self.order.waits(self.number, self.order.recorded(other.number))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event


class Event:
    """Event of the stand-in."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._clock: Clock = {}

    def record(self, stream: Stream | None = None) -> None:
        self._clock = Stream.order.recorded((stream or current_stream()).number)

    def wait(self, stream: Stream | None = None) -> None:
        Stream.order.waits((stream or current_stream()).number, self._clock)

    def synchronize(self) -> None:
        Stream.on_wait()
        Stream.order.host_waits(self._clock)

    def query(self) -> bool:
        return False


_of_thread = threading.local()
DEFAULT = Stream()


def current_stream(device: Any = None) -> Stream:
    """Return the stream of the calling thread."""
    return getattr(_of_thread, "stream", DEFAULT)


@contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Queue work of the calling thread on `chosen` while the body runs."""
    before = current_stream()
    _of_thread.stream = chosen or before
    try:
        yield
    finally:
        _of_thread.stream = before
