"""Kernels of the edge sort: edges as 64-bit keys, which are scattered to buckets of rows and sorted within them.

A key holds the row within its bucket, the column, and in the lowest bit whether it is a reverse edge. `key_shift` is
the number of bits of the column and that bit; a bucket has 2**bucket_bits rows.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def _key(row, column, backwards, mask, shift):
    return (np.uint64(row & mask) << np.uint64(shift)) | (np.uint64(column) << np.uint64(1)) | np.uint64(backwards)


@compiled
def count_keys(sources, destinations, low, rows, bucket_bits, directed, counts):
    """Add the number of keys of each bucket to `counts` [buckets]; those of the `rows` rows from `low` on.

    Returns the loops, which have no key.
    """
    loops = 0
    for e in range(len(sources)):
        source, destination = np.int64(sources[e]), np.int64(destinations[e])
        if source == destination:
            loops += 1
            continue
        if 0 <= destination - low < rows:
            counts[(destination - low) >> bucket_bits] += 1
        if not directed and 0 <= source - low < rows:
            counts[(source - low) >> bucket_bits] += 1
    return loops


@compiled
def scatter_keys(sources, destinations, low, rows, bucket_bits, key_shift, directed, place, keys):
    """Write the keys of edges to `keys`, those of each bucket from place[bucket] on, which moves to their end.

    Only those of the `rows` rows from `low` on.
    """
    mask = (np.int64(1) << bucket_bits) - 1
    for e in range(len(sources)):
        source, destination = np.int64(sources[e]), np.int64(destinations[e])
        if source == destination:
            continue
        if 0 <= destination - low < rows:
            bucket = (destination - low) >> bucket_bits
            keys[place[bucket]] = _key(destination - low, source, 0, mask, key_shift)
            place[bucket] += 1
        if not directed and 0 <= source - low < rows:
            bucket = (source - low) >> bucket_bits
            keys[place[bucket]] = _key(source - low, destination, 1, mask, key_shift)
            place[bucket] += 1


@compiled
def count_rows(keys, key_shift, counts):
    """Add to counts[row], int64[rows], the number of keys of each row."""
    for key in keys:
        counts[key >> np.uint64(key_shift)] += 1


@compiled
def take_rows(keys, key_shift, low, high, out, filled):
    """Append the keys of rows low ... high - 1 to `out`; returns how full it is then."""
    for key in keys:
        if low <= np.int64(key >> np.uint64(key_shift)) < high:
            out[filled] = key
            filled += 1
    return filled


def sort_rows(keys: np.ndarray, key_shift: int, low: int, indptr: np.ndarray, columns: np.ndarray) -> tuple[int, int]:
    """Sort `keys` uint64[k] of the rows low ... in place; write their columns without repeats, and the rows' bounds.

    columns: unsigned [k]; indptr: zeros int64[rows + 1]. Returns how many columns there are, and how many of them an
    edge as read leads to.
    """
    # numpy sorts such keys by vector instructions, several times faster than a counting sort by row.
    keys.sort()
    return _take_columns(keys, key_shift, low, indptr, columns)


@compiled
def _take_columns(keys, key_shift, low, indptr, columns):
    shift = np.uint64(key_shift)
    column_mask = (np.uint64(1) << shift) - np.uint64(1)
    written, distinct = 0, 0
    last = ~np.uint64(0)
    for key in keys:
        edge = key >> np.uint64(1)
        if edge != last:
            last = edge
            columns[written] = (key & column_mask) >> np.uint64(1)
            written += 1
            # The forward edge of a pair comes first.
            distinct += 1 - np.int64(key & np.uint64(1))
            indptr[np.int64(key >> shift) - low + 1] += 1
    for row in range(len(indptr) - 1):
        indptr[row + 1] += indptr[row]
    return written, distinct


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Sort `numbers` [k] in ascending order, each once; far faster than np.unique, which hashes."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]]
