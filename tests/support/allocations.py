"""How many bytes a piece of code holds at most, counted: arrays of numpy, and what torch allocates for results."""

from __future__ import annotations

import tracemalloc
import weakref
from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """A context; `peak` is the most that was held in it beyond what was held before, looked at in each torch call."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch does not import its compiler to hide this context from it."""
        return False

    def __enter__(self) -> Allocations:
        tracemalloc.start()
        self._live: dict[int, int] = {}
        self._holders: Counter[int] = Counter()
        self._before, self.peak = tracemalloc.get_traced_memory()[0], 0
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        tracemalloc.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        given = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        out = func(*args, **kwargs)
        for each in tree_leaves(out):
            if isinstance(each, Tensor):
                place = each.untyped_storage().data_ptr()
                if place not in given:
                    self._live[place] = each.untyped_storage().nbytes()
                if place in self._live:
                    self._holders[place] += 1
                    weakref.finalize(each, self._release, place)
        held = tracemalloc.get_traced_memory()[0] - self._before + sum(self._live.values())
        self.peak = max(self.peak, held)
        return out

    def _release(self, place: int) -> None:
        self._holders[place] -= 1
        if not self._holders[place]:
            self._live.pop(place, None)
