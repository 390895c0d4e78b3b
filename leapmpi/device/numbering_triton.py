"""Numbers of a sample's vertices in Triton: four launches a hop, where torch takes some twenty.

Imported only if Triton is available (nn/kernels/triton_choice.py).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from leapmpi.nn.kernels.triton_choice import launch

_BLOCK = 1024
"""Vertices of one program."""


@triton.jit(do_not_specialize=["known", "count"])
def _claim(ids, place, total, known, count, BLOCK: tl.constexpr):
    # Each vertex gets the least number under which it is named, unless it has a place: all places are lower.
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    vertex = tl.load(ids + number, mask=number < count, other=0).to(tl.int64)
    tl.atomic_min(place + vertex, known + number, mask=number < count)
    if tl.program_id(0) == 0:
        tl.store(total, 0)


@triton.jit(do_not_specialize=["known", "count"])
def _count(ids, place, total, of_programs, known, count, BLOCK: tl.constexpr):
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    vertex = tl.load(ids + number, mask=number < count, other=0).to(tl.int64)
    mine = tl.load(place + vertex, mask=number < count, other=-1) == known + number
    found = tl.sum(mine.to(tl.int32), axis=0)
    tl.store(of_programs + tl.program_id(0), found)
    tl.atomic_add(total, found)


@triton.jit
def _describe(new, position, reached, vertex, indptr, original_id, inside):
    # Write columns of Destinations.
    start = tl.load(indptr + vertex, mask=inside, other=0)
    end = tl.load(indptr + vertex + 1, mask=inside, other=0)
    original = tl.load(original_id + vertex, mask=inside, other=0)
    tl.store(new + position, vertex, mask=inside)
    tl.store(new + reached + position, start, mask=inside)
    tl.store(new + 2 * reached + position, original, mask=inside)
    tl.store(new + 3 * reached + position, end - start, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _begin(roots, place, indptr, original_id, new, count, BLOCK: tl.constexpr):
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    root = tl.load(roots + number, mask=number < count, other=0).to(tl.int64)
    tl.store(place + root, number, mask=number < count)
    _describe(new, number, count.to(tl.int64), root, indptr, original_id, number < count)


@triton.jit(do_not_specialize=["known", "count", "reached"])
def _append(
    ids, place, of_programs, indptr, original_id, old, new, known, count, reached, BLOCK: tl.constexpr
):  # fmt: skip
    # Rows of `old` and `new` are those of Destinations. Each program copies some old columns, and appends its new ones.
    program = tl.program_id(0)
    number = program * BLOCK + tl.arange(0, BLOCK)
    for row in tl.static_range(4):
        kept = tl.load(old + row * known.to(tl.int64) + number, mask=number < known, other=0)
        tl.store(new + row * reached.to(tl.int64) + number, kept, mask=number < known)

    # More programs may copy than append.
    earlier = tl.minimum(program, tl.cdiv(count, BLOCK))
    before = 0
    for first in range(0, earlier, BLOCK):
        other = first + tl.arange(0, BLOCK)
        before += tl.sum(tl.load(of_programs + other, mask=other < earlier, other=0), axis=0)
    vertex = tl.load(ids + number, mask=number < count, other=0).to(tl.int64)
    mine = tl.load(place + vertex, mask=number < count, other=-1) == known + number
    position = known + before + tl.cumsum(mine.to(tl.int32), axis=0) - 1

    # Only this program changes the place of its vertices, and no other number of theirs equals the position.
    tl.store(place + vertex, position, mask=mine)
    _describe(new, position, reached.to(tl.int64), vertex, indptr, original_id, mine)


@triton.jit(do_not_specialize=["count"])
def _positions(ids, place, out, count, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    vertex = tl.load(ids + number, mask=number < count, other=0).to(tl.int64)
    tl.store(out + number, tl.load(place + vertex, mask=number < count, other=0).to(tl.int64), mask=number < count)


def begun(roots: Tensor, place: Tensor, indptr: Tensor, original_id: Tensor) -> Tensor:
    """Return `appended` of distinct `roots` (integers[k]) to nothing."""
    new, count = roots.new_empty(4, len(roots), dtype=torch.int64), len(roots)
    if count:
        launch(_begin, (triton.cdiv(count, _BLOCK),), roots, place, indptr, original_id, new, count, BLOCK=_BLOCK)
    return new


def appended(ids: Tensor, place: Tensor, indptr: Tensor, original_id: Tensor, old: Tensor) -> Tensor:
    """Append the new ones of the vertices `ids` (integers[k]) to `old`, and note their positions in `place` (int32[n]).

    `old` and the result are int64[4, reached]: vertices, first entries, original ids, degrees.
    """
    known, count = old.shape[1], len(ids)
    programs = triton.cdiv(count, _BLOCK)
    if not programs:
        return old
    total, of_programs = place.new_empty(1), place.new_empty(programs)
    launch(_claim, (programs,), ids, place, total, known, count, BLOCK=_BLOCK)
    launch(_count, (programs,), ids, place, total, of_programs, known, count, BLOCK=_BLOCK)
    reached = known + int(total)
    new = old.new_empty(4, reached)
    operands = ids, place, of_programs, indptr, original_id, old, new, known, count, reached
    launch(_append, (triton.cdiv(max(known, count), _BLOCK),), *operands, BLOCK=_BLOCK)
    return new


def positions(ids: Tensor, place: Tensor) -> Tensor:
    """Return the `place` (int32[n]) of each of the vertices `ids` (integers[k]): int64[k]."""
    out = torch.empty(len(ids), dtype=torch.int64, device=ids.device)
    if len(ids):
        launch(_positions, (triton.cdiv(len(ids), _BLOCK),), ids, place, out, len(ids), BLOCK=_BLOCK)
    return out
