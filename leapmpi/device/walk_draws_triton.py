"""Draws of random_walk.py in two Triton kernels a hop, bit-identical, where torch takes some hundred operations.

Imported only if Triton is available (nn/kernels/triton_choice.py). A row of registers holds all visits of a
destination's walks; walks of a destination run side by side.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.lists import DeviceDrawn, starts
from leapmpi.device.walk_draws import MOST_VISITS, Walks
from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import column, fold
from leapmpi.sampling.hop_sampler import ALL

_TABLE = 1024
"""Number of elements of the table of one program."""


@triton.jit
def _visited(words, begin, visit, inside, stop, topology_indptr, indices, STEPS: tl.constexpr):
    # The vertex of each visit, visit = walk * STEPS + step; -1 where the walk has ended, or is at its start. Each
    # element goes its walk's way up to its own step.
    here, walking = begin + visit * 0, inside
    found = here * 0 - 1
    for step in range(STEPS):
        first = tl.load(topology_indptr + here, mask=walking, other=0)
        degree = tl.load(topology_indptr + here + 1, mask=walking, other=0) - first
        walking = walking & (degree > 0)
        drawn = tl.umulhi(fold(words, visit * 0 + 2 * step), tl.maximum(degree, 1).to(tl.uint64)).to(tl.int64)
        here = tl.where(walking, tl.load(indices + first + drawn, mask=walking, other=0).to(tl.int64), here)
        found = tl.where(walking & (here != begin) & (visit % STEPS == step), here, found)
        walking = walking & (fold(words, visit * 0 + 2 * step + 1) >= stop)
    return found


@triton.jit(do_not_specialize=["hashed", "stop", "rows", "most"])
def _walk(
    hashed, vertices, original, degree, stop, topology_indptr, indices, original_id, counts, out, weight, rows, most,
    VISITS: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    visit = tl.arange(0, WIDTH)[None, :].to(tl.int64)
    inside = (row < rows) & (visit < VISITS)
    begin = tl.load(vertices + row, mask=row < rows, other=0)
    words = fold(fold(hashed.to(tl.uint64), tl.load(original + row, mask=row < rows, other=0)), visit // STEPS)
    vertex = _visited(words, begin, visit, inside, stop.to(tl.uint64), topology_indptr, indices, STEPS)
    name = tl.load(original_id + vertex, mask=vertex >= 0, other=-1)

    # Each vertex counts once, at its first visit.
    times, first = name * 0, name >= 0
    for number in range(VISITS):
        same = column(name, number, visit) == name
        times += same.to(tl.int64)
        first = first & ((same == 0) | (number >= visit))
    times = tl.where(first, times, 0)

    # Keep the most visited ones; of equal counts those of smaller original ids.
    above = name * 0
    for number in range(VISITS):
        theirs = column(times, number, visit)
        smaller = (theirs == times) & (column(name, number, visit) < name)
        above += ((theirs > times) | smaller).to(tl.int64)
    kept = first & (above < most)
    times, name = tl.where(kept, times, 0), tl.where(kept, name, -1)

    # Write them in the order of original ids, with weights that add up to the in-degree.
    place = name * 0
    for number in range(VISITS):
        theirs = column(name, number, visit)
        place += ((theirs >= 0) & (theirs < name)).to(tl.int64)
    total = tl.sum(times, axis=1)[:, None]
    of_visit = tl.load(degree + row, mask=row < rows, other=0).to(tl.float64) / tl.maximum(total, 1).to(tl.float64)
    at = row * most + place
    tl.store(out + at, vertex, mask=kept)
    tl.store(weight + at, (times.to(tl.float64) * of_visit).to(tl.float32), mask=kept)
    tl.store(counts + row, tl.sum(kept.to(tl.int64), axis=1)[:, None], mask=row < rows)


@triton.jit(do_not_specialize=["most"])
def _pack(indptr, wide, wide_weight, out, weight, most, BLOCK: tl.constexpr):
    # Copy the first entries of a row of `most` to their places.
    row = tl.program_id(0).to(tl.int64)
    first, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    for at in range(0, end - first, BLOCK):
        entry = at + tl.arange(0, BLOCK)
        inside = entry < end - first
        tl.store(out + first + entry, tl.load(wide + row * most + entry, mask=inside), mask=inside)
        tl.store(weight + first + entry, tl.load(wide_weight + row * most + entry, mask=inside), mask=inside)


def by_walks(hashed: int, topology: DeviceTopology, walks: Walks, to: Destinations, fanout: int) -> DeviceDrawn:
    """Draw what `by_walks` of walk_draws.py draws, for at most MOST_VISITS visits a destination."""
    assert walks.visits <= MOST_VISITS
    most, rows = walks.visits if fanout == ALL else min(fanout, walks.visits), len(to.degree)
    counts = torch.zeros_like(to.degree)
    wide = counts.new_empty(rows, most)
    wide_weight = counts.new_empty(rows, most, dtype=torch.float32)
    if rows and len(topology.indices):
        width = triton.next_power_of_2(walks.visits)
        block = max(1, _TABLE // width)
        of_rows = hashed, to.vertices, to.original, to.degree, walks.stop
        graph = topology.indptr, topology.indices, topology.original_id
        operands = *of_rows, *graph, counts, wide, wide_weight, rows, most
        sizes = {"VISITS": walks.visits, "STEPS": walks.steps, "WIDTH": width, "BLOCK": block}
        launch(_walk, (triton.cdiv(rows, block),), *operands, **sizes)
    indptr = starts(counts)
    sources, weight = _packed(indptr, wide, wide_weight)
    return DeviceDrawn(indptr, sources, weight)


def _packed(indptr: Tensor, wide: Tensor, wide_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the used entries of `wide` (int64[n, most]) and of `wide_weight` (float32[n, most])."""
    edges, most = int(indptr[-1]), wide.shape[1]
    out, weight = wide.new_empty(edges), wide_weight.new_empty(edges)
    if edges:
        block = min(128, triton.next_power_of_2(most))
        launch(_pack, (len(wide),), indptr, wide, wide_weight, out, weight, most, BLOCK=block)
    return out, weight
