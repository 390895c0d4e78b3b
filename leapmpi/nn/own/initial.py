"""Initial weights of a user's module as functions of seed and parameter name, whatever the order of its layers.

While a module is made, `Draws` notes for each tensor the operations that filled it: a random one, and those that follow
on it alone (such as `normal_` and `mul_`). Each parameter is then filled again by its operations, from a generator that
begins with (seed, name). So initialisation is that of the module, `torch.nn.init` in a constructor included. Copies of
a tensor stay equal to it, and a tensor from which others were computed stays unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from leapmpi.system.counter_rng import fold

_WEIGHTS = 0x6F776E  # keeps weights apart from other uses of the seed

_DRAWING = ("uniform_", "normal_", "rand", "randn")
"""Operations that fill a tensor with independent numbers, by torch's names for them."""


@dataclass(frozen=True)
class _Filled:
    """The filling of a tensor of `shape`: (operation, its arguments after the tensor, its named ones) in turn.

    `number` is that of the draw, which copies share.
    """

    number: int
    shape: torch.Size
    steps: tuple[tuple[Any, Sequence[Any], Mapping[str, Any]], ...]


class Draws(TorchDispatchMode):
    """A context that notes how tensors are filled at random."""

    def __init__(self) -> None:
        super().__init__()
        # By the address of the memory.
        self._filled: dict[int, _Filled] = {}
        self._draws = 0
        self._read: set[int] = set()
        """Draws from which other tensors than copies were computed."""
        self.made = False
        """Whether the constructor has run: later computations are not part of the module."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to hide from its compiler torch would import all of it, which takes longer than a small run."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _tensors((args, kwargs))
        before = {_address(each) for each in given}
        out = func(*args, **(kwargs or {}))
        self._note(func, args, kwargs or {}, given, before, out)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, given: list[Tensor], before: set[int], out: Any) -> None:
        """Note the result `out` of `func` on the tensors `given`, whose addresses were `before`."""
        writes = any(each.alias_info is not None and each.alias_info.is_write for each in func._schema.arguments)
        made = _tensors(out)
        filled = self._after(func, args, kwargs, given) if len(made) == 1 else None
        is_view = not writes and all(_address(each) in before for each in made)
        # A draw from which other values were made must stay as it is: filled again, it would not fit them.
        if not self.made and not is_view and (filled is None or filled.shape != made[0].shape):
            self._read |= {self._filled[at].number for at in map(_address, given[writes:]) if at in self._filled}
        for each in made:
            if not writes and _address(each) in before:
                continue  # a view of what is there
            if filled is not None and filled.shape == each.shape and _is_whole(each):
                self._filled[_address(each)] = filled
            else:
                self._filled.pop(_address(each), None)
        if writes and not made:
            for each in given:
                self._filled.pop(_address(each), None)

    def _after(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> _Filled | None:
        """Describe how `func` fills its result; None where that is not by draws for it alone."""
        name = func._schema.name.removeprefix("aten::")
        # A draw of its own begins a new description; what follows on the same memory extends it.
        if name in _DRAWING and kwargs.get("generator") is None:
            shape = args[0].shape if given else torch.Size(args[0])
            fill = {"rand": torch.ops.aten.uniform_.default, "randn": torch.ops.aten.normal_.default}.get(name)
            self._draws += 1
            return _Filled(self._draws, shape, ((fill, (), {}) if fill else (func, args[1:], kwargs),))
        if name == "copy_" and _is_whole(args[1]):
            return self._filled.get(_address(args[1]))
        if len(given) != 1 or not args or args[0] is not given[0] or name.startswith(("rand", "bernoulli", "dropout")):
            return None
        earlier = self._filled.get(_address(given[0]))
        if earlier is None or earlier.shape != given[0].shape or not _is_whole(given[0]):
            return None
        return replace(earlier, steps=(*earlier.steps, (func, args[1:], kwargs)))

    @torch.no_grad()
    def draw_again(self, module: nn.Module, seed: int) -> None:
        """Fill parameters and buffers of `module` by the operations noted, each from a generator of (seed, name).

        Copies take the name of the first. Tensors filled otherwise stay unchanged. Changes torch's generator.
        """
        names: dict[int, str] = {}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            filled = self._filled.get(_address(tensor)) if _tensors(tensor) else None
            if filled is None or filled.shape != tensor.shape or filled.number in self._read:
                continue
            begin(seed, names.setdefault(filled.number, name))
            values = torch.empty_like(tensor)
            for func, args, kwargs in filled.steps:
                values = func(values, *args, **kwargs)
            tensor.copy_(values)


def begin(seed: int, name: str = "") -> None:
    """Seed torch's generator with (seed, name)."""
    digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") if name else _WEIGHTS
    torch.default_generator.manual_seed(int(fold(np.uint64(fold(np.uint64(seed), _WEIGHTS)), np.uint64(digest))) >> 1)


def _tensors(values: Any) -> list[Tensor]:
    """Return the dense tensors in `values`, which may be nested."""
    return [each for each in tree_iter(values) if isinstance(each, Tensor) and each.layout == torch.strided]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_whole(tensor: Tensor) -> bool:
    """Return whether `tensor` is all of its memory."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
