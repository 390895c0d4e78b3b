"""A GPU for machines without one: tensors that are on "cuda:0" for torch and for leapmpi, in memory of their own.

The package's tests train on it, the GPU's way to the letter: it refuses what a GPU refuses (host and device tensors in
one operation, numpy views, memory that is not pinned where it must be), counts what a GPU is slow at (operations,
waits of the host, copies), and checks the order of streams (stream_order.py).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import leapmpi
from tests.support.stream_order import Event, Stream, StreamOrder, current_stream, stream

DEVICE = torch.device("cuda", 0)
ADDRESSES = 1 << 60
"""Added to addresses of host memory: no host memory is there."""

aten = torch.ops.aten
_COPIES = {aten.copy_.default, aten._to_copy.default}
_WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.equal.default: "equal",
    aten.bincount.default: "bincount",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.unique_consecutive.default: "unique",
}
"""Operations whose result, or its size, the host needs."""
_ALLOCATIONS = {aten.new_empty.default, aten.empty_like.default, aten.new_empty_strided.default}
"""Operations that run nothing on the device."""
_MASKED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
_PACKAGE = f"{Path(leapmpi.__file__).parent}/"


class Refused(RuntimeError):
    """What no GPU would do."""


class Gpu:
    """What happened on the stand-in: operations by name, and waits of the host and copies by kind and line."""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        self.phases: Counter[str] | None = None
        self.waits: Counter[tuple[str, str]] = Counter()
        self.copies: Counter[tuple[str, str]] = Counter()
        self.order = StreamOrder(line)
        self.pinned: dict[int, Tensor] = {}
        self.registered: dict[int, int] = {}

    def launched(self, operation: str) -> None:
        """Note an operation; by phase too, where these are counted."""
        self.operations[operation] += 1
        # A number for the host is a copy.
        if self.phases is not None and "_local_scalar_dense" not in operation:
            self.phases[phase()] += 1

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether `tensor` is in memory of the host that is pinned."""
        return tensor.untyped_storage().data_ptr() in self.pinned

    def waits_for(self, kind: str) -> None:
        """Note that the host waits for the thread's stream."""
        self.waits[kind, line()] += 1
        self.order.host_waits(self.order.recorded(current_stream().number))

    def forget(self) -> None:
        """Count from 0 on."""
        for each in (self.operations, self.waits, self.copies):
            each.clear()


def line() -> str:
    """Return the line of leapmpi that runs, as file:function."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            return f"{file.removeprefix(_PACKAGE)}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


PHASES = {
    "numbering": ("device_frontier.py:begin", "device_frontier.py:add", "device_frontier.py:_clear"),
    "draws": ("device/",),
    "exchange": ("comm/", "features/"),
    "loss": ("nn/tasks/",),
    "optimizer": ("training/optimizer.py",),
}
"""Functions by phase of an iteration, in their order of precedence; the others are those of layers."""


def phase() -> str:
    """Return the phase of the functions of leapmpi that run."""
    running, frame = [], sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            running.append(f"{frame.f_code.co_filename.removeprefix(_PACKAGE)}:{frame.f_code.co_name}")
        frame = frame.f_back
    for name, parts in PHASES.items():
        if any(part in function for part in parts for function in running):
            return name
    return "layers"


gpu = Gpu()


class DeviceTensor(Tensor):
    """Tensor on the stand-in for a GPU, in `memory`, which the host must not see."""

    memory: Tensor

    @staticmethod
    def __new__(cls, memory: Tensor, requires_grad: bool = False) -> DeviceTensor:
        strided = memory.layout == torch.strided
        made = Tensor._make_wrapper_subclass(
            cls, memory.shape, strides=memory.stride() if strided else None,
            storage_offset=memory.storage_offset() if strided else None,
            dtype=memory.dtype, device="meta", requires_grad=requires_grad,
        )  # fmt: skip
        made.memory = memory
        return made

    def __repr__(self, *_: Any, **__: Any) -> str:
        return f"DeviceTensor({self.memory!r})"

    @classmethod
    def of(cls, array: np.ndarray) -> DeviceTensor:
        """Copy `array` to the device."""
        found = torch.from_numpy(array).to(DEVICE)
        assert isinstance(found, DeviceTensor)
        return found

    # For torch's own code it has no data, which makes it ask __torch_dispatch__; for everybody else it is on a GPU.
    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)

    def get_device(self) -> int:
        return 0

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        if args and isinstance(args[0], DeviceTensor):
            args = (DEVICE, args[0].dtype, *args[1:])
        if args and isinstance(args[0], str | torch.device):
            kwargs, args = {**kwargs, "device": args[0]}, args[1:]
        if "device" in kwargs and kwargs["device"] is not None and torch.device(kwargs["device"]).type == "cuda":
            kwargs.pop("device")
        return super().to(*args, **kwargs) if args or kwargs else self

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        dtype = dtype or (self.dtype if not isinstance(data, Tensor) else None)
        return torch.tensor(data, dtype=dtype, device=device or DEVICE, requires_grad=requires_grad)

    def record_stream(self, stream: Stream) -> None:
        gpu.order.keep(self.memory, stream.number)

    def pin_memory(self, *_: Any) -> Tensor:
        raise Refused("memory of the device cannot be pinned")

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.")

    __array__ = numpy

    def __setitem__(self, index: Any, value: Any) -> None:
        # torch would make a tensor without data of a number.
        value = value if isinstance(value, Tensor) else DeviceTensor(torch.scalar_tensor(value, dtype=self.dtype))
        super().__setitem__(index, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceTensor:
        made = DeviceTensor(self.memory.detach().clone(), self.requires_grad)
        gpu.launched("aten.clone.default")
        made._is_param = getattr(self, "_is_param", False)
        memo[id(self)] = made
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.memory.data_ptr() + ADDRESSES

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, DeviceTensor):
            raise Refused("a tensor of the host in the place of one on the device")
        self.memory = value.memory
        Tensor.data.__set__(self, value)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among operands or results, which torch gives in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def with_each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return `value`, operands or results, with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([with_each(change, each) for each in value])
    return {name: with_each(change, each) for name, each in value.items()} if isinstance(value, dict) else value


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation with a tensor of the device among its operands."""
    if function in _COPIES:
        return copied(function, args, kwargs)
    if function is aten.index_put.default and not isinstance(args[2], DeviceTensor) and args[2].is_meta:
        # Zeros of torch's own gradient of index_put_, which are without data as torch takes its operand to be.
        args = *args[:2], DeviceTensor(torch.zeros(args[2].shape, dtype=args[2].dtype)), *args[3:]
    operands = list(tensors_in((args, kwargs)))
    for each in operands:
        if not isinstance(each, DeviceTensor):
            if each.device.type != "cpu":
                raise Refused(f"{function}: an array of the host, {tuple(each.shape)}, that torch copies by itself")
            if each.dim():
                raise Refused(f"{function}: a tensor of the host, {tuple(each.shape)}, among tensors of the device")
    inner, named = with_each(host, (args, kwargs))
    if "device" in named:
        if torch.device(named["device"] or DEVICE).type == "cpu":
            return function(*inner, **named)
        named["device"] = torch.device("cpu")
    found = function(*inner, **named)

    if not function.is_view and function not in _ALLOCATIONS:
        gpu.launched(str(function))
        written = [
            each for each, of in named_operands(function, args, kwargs) if of.alias_info and of.alias_info.is_write
        ]
        note(operands, [*tensors_in(written), *tensors_in(found)])
    if function in _ALLOCATIONS:
        gpu.order.made(found)
    if kind := kind_of_wait(function, args, kwargs):
        gpu.waits_for(kind)
    return handed_back(function, found, args, kwargs)


def kind_of_wait(function: Any, args: Any, kwargs: dict[str, Any]) -> str:
    """Return why the host waits for the operation; nothing where it goes on."""
    if function in _MASKED and any(each is not None and each.dtype == torch.bool for each in args[1]):
        return "mask"
    if function is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        return "repeat_interleave"
    return _WAITS.get(function, "")


def named_operands(function: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield operands with what the operation's schema says of them."""
    for number, argument in enumerate(function._schema.arguments):
        if number < len(args):
            yield args[number], argument
        elif argument.name in kwargs:
            yield kwargs[argument.name], argument


def note(read: Any, written: Any) -> Any:
    """Note an operation of the thread's stream: the memory that it reads and writes."""
    mine = [[host(each) for each in tensors_in(some)] for some in (written, read)]
    writes, reads = ([each for each in some if each.layout == torch.strided and each.numel()] for some in mine)
    changed = {each.untyped_storage()._cdata for each in writes}
    return gpu.order.operation([each for each in reads if each.untyped_storage()._cdata not in changed], writes)


def host(value: Any) -> Any:
    return value.memory if isinstance(value, DeviceTensor) else value


def handed_back(function: Any, found: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result on the device; operations in place return the tensor that they changed."""
    changed = [each for each, of in named_operands(function, args, kwargs) if of.alias_info and of.alias_info.is_write]
    mine = {id(each.memory): each for each in changed if isinstance(each, DeviceTensor)}

    def of_device(each: Tensor) -> Tensor:
        if id(each) not in mine:
            return DeviceTensor(each)
        assert mine[id(each)].shape == each.shape, f"{function} resized its result, which the stand-in cannot"
        return mine[id(each)]

    return with_each(of_device, found)


def copied(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Copy within the device, to it, or from it."""
    if function is aten._to_copy.default:
        (source,), to, others = args, kwargs.get("device"), {**kwargs, "device": None}
        if to is None or torch.device(to).type != "cpu":
            found = function(host(source), **others)
            gpu.launched(str(function))
            note(source, found)
            return DeviceTensor(found)
        from_device(source, quick=False)
        return function(host(source), **others).clone()
    target, source, *rest = args
    quick = bool(rest[0] if rest else kwargs.get("non_blocking"))
    if not isinstance(target, DeviceTensor):
        from_device(source, quick)
        return target.copy_(host(source))
    host(target).copy_(host(source))
    if isinstance(source, DeviceTensor):
        gpu.launched(str(function))
        note(source, target)
        return target
    gpu.copies["to device", line()] += 1
    use = note([], target)
    # Memory that is not pinned is read before the call returns.
    if gpu.is_pinned(source) and quick:
        gpu.order.travels(source, use)
    elif gpu.is_pinned(source):
        gpu.waits_for("to device")
    return target


def from_device(source: Tensor, quick: bool) -> None:
    """Note a copy to the host."""
    if quick:
        raise Refused("a copy to the host that is not waited for, which the stand-in does at once")
    gpu.copies["to host", line()] += 1
    note(source, [])
    gpu.waits_for("to host")


def synchronise() -> None:
    """Wait for all streams."""
    gpu.waits_for("synchronize")
    for number in list(gpu.order._clocks):
        gpu.order.host_waits(gpu.order.recorded(number))


_library = None


def _register() -> None:
    """Let torch allocate on "cuda" by the stand-in."""
    global _library
    if _library is not None:
        return
    torch._C._ensureCUDADeviceGuardSet()
    torch._C._set_only_lift_cpu_tensors(True)
    _library = torch.library.Library("aten", "IMPL")

    def empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        made = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format)
        gpu.order.made(made)
        return DeviceTensor(made)

    def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
        return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))

    def arange(*bounds, dtype=None, layout=None, device=None, pin_memory=None):
        gpu.launched("aten.arange")
        return DeviceTensor(torch.arange(*bounds, dtype=dtype))

    _library.impl("empty.memory_format", empty, "CUDA")

    def eye(*sizes, dtype=None, layout=None, device=None, pin_memory=None):
        return DeviceTensor(torch.eye(*sizes, dtype=dtype))

    def scalar_tensor(number, *, dtype=None, layout=None, device=None, pin_memory=None):
        return DeviceTensor(torch.scalar_tensor(number, dtype=dtype))

    # Else torch makes an empty one, and resizes it.
    for name in ("arange", "arange.start", "arange.start_step"):
        _library.impl(name, arange, "CUDA")
    for name in ("eye", "eye.m"):
        _library.impl(name, eye, "CUDA")
    # A number among operands, which torch puts on what it takes for the device of the others.
    _library.impl("scalar_tensor", scalar_tensor, "Meta")
    _library.impl("empty_strided", empty_strided, "CUDA")


_PATCHES: dict[str, Any] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "get_device_name": lambda device=None: "a stand-in for a GPU",
    "get_device_properties": lambda device=None: SimpleNamespace(
        uuid="stand-in", name="a stand-in", total_memory=1 << 33
    ),
    "get_device_capability": lambda device=None: (9, 0),
    "mem_get_info": lambda device=None: (1 << 33, 1 << 33),
    "empty_cache": lambda: None,
    "synchronize": lambda device=None: synchronise(),
    "device_of": lambda tensor: nullcontext(),
    "Stream": Stream,
    "Event": Event,
    "stream": stream,
    "current_stream": current_stream,
    "cudart": lambda: _Runtime(),
}


def _interpreter() -> Any:
    """Return a context in which Triton's interpreter, if TRITON_INTERPRET=1 has it run kernels, reads this memory."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return nullcontext()
    from triton.runtime.interpreter import InterpretedFunction

    genuine = InterpretedFunction.run

    def interpreted(self: Any, *operands: Any, **named: Any) -> None:
        tensors = [each for each in operands if isinstance(each, Tensor)]
        if not all(isinstance(each, DeviceTensor) for each in tensors):
            raise Refused(f"{self.__name__}: a tensor of the host among operands")
        before = [host(each).clone() for each in tensors]
        genuine(self, *map(host, operands), **named)
        gpu.launched(f"triton.{self.__name__}")
        note(tensors, [each for each, old in zip(tensors, before, strict=True) if not torch.equal(host(each), old)])

    return mock.patch.object(InterpretedFunction, "run", interpreted)


class _Runtime:
    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        gpu.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del gpu.registered[address]
        return 0


@contextmanager
def present() -> Iterator[Gpu]:
    """While the body runs torch and leapmpi find a GPU. Raises Refused at its end if streams were not ordered."""
    _register()
    gpu.__init__()
    Stream.order, Stream.on_wait = gpu.order, lambda: gpu.waits.update({("synchronize", line()): 1})
    empty, as_tensor = torch.empty, torch.as_tensor

    def pinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Tensor:
        made = empty(*args, **kwargs)
        if pin_memory:
            assert not isinstance(made, DeviceTensor)
            gpu.pinned[made.untyped_storage().data_ptr()] = made
        return made

    def seen(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        memory = getattr(data, "memory", None)
        if isinstance(memory, np.ndarray):
            assert gpu.registered[memory.ctypes.data] == memory.nbytes
            return DeviceTensor(torch.from_numpy(memory))
        return as_tensor(data, *args, device=device, **kwargs)

    with ExitStack() as stack:
        for name, found in _PATCHES.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, found))
        stack.enter_context(mock.patch.object(torch, "empty", pinned))
        stack.enter_context(mock.patch.object(torch, "as_tensor", seen))
        stack.enter_context(_interpreter())
        yield gpu
    if gpu.order.found:
        raise Refused("\n".join(gpu.order.found))
