"""Draws that read whole lists, in Triton: labor_0.py, weighted.py and temporal.py, bit-identical.

Imported only if Triton is available (nn/kernels/triton_choice.py). A program reads one list,
several times rather than copying it:
torch takes some hundred operations, each over all entries.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.draws_triton import uniform_places
from leapmpi.device.hashing import signed
from leapmpi.device.lists import DeviceDrawn, starts
from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import fold
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.relation_lists import RELATION_MASK
from leapmpi.sampling.samplers.weighted import LEAST, STEPS
from leapmpi.sampling.source_numbers import Law

ENTRIES = 128
"""Entries that a program reads at once."""


@triton.jit
def numbers_at(place, kept, whole, inside):
    """Return the edge numbers of entries: `place` itself below `whole`, else the number in `kept`."""
    # DeviceTopology.numbers
    copied = tl.load(kept + place - whole, mask=inside & (place >= whole), other=0)
    return tl.where(place < whole, place, copied)


@triton.jit
def words_at(place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns, ONE: tl.constexpr):
    """Return a 64-bit word for the source of each entry; unless ONE, it is kept for `turns` batches."""
    # source_numbers of uniform_draws.py
    number = numbers_at(place, kept, whole, inside)
    source = tl.load(indices + number, mask=inside, other=0).to(tl.int64)
    name = fold(hashed.to(tl.uint64), tl.load(original_id + source, mask=inside, other=0) | relation)
    if ONE:
        return name
    else:
        turn = tl.umulhi(fold(name, tl.zeros_like(place)), turns.to(tl.uint64)).to(tl.int64)
        return fold(name, 1 + (iteration + turn) // turns)


@triton.jit
def emit(out, begin, done, place, kept, whole, taken):
    """Write the numbers of taken entries in their order, after `done` others; return places and the new `done`."""
    count = taken.to(tl.int64)
    at = begin + done + tl.cumsum(count, axis=0) - count
    tl.store(out + at, numbers_at(place, kept, whole, count > 0), mask=count > 0)
    return at, done + tl.sum(count, axis=0)


@triton.jit
def _visible(place, inside, kept, whole, times, low, high):
    # Numbers and times of entries, and whether their times are from `low` to `high`.
    number = numbers_at(place, kept, whole, inside)
    time = tl.load(times + number, mask=inside, other=0)
    return number, time, inside & (low <= time) & (time <= high)


@triton.jit
def _ranked(
    place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns,
    times, low, high, ONE: tl.constexpr, TIMES: tl.constexpr,
):  # fmt: skip
    # Candidates among entries, and their words: numbers of sources, or times, the latest first.
    if TIMES:
        _, time, seen = _visible(place, inside, kept, whole, times, low, high)
        return seen, time.to(tl.uint64) ^ 0x7FFFFFFFFFFFFFFF
    else:
        word = words_at(place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns, ONE)
        return inside, word


@triton.jit(do_not_specialize=["hashed", "iteration", "turns", "low", "high", "whole", "fanout", "mask"])
def _smallest(
    hashed, iteration, turns, original, start, degree, indptr, indices, original_id, kept, whole, out,
    candidates, times, low, high, fanout, mask, ONE: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length, begin, first = tl.load(degree + row), tl.load(start + row), tl.load(indptr + row)
    relation, known = tl.load(original + row) & mask, tl.load(candidates + row)

    # The highest bits of the words that are taken, until as many words begin with them as are missing.
    limit, rank, group = tl.full((), 0, tl.uint64), fanout.to(tl.int64), known
    shift = tl.full((), 64, tl.int64)
    if TIMES:
        # Times have many bits in common.
        least, most = tl.full((), 0xFFFFFFFFFFFFFFFF, tl.uint64), limit
        for at in range(0, length, BLOCK):
            place = begin + at + tl.arange(0, BLOCK)
            inside = at + tl.arange(0, BLOCK) < length
            inside, word = _ranked(
                place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns,
                times, low, high, ONE, TIMES,
            )  # fmt: skip
            least = tl.minimum(least, tl.min(tl.where(inside, word, 0xFFFFFFFFFFFFFFFF), axis=0))
            most = tl.maximum(most, tl.max(tl.where(inside, word, 0), axis=0))
        while (shift > 0) & (((least ^ most) >> tl.maximum(shift - 1, 0).to(tl.uint64)) == 0):
            shift -= 1
        limit = tl.where(shift < 64, most >> tl.minimum(shift, 63).to(tl.uint64), 0)
    while (group > rank) & (shift > 0):
        shift -= 1
        limit = limit << 1
        below = tl.full((), 0, tl.int64)
        for at in range(0, length, BLOCK):
            place = begin + at + tl.arange(0, BLOCK)
            inside = at + tl.arange(0, BLOCK) < length
            inside, word = _ranked(
                place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns,
                times, low, high, ONE, TIMES,
            )  # fmt: skip
            below += tl.sum((inside & ((word >> shift.to(tl.uint64)) == limit)).to(tl.int64), axis=0)
        higher = rank > below
        group = tl.where(higher, group - below, below)
        rank = tl.where(higher, rank - below, rank)
        limit = limit | higher.to(tl.uint64)
    shift = tl.minimum(shift, 63).to(tl.uint64)

    done, equal = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        place = begin + at + tl.arange(0, BLOCK)
        inside = at + tl.arange(0, BLOCK) < length
        inside, word = _ranked(
            place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns,
            times, low, high, ONE, TIMES,
        )  # fmt: skip
        word = word >> shift
        same = (inside & (word == limit)).to(tl.int64)
        first_ones = (same > 0) & (equal + tl.cumsum(same, axis=0) <= rank)
        taken = inside & ((known <= fanout) | (word < limit) | first_ones)
        equal += tl.sum(same, axis=0)
        _, done = emit(out, first, done, place, kept, whole, taken)


@triton.jit(do_not_specialize=["hashed", "iteration", "turns", "whole", "fanout", "mask"])
def _below(
    hashed, iteration, turns, original, start, degree, indptr, indices, original_id, kept, whole, out, fanout, mask,
    WRITES: tl.constexpr, ONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    relation = tl.load(original + row) & mask
    most = tl.full((), 0xFFFFFFFFFFFFFFFF, tl.uint64)
    limit = most // tl.maximum(length, 1).to(tl.uint64) * tl.minimum(length, fanout).to(tl.uint64)
    first = tl.load(indptr + row) if WRITES else row.to(tl.int64)
    done = tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        place = begin + at + tl.arange(0, BLOCK)
        inside = at + tl.arange(0, BLOCK) < length
        word = words_at(place, inside, kept, whole, indices, original_id, relation, hashed, iteration, turns, ONE)
        taken = inside & ((length <= fanout) | (word < limit))
        if WRITES:
            _, done = emit(out, first, done, place, kept, whole, taken)
        else:
            done += tl.sum(taken.to(tl.int64), axis=0)
    if not WRITES:
        tl.store(out + row, done)


def _lists(topology: DeviceTopology, to: Destinations, out: Tensor, indptr: Tensor) -> tuple[Tensor | int, ...]:
    """Return the operands of lists."""
    kept = topology.indices if topology.kept is None else topology.kept
    of_lists = to.original, to.start, to.degree, indptr, topology.indices
    return (*of_lists, topology.original_id, kept, len(topology.indices), out)


def law_words(law: Law) -> tuple[int, int, int]:
    """Return the operands of `law`: hash, iteration, turns."""
    return signed(law.hashed), law.iteration, law.kept


def drawn_numbers(
    topology: DeviceTopology, indptr: Tensor, numbers: Tensor, weight: Tensor | None = None
) -> DeviceDrawn:
    """Return the edges with these `numbers` (int64[edges]) and weights float32[edges]; indptr: int64[n + 1]."""
    return DeviceDrawn(indptr, topology.indices[numbers], weight, numbers)


def smallest_numbers(law: Law, topology: DeviceTopology, to: Destinations, fanout: int) -> DeviceDrawn:
    """Draw the sources with the smallest numbers, as labor_0.py does with `fixed-size`."""
    indptr = starts(to.degree if fanout == ALL else to.degree.clamp(max=fanout))
    numbers = indptr.new_empty(int(indptr[-1]))
    if len(numbers):
        most = int(torch.iinfo(torch.int64).max) if fanout == ALL else fanout
        mask = int(RELATION_MASK) if topology.typed else 0
        operands = *law_words(law), *_lists(topology, to, numbers, indptr), to.degree, to.degree, 0, 0, most, mask
        launch(_smallest, (len(to.degree),), *operands, ONE=law.kept == 1, TIMES=False, BLOCK=ENTRIES)
    return drawn_numbers(topology, indptr, numbers)


def numbers_below(law: Law, topology: DeviceTopology, to: Destinations, fanout: int) -> DeviceDrawn:
    """Draw the sources with a number below fan-out / degree, as labor_0.py does without; 0 <= fan-out."""
    counts, mask = torch.empty_like(to.degree), int(RELATION_MASK) if topology.typed else 0
    given = {"ONE": law.kept == 1, "BLOCK": ENTRIES}
    if len(counts):
        operands = *law_words(law), *_lists(topology, to, counts, counts), fanout, mask
        launch(_below, (len(counts),), *operands, WRITES=False, **given)
    indptr = starts(counts)
    numbers = indptr.new_empty(int(indptr[-1]))
    if len(numbers):
        operands = *law_words(law), *_lists(topology, to, numbers, indptr), fanout, mask
        launch(_below, (len(counts),), *operands, WRITES=True, **given)
    return drawn_numbers(topology, indptr, numbers)


@triton.jit(do_not_specialize=["whole", "low", "high"])
def _count_visible(start, degree, kept, whole, times, low, high, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    count = tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        inside = at + tl.arange(0, BLOCK) < length
        _, _, seen = _visible(begin + at + tl.arange(0, BLOCK), inside, kept, whole, times, low, high)
        count += tl.sum(seen.to(tl.int64), axis=0)
    tl.store(out + row, count)


@triton.jit(do_not_specialize=["whole", "low", "high", "halvings"])
def _chosen_of_visible(
    start, degree, indptr, places, kept, whole, times, low, high, halvings, out, BLOCK: tl.constexpr
):  # fmt: skip
    # Places count from the first entry of a list over the visible ones alone, and ascend.
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    first, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    earlier = begin
    for at in range(0, length, BLOCK):
        inside = at + tl.arange(0, BLOCK) < length
        number, _, seen = _visible(begin + at + tl.arange(0, BLOCK), inside, kept, whole, times, low, high)
        count = seen.to(tl.int64)
        mine = earlier + tl.cumsum(count, axis=0) - count
        earlier += tl.sum(count, axis=0)
        least, most = first + count * 0, end + count * 0
        for _ in range(halvings):
            middle = (least + most) >> 1
            lower = (least < most) & (tl.load(places + middle, mask=least < most, other=0) < mine)
            most = tl.where(lower, most, middle)
            least = tl.where(lower, middle + 1, least)
        taken = seen & (least < end)
        taken = taken & (tl.load(places + least, mask=taken, other=-1) == mine)
        tl.store(out + least, number, mask=taken)


def by_time(
    hashed: int, topology: DeviceTopology, times: Tensor, seen: tuple[int, int], to: Destinations, fanout: int,
    latest: bool,
) -> DeviceDrawn:  # fmt: skip
    """Draw what `by_time` of local_forms.py draws."""
    kept = topology.indices if topology.kept is None else topology.kept
    interval = kept, len(topology.indices), times, *seen
    counts, lists = torch.empty_like(to.degree), len(to.degree)
    if lists:
        launch(_count_visible, (lists,), to.start, to.degree, *interval, counts, BLOCK=ENTRIES)
    if latest or fanout == ALL:
        indptr = starts(counts if fanout == ALL else counts.clamp(max=fanout))
        numbers = indptr.new_empty(int(indptr[-1]))
        if len(numbers):
            most = int(torch.iinfo(torch.int64).max) if fanout == ALL else fanout
            operands = 0, 0, 1, *_lists(topology, to, numbers, indptr), counts, times, *seen, most, 0
            launch(_smallest, (lists,), *operands, ONE=True, TIMES=True, BLOCK=ENTRIES)
        return drawn_numbers(topology, indptr, numbers)
    indptr, places = uniform_places(hashed, to._replace(degree=counts), fanout)
    numbers = torch.empty_like(places)
    if len(numbers):
        operands = to.start, to.degree, indptr, places, *interval, fanout.bit_length(), numbers
        launch(_chosen_of_visible, (lists,), *operands, BLOCK=ENTRIES)
    return drawn_numbers(topology, indptr, numbers)


@triton.jit
def _weights(place, inside, kept, whole, indices, weights, largest, LEAST: tl.constexpr, STEPS: tl.constexpr):
    # Weights of sources, or, where there is a LEAST, steps_of_edges of weighted_draws.py.
    number = numbers_at(place, kept, whole, inside)
    if LEAST > 0:
        weight = tl.load(weights + number, mask=inside, other=0).to(tl.float64)
        share = weight / tl.maximum(largest, tl.full((), LEAST, tl.float64)) * tl.full((), STEPS, tl.float64)
        return tl.where(weight > 0, tl.maximum(share.to(tl.int64), 1), 0)
    else:
        source = tl.load(indices + number, mask=inside, other=0).to(tl.int64)
        return tl.load(weights + source, mask=inside, other=0)


@triton.jit
def _largest(begin, length, kept, whole, weights, BLOCK: tl.constexpr):
    largest = tl.full((), 0, tl.float64)
    for at in range(0, length, BLOCK):
        inside = at + tl.arange(0, BLOCK) < length
        number = numbers_at(begin + at + tl.arange(0, BLOCK), kept, whole, inside)
        here = tl.load(weights + number, mask=inside, other=0).to(tl.float64)
        largest = tl.maximum(largest, tl.max(here, axis=0))
    return largest


@triton.jit
def _reaching(
    begin, length, kept, whole, indices, weights, largest, picks, total,
    LEAST: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Number and sum of the positive weights that reach `total`, times `picks`.
    count, sum_of_them = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        place = begin + at + tl.arange(0, BLOCK)
        inside = at + tl.arange(0, BLOCK) < length
        weight = _weights(place, inside, kept, whole, indices, weights, largest, LEAST, STEPS)
        those = (weight > 0) & (picks * weight >= total)
        count += tl.sum(those.to(tl.int64), axis=0)
        sum_of_them += tl.sum(tl.where(those, weight, 0), axis=0)
    return count, sum_of_them


@triton.jit(do_not_specialize=["hashed", "whole", "fanout"])
def _systematic(
    hashed, original, start, degree, indptr, indices, weights, kept, whole, out, drawn, fanout,
    LEAST: tl.constexpr, STEPS: tl.constexpr, WRITES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length, begin = tl.load(degree + row), tl.load(start + row)
    largest = _largest(begin, length, kept, whole, weights, BLOCK) if LEAST > 0 else tl.full((), 0, tl.float64)
    positive, total = _reaching(begin, length, kept, whole, indices, weights, largest, 0, 0, LEAST, STEPS, BLOCK)

    # Certain are all of a short list, else those whose weight times the picks reaches the total of the others. Fewer
    # picks and a lower total make more of them certain, never fewer.
    short = positive <= fanout
    whole_total, picks = total, fanout.to(tl.int64)
    # Of no use to short lists. Were they `picks` and `total` at first, MLIR would take them for loop invariants.
    by_picks, by_total = tl.full((), -1, tl.int64), tl.full((), -1, tl.int64)
    certain_count = tl.full((), 0, tl.int64)
    more = short == 0
    while more:
        by_picks, by_total = picks, total
        count, sum_of_them = _reaching(
            begin, length, kept, whole, indices, weights, largest, by_picks, by_total, LEAST, STEPS, BLOCK
        )  # fmt: skip
        found = count > certain_count
        certain_count = count
        picks, total = fanout - count, whole_total - sum_of_them
        more = found & (picks > 0) & (total > 0)

    # Points are `apart` apart; an entry is hit if its ends are in different intervals.
    apart = tl.maximum(total, 1)
    word = fold(hashed.to(tl.uint64), tl.load(original + row))
    end = tl.umulhi(word, apart.to(tl.uint64)).to(tl.int64)
    first = tl.load(indptr + row) if WRITES else row.to(tl.int64)
    done = tl.full((), 0, tl.int64)
    for at in range(0, length, BLOCK):
        place = begin + at + tl.arange(0, BLOCK)
        inside = at + tl.arange(0, BLOCK) < length
        weight = _weights(place, inside, kept, whole, indices, weights, largest, LEAST, STEPS)
        certain = (weight > 0) & (short | (by_picks * weight >= by_total))
        part = tl.where(certain, 0, picks * weight)
        ends = end + tl.cumsum(part, axis=0)
        end += tl.sum(part, axis=0)
        hit = (part > 0) & (ends // apart > (ends - part) // apart)
        taken = certain | hit
        if WRITES:
            at_out, done = emit(out, first, done, place, kept, whole, taken)
            inverse = (total.to(tl.float64) / tl.maximum(part, 1).to(tl.float64)).to(tl.float32)
            tl.store(drawn + at_out, tl.where(certain, 1.0, inverse), mask=taken.to(tl.int64) > 0)
        else:
            done += tl.sum(taken.to(tl.int64), axis=0)
    if not WRITES:
        tl.store(out + row, done)


def by_weight(
    hashed: int, topology: DeviceTopology, weights: Tensor, to: Destinations, fanout: int, by_edge: bool
) -> DeviceDrawn:
    """Draw as weighted.py does by weights of edges (float32[edges]) or sources (int64[n]), but for normalisation."""
    given = {"LEAST": LEAST if by_edge else 0, "STEPS": STEPS, "BLOCK": ENTRIES}
    kept = topology.indices if topology.kept is None else topology.kept
    most = int(torch.iinfo(torch.int64).max) if fanout == ALL else fanout
    of_lists = hashed, to.original, to.start, to.degree
    shared = topology.indices, weights, kept, len(topology.indices)
    # The same draws twice: to count them, then to write them, as their number depends on the weights.
    counts = torch.empty_like(to.degree)
    if len(counts):
        operands = *of_lists, counts, *shared, counts, weights, most
        launch(_systematic, (len(counts),), *operands, WRITES=False, **given)
    indptr = starts(counts)
    numbers = indptr.new_empty(int(indptr[-1]))
    drawn = indptr.new_empty(len(numbers), dtype=torch.float32)
    if len(numbers):
        operands = *of_lists, indptr, *shared, numbers, drawn, most
        launch(_systematic, (len(counts),), *operands, WRITES=True, **given)
    return drawn_numbers(topology, indptr, numbers, drawn)
