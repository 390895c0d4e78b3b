"""Launches of Triton's kernels, recorded without a GPU and compiled for any: what one would run, to the instruction."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

WHY_SKIPPED = "Triton is not installed: pip install 'leapmpi[triton]' (a wheel of 286 MB, so tests/run does not)"

_TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int32: "*i32", torch.int64: "*i64", torch.bool: "*i1"}
_ALIGNED = [["tt.divisibility", 16]]


class Launch(NamedTuple):
    """Kernel with its operands by name, tensors and integers, its constants, and options of the compiler."""

    kernel: Any
    operands: dict[str, torch.Tensor | int]
    constants: dict[str, int]
    options: dict[str, bool]


class Code(NamedTuple):
    """Machine code: registers of a thread, bytes that it spills to memory, its instructions as text, and Triton's."""

    registers: int
    spilled: int
    instructions: str
    triton: str


class _Recorder:
    """Kernel of a JITFunction that notes its launches instead of making them."""

    def __init__(self, kernel: Any, found: list[Launch]) -> None:
        self._kernel, self._found = kernel, found

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def note(*values: Any, **named: Any) -> None:
            assert all(each > 0 for each in grid)
            names = [parameter.name for parameter in self._kernel.params]
            constants = {name: value for name, value in named.items() if name in names}
            options = {name: value for name, value in named.items() if name not in names}
            # Totals that the host reads, and sizes arrays by.
            for total in (each for each in values if isinstance(each, torch.Tensor) and each.numel() == 1):
                total.fill_(1)
            operands = dict(zip(names[: len(values)], values, strict=True))
            self._found.append(Launch(self._kernel, operands, constants, options))

        return note


def recorded(run: Callable[[], object], monkeypatch: Any, *modules: Any) -> list[Launch]:
    """Return the launches of kernels of `modules` in `run`; none is made."""
    from triton.runtime.jit import JITFunction

    found: list[Launch] = []
    with monkeypatch.context() as patch:
        for module in modules:
            kernels = [name for name, each in vars(module).items() if isinstance(each, JITFunction)]
            for name in kernels:
                patch.setattr(module, name, _Recorder(getattr(module, name), found))
        run()
    return found


def compiled(launch: Launch, target: str) -> Code:
    """Compile a launch for `target` (sm_80, gfx942, ...), specialised as Triton specialises it at run time."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, dict(launch.constants), {}
    fixed = {parameter.name for parameter in launch.kernel.params if parameter.do_not_specialize}
    for number, (name, value) in enumerate(launch.operands.items()):
        if isinstance(value, torch.Tensor):
            signature[name], attributes[(number,)] = _TYPES[value.dtype], _ALIGNED
            continue
        signature[name] = "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
        if name not in fixed and value == 1:
            signature[name], constants[name] = "constexpr", 1
        elif name not in fixed and value % 16 == 0:
            attributes[(number,)] = _ALIGNED
    signature |= dict.fromkeys(launch.constants, "constexpr")
    source = ASTSource(launch.kernel, signature, constants, attributes)
    nvidia = target.startswith("sm_")
    where = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    found = triton.compile(source, target=where, options=launch.options)
    return _of_nvidia(found.asm) if nvidia else _of_amd(found.asm)


def _of_nvidia(code: dict[str, Any]) -> Code:
    import triton
    from triton import knobs

    tools, file = Path(triton.__file__).parent / "backends/nvidia/bin", Path(knobs.cache.dir) / "leapmpi.cubin"
    file.write_bytes(code["cubin"])
    usage = subprocess.run([tools / "cuobjdump", "-res-usage", file], check=True, capture_output=True, text=True)
    number = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage.stdout)}
    # It reads no code for sm_70, whose instructions are those given to the assembler.
    listing = subprocess.run([tools / "nvdisasm", "-c", file], capture_output=True, text=True)
    return Code(number["REG"], number["STACK"] + number["LOCAL"], listing.stdout or code["ptx"], code["ttir"])


def _of_amd(code: dict[str, Any]) -> Code:
    text = code["amdgcn"]
    number = {name: int(value) for name, value in re.findall(r"\.([a-z_]+):\s+(\d+)", text)}
    spilled = number["vgpr_spill_count"] + number["sgpr_spill_count"] + number["private_segment_fixed_size"]
    return Code(number["vgpr_count"], spilled, text, code["ttir"])
