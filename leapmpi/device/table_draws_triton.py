"""The functions of table_draws.py, which documents them, in Triton: bit-identical. A program reads one list.

Imported only if Triton is available (nn/kernels/triton_choice.py). Sums over a list are added entry by entry, by one
thread a list. Divisions are those of float64, which Triton rounds as torch does.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.list_draws_triton import ENTRIES, drawn_numbers, emit, law_words, numbers_at, words_at
from leapmpi.device.lists import DeviceDrawn, starts
from leapmpi.device.table_draws import Counts, Norms, scale_of_chances, weights_of_norms
from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import fold
from leapmpi.sampling.column_norms import norm_unit
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.samplers.labor_i import CLOSE, MOST_ROUNDS
from leapmpi.sampling.source_numbers import Law

_BY_TABLE, _BY_COUNTS, _BY_CHANCE, _NONE = 0, 1, 2, 3
"""Weights of drawn entries: those of the table, vertex count / edge count, 1 / chance, or none."""

_ROWS = {"BLOCK": 64, "num_warps": 2}
"""Lists of a program in which each thread adds up one."""

_VERTICES = 256
"""Vertices, or points, of a program."""


@triton.jit
def _share(word):
    # share_of_words of table_draws.py
    return (word >> 11).to(tl.float64) * tl.full((), 1.1102230246251565e-16, tl.float64)


@triton.jit(do_not_specialize=["hashed", "iteration", "turns", "whole"])
def _keep(
    hashed, iteration, turns, vertices, start, degree, indptr, indices, original_id, kept, whole, table, scales,
    of_vertex, of_edge, out, weight, RULE: tl.constexpr, WRITES: tl.constexpr, ONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    first = tl.load(indptr + row) if WRITES else row.to(tl.int64)
    done = tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        place = begin + at + tl.arange(0, BLOCK)
        inside = at + tl.arange(0, BLOCK) < length
        number = numbers_at(place, kept, whole, inside)
        source = tl.load(indices + number, mask=inside, other=0).to(tl.int64)
        found = tl.load(table + source, mask=inside, other=1.0)
        if RULE == 2:
            word = words_at(place, inside, kept, whole, indices, original_id, 0, hashed, iteration, turns, ONE)
            scale = tl.load(scales + row)
            chance = tl.where(scale > 0, tl.minimum(scale * found, 1.0), 1.0)
            taken = inside & ((chance == 1.0) | (_share(word) < chance))
            found = 1.0 / chance
        else:
            taken = inside & (found > 0)
            if RULE == 1:
                subgraphs = tl.load(of_vertex + tl.load(vertices + row))
                of_both = tl.load(of_edge + number, mask=taken, other=1)
                found = tl.maximum(subgraphs, 1).to(tl.float64) / tl.maximum(of_both, 1).to(tl.float64)
        if WRITES:
            at_out, done = emit(out, first, done, place, kept, whole, taken)
            if RULE != 3:
                tl.store(weight + at_out, found.to(tl.float32), mask=taken)
        else:
            done += tl.sum(taken.to(tl.int64), axis=0)
    if not WRITES:
        tl.store(out + row, done)


@triton.jit(do_not_specialize=["whole", "unit"])
def _add_squares(start, degree, indices, kept, whole, norms, unit, BLOCK: tl.constexpr):
    # column_norms of table_draws.py
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    divisor = tl.maximum(length, 1)
    square = tl.maximum(unit // divisor // divisor, 1)
    for at in range(0, length, BLOCK):
        inside = at + tl.arange(0, BLOCK) < length
        number = numbers_at(begin + at + tl.arange(0, BLOCK), kept, whole, inside)
        source = tl.load(indices + number, mask=inside, other=0).to(tl.int64)
        tl.atomic_add(norms + source, tl.zeros((BLOCK,), tl.int64) + square, mask=inside)


@triton.jit(do_not_specialize=["hashed", "scale", "size"])
def _poisson(hashed, norms, original_id, scale, table, size, BLOCK: tl.constexpr):
    # by_frontier of table_draws.py; `scale` holds the bits of a float64.
    vertex = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    norm = tl.load(norms + vertex, mask=vertex < size, other=0)
    name = tl.load(original_id + vertex, mask=vertex < size, other=0)
    chance = tl.minimum(norm.to(tl.float64) * scale.to(tl.int64).to(tl.float64, bitcast=True), 1.0)
    kept = (norm > 0) & (_share(fold(hashed.to(tl.uint64), name)) < chance)
    tl.store(table + vertex, tl.where(kept, 1.0 / tl.where(kept, chance, 1.0), 0.0), mask=vertex < size)


@triton.jit(do_not_specialize=["hashed", "total", "size", "points", "halvings"])
def _count_points(hashed, order, up_to, times, total, size, points, halvings, BLOCK: tl.constexpr):
    # A point counts for the first vertex in `order` whose cumulated norm is above it.
    point = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    drawn = tl.umulhi(fold(hashed.to(tl.uint64), point), point.to(tl.uint64) * 0 + total.to(tl.uint64)).to(tl.int64)
    least, most = point * 0, point * 0 + size
    for _ in range(halvings):
        middle = (least + most) >> 1
        above = (least < most) & (tl.load(up_to + middle, mask=least < most, other=0) <= drawn)
        most = tl.where(above, most, middle)
        least = tl.where(above, middle + 1, least)
    vertex = tl.load(order + least, mask=point < points, other=0)
    tl.atomic_add(times + vertex, tl.full((BLOCK,), 1, tl.int64), mask=point < points)


@triton.jit
def _importance_at(begin, at, inside, kept, whole, indices, importance):
    number = numbers_at(begin + at, kept, whole, inside)
    source = tl.load(indices + number, mask=inside, other=0).to(tl.int64)
    return source, tl.load(importance + source, mask=inside, other=1.0)


@triton.jit(do_not_specialize=["whole", "rows", "fanout"])
def _scale(
    start, degree, indices, kept, whole, importance, scales, largest, rows, fanout,
    CLOSE: tl.constexpr, MOST_ROUNDS: tl.constexpr, RAISES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # labor_i._scale, and, where it RAISES, the largest of each source, as the bits of positive float64.
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(start + row, mask=row < rows, other=0)
    length = tl.load(degree + row, mask=row < rows, other=0)
    active = length > fanout
    length = tl.where(active, length, 0)
    longest = tl.max(length, axis=0)
    total = tl.zeros((BLOCK,), tl.float64)
    for at in range(0, longest):
        _, value = _importance_at(begin, at, at < length, kept, whole, indices, importance)
        total += tl.where(at < length, 1.0 / value, 0.0)
    count = tl.where(active, length, 1).to(tl.float64)
    target = count * (count / tl.maximum(fanout, 1).to(tl.float64))
    scale = total / target

    close, rounds = tl.full((), CLOSE, tl.float64), 0
    going = tl.max(active.to(tl.int32), axis=0) > 0
    while going:
        total = tl.zeros((BLOCK,), tl.float64)
        for at in range(0, longest):
            _, value = _importance_at(begin, at, at < length, kept, whole, indices, importance)
            chance = tl.minimum(tl.where(active, scale, 1.0) * value, 1.0)
            total += tl.where(at < length, 1.0 / chance, 0.0)
        active = active & (total > target * close)
        scale = tl.where(active, scale * (total / target), scale)
        rounds += 1
        going = (tl.max(active.to(tl.int32), axis=0) > 0) & (rounds < MOST_ROUNDS)

    scale = tl.where(length > 0, scale, 0.0)
    tl.store(scales + row, scale, mask=row < rows)
    if RAISES:
        for at in range(0, longest):
            source, _ = _importance_at(begin, at, at < length, kept, whole, indices, importance)
            tl.atomic_max(largest + source, scale.to(tl.int64, bitcast=True), mask=at < length)


@triton.jit(do_not_specialize=["rows"])
def _normalise(indptr, weight, degree, out, rows, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(indptr + row, mask=row < rows, other=0)
    count = tl.load(indptr + row + 1, mask=row < rows, other=0) - first
    most = tl.max(count, axis=0)
    total = tl.zeros((BLOCK,), tl.float64)
    for at in range(0, most):
        total += tl.load(weight + first + at, mask=at < count, other=0.0).to(tl.float64)
    scale = tl.load(degree + row, mask=row < rows, other=0).to(tl.float64) / tl.where(count > 0, total, 1.0)
    for at in range(0, most):
        mine = tl.load(weight + first + at, mask=at < count, other=0.0).to(tl.float64)
        tl.store(out + first + at, (mine * scale).to(tl.float32), mask=at < count)


def _kept(topology: DeviceTopology) -> tuple[Tensor, int]:
    """Return the operands of places."""
    return topology.indices if topology.kept is None else topology.kept, len(topology.indices)


def _drawn(
    law: tuple[int, int, int], topology: DeviceTopology, table: Tensor, to: Destinations, rule: int,
    scales: Tensor | None = None, counts: Counts | None = None,
) -> DeviceDrawn:  # fmt: skip
    """Draw by `rule`; operands that it does not read are any."""
    lists, taken = len(to.degree), torch.empty_like(to.degree)
    of_lists = to.vertices, to.start, to.degree
    graph = topology.indices, topology.original_id, *_kept(topology), table, table if scales is None else scales
    counted = counts or (topology.indices, topology.indices)
    sizes = {"RULE": rule, "ONE": law[2] == 1, "BLOCK": ENTRIES}
    if lists:
        launch(_keep, (lists,), *law, *of_lists, taken, *graph, *counted, taken, taken, WRITES=False, **sizes)
    indptr = starts(taken)
    numbers = indptr.new_empty(int(indptr[-1]))
    weight = indptr.new_empty(0 if rule == _NONE else len(numbers), dtype=torch.float32)
    if len(numbers):
        launch(_keep, (lists,), *law, *of_lists, indptr, *graph, *counted, numbers, weight, WRITES=True, **sizes)
    return drawn_numbers(topology, indptr, numbers, None if rule == _NONE else weight)


def from_table(
    topology: DeviceTopology, table: Tensor, to: Destinations, weighted: bool = True, counts: Counts | None = None
) -> DeviceDrawn:
    """Return the in-neighbours in `table`, with weights as table_draws.py gives them."""
    rule = _BY_COUNTS if counts is not None else _BY_TABLE if weighted else _NONE
    return _drawn((0, 0, 1), topology, table, to, rule, counts=counts)


def by_importance(law: Law, topology: DeviceTopology, importance: Tensor, to: Destinations, fanout: int) -> DeviceDrawn:
    """Return in-neighbours with a number below their chance, with 1 / chance; fan-out ALL takes every one."""
    scales = torch.empty_like(to.degree, dtype=torch.float64)
    _find_scales(topology, importance, to, fanout, scales)
    return _drawn(law_words(law), topology, importance, to, _BY_CHANCE, scales)


def importance_of(topology: DeviceTopology, to: Destinations, fanout: int, rounds: int) -> Tensor:
    """Return the importance of each source for the destinations `to` of a whole batch: float64[n]."""
    importance = torch.ones(len(topology.original_id), dtype=torch.float64, device=topology.device)
    scales = torch.empty_like(to.degree, dtype=torch.float64)
    for _ in range(rounds):
        largest = torch.zeros_like(importance)
        _find_scales(topology, importance, to, fanout, scales, largest)
        importance = torch.where(largest > 0, importance * largest, importance)
    return importance


def _find_scales(
    topology: DeviceTopology, importance: Tensor, to: Destinations, fanout: int, scales: Tensor,
    largest: Tensor | None = None,
) -> None:  # fmt: skip
    """Write the c of destinations to `scales`, 0 for those that take every in-neighbour, and raise `largest`."""
    rows, most = len(to.degree), int(torch.iinfo(torch.int64).max) if fanout == ALL else fanout
    if rows:
        raised = scales if largest is None else largest.view(torch.int64)
        operands = to.start, to.degree, topology.indices, *_kept(topology), importance, scales, raised, rows, most
        given = {"CLOSE": CLOSE, "MOST_ROUNDS": MOST_ROUNDS, "RAISES": largest is not None, **_ROWS}
        launch(_scale, (triton.cdiv(rows, _ROWS["BLOCK"]),), *operands, **given)


def by_frontier(hashed: int, topology: DeviceTopology, to: Destinations, size: int) -> Tensor:
    """Return the table of ladies.py for the destinations `to` of a whole batch: float64[n]."""
    count, unit = len(topology.original_id), norm_unit(len(topology.original_id))
    norms = torch.zeros_like(topology.original_id)
    if len(to.degree):
        operands = to.start, to.degree, topology.indices, *_kept(topology), norms, unit
        launch(_add_squares, (len(to.degree),), *operands, BLOCK=ENTRIES)
    scale = int(np.float64(scale_of_chances(topology, norms, size)).view(np.int64))
    table = torch.empty_like(norms, dtype=torch.float64)
    if count:
        of_vertices = hashed, norms, topology.original_id, scale, table, count
        launch(_poisson, (triton.cdiv(count, _VERTICES),), *of_vertices, BLOCK=_VERTICES)
    return table


def by_norm(hashed: int, importance: Norms, size: int) -> Tensor:
    """Return the table of fast_gcn.py: float64[n]."""
    order, up_to, total = importance[1:]
    times = torch.zeros_like(order)
    if total:
        operands = hashed, order, up_to, times, total, len(order), size, len(order).bit_length()
        launch(_count_points, (triton.cdiv(size, _VERTICES),), *operands, BLOCK=_VERTICES)
    return weights_of_norms(importance, times, size)


def normalised(indptr: Tensor, weight: Tensor, degree: Tensor) -> Tensor:
    """Return `normalised` of lists.py: float32[edges]."""
    out, rows = torch.empty_like(weight), len(degree)
    if len(weight):
        launch(_normalise, (triton.cdiv(rows, _ROWS["BLOCK"]),), indptr, weight, degree, out, rows, **_ROWS)
    return out
