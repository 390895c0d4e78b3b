"""Loading, checks and compilation of the user's code, given as my_file.py:MySampler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

from leapmpi.config.user_code import arguments_of, describe_error, load_named
from leapmpi.errors import ConfigError, Interrupted, counted
from leapmpi.sampling.user_samplers.api import NONE, OwnSampler, holds
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_ATTEMPTS = 1000
"""Repeated draws in a row after which the sampler is refused."""

NO_NEIGHBOUR, REPEATS = -1, -2
"""Results of `pick` in place of a count: the vertex is not an in-neighbour, or every draw is a repetition."""

compile_uncached = numba.njit(nogil=True)
"""Compiler for code that differs from class to class, hence without a cache."""

compile_checked = numba.njit(nogil=True, boundscheck=True)
"""Compiler for the user's functions, with bounds checks: errors in place of crashes."""


_NEXT, _TRANSIT = ("neighbours", "number", "size", "drawn", "word"), ("step", "vertex", "degree")
"""Arguments of the two functions of a class."""

_EXAMPLES = {
    "next": ((np.arange(8), 0, 4, np.empty(0, np.int64), np.uint64(0)), "one of neighbours, or NONE"),
    "transit": ((0, 0, 8), "True or False"),
}
"""Arguments of a first call of each function, and what it shall return."""


@functools.cache
def load_custom(named: str) -> type[OwnSampler]:
    """Load the class `named` (path.py:Class). Runs the file, once in a process. Raises ConfigError."""
    found = load_named(named, "--sampler")
    if not (isinstance(found, type) and issubclass(found, OwnSampler) and found is not OwnSampler):
        path, _, name = named.rpartition(":")
        raise ConfigError(
            f"--sampler {named}: {path} has no class {name} made from leapmpi.sampling.user_samplers.api.OwnSampler"
        )
    if found.next is OwnSampler.next:
        raise ConfigError(f"--sampler {named}: the class defines no next({', '.join(_NEXT)})")
    for written, names in ((found.next, _NEXT), (found.transit, _TRANSIT)):
        if written is not None and len(arguments_of(written)) != len(names):
            raise ConfigError(f"--sampler {named}: {written.__name__} does not take ({', '.join(names)})")
    return found


def sizes_of(custom: type[OwnSampler], fanouts: tuple[int, ...], named: str) -> tuple[int, ...]:
    """Return the draws per step: sizes of the class, or else the fan-outs. Raises ConfigError for invalid sizes."""
    sizes = custom.sizes
    if not isinstance(sizes, tuple | list) or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
        raise ConfigError(f"--sampler {named}: sizes is {sizes!r}; give positive whole numbers, one per step")
    if sizes and len(sizes) != len(fanouts):
        raise ConfigError(
            f"--sampler {named}: it has {counted(len(sizes), 'step')}, but --fanout names "
            f"{counted(len(fanouts), 'layer')}; "
            f"add --fanout {','.join(map(str, sizes))}"
        )
    return tuple(sizes) or fanouts


@compiled
def _sort_few(values):
    """Sort in place, by insertion."""
    for i in range(1, len(values)):
        value, k = values[i], i
        while k > 0 and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value


@functools.cache
def picker(custom: type[OwnSampler]) -> Callable:
    """Return a compiled function pick(names, size, unique, base, positions) that draws by the class's `next`.

    names: int64[k], ascending original ids; base: uint64, seed of the random words. Writes the positions in `names` of
    the drawn vertices to `positions` (int64[size]) and returns (their number, 0), or (NO_NEIGHBOUR or REPEATS, the
    vertex).
    """
    next_vertex = compile_checked(custom.next)

    @compile_uncached
    def pick(names, size, unique, base, positions):
        # Take all of a short list.
        if unique and len(names) <= size:
            for j in range(len(names)):
                positions[j] = j
            return len(names), 0

        # Draw one by one; redo a repeated draw with another word if draws must be distinct.
        drawn, taken = np.empty(size, np.int64), 0
        for number in range(size if len(names) else 0):
            for attempt in range(_ATTEMPTS):
                word = fold(base, number) if attempt == 0 else fold(fold(base, number), attempt)
                vertex = np.int64(next_vertex(names, number, size, drawn[:taken], word))
                if vertex == NONE:
                    break
                place = np.searchsorted(names, vertex)
                if place == len(names) or names[place] != vertex:
                    return NO_NEIGHBOUR, vertex
                if not (unique and holds(drawn[:taken], vertex)):
                    drawn[taken], positions[taken] = vertex, place
                    taken += 1
                    break
                if attempt == _ATTEMPTS - 1:
                    return REPEATS, vertex
        _sort_few(positions[:taken])
        return taken, 0

    return pick


def refused(named: str, error: Exception, custom: type[OwnSampler], function: str) -> ConfigError:
    """Return the ConfigError for an exception in `function` of the user's class, or in its compilation."""
    written = getattr(custom, function)
    if isinstance(error, numba.core.errors.NumbaError):
        if "none" not in str(error):
            return ConfigError(f"--sampler {named}: numba cannot compile it: {_sentence(error)}")
        # A function that always raises has no result for numba either: an example tells the two apart.
        try:
            arguments, wanted = _EXAMPLES[function]
            if written(*arguments) is None:
                return ConfigError(f"--sampler {named}: {function} returns nothing; return {wanted}")
            return ConfigError(f"--sampler {named}: numba cannot compile it: {_sentence(error)}")
        except Interrupted:
            raise
        except Exception as raised:
            error = raised

    # Compiled code has no line for an index or a division by itself.
    described = describe_error(error, named)
    if ", line " not in described:
        code = written.__code__
        described += f", in {function}, which begins at {Path(code.co_filename).name}, line {code.co_firstlineno}"
    return ConfigError(f"--sampler {named}: it raised {described}")


def _sentence(error: Exception) -> str:
    """Return the type of `error` and the first line of its message outside numba's frame."""
    lines = [line.strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith(("Failed in", "During:", "No implementation"))]
    return f"{type(error).__name__}: {messages[0]}" if messages else type(error).__name__
